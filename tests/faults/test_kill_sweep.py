"""kill -9 of a whole sweep at random moments, then the same command again: the bits of one that nothing disturbed.

Five lives of ten kills (and one of two for the slow tests), each over a study of its own: in a life the moments go
from starting to reporting, for a sweep that has got far cannot be killed early again.
"""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from small_sweep import (
    LIVES,
    TEN,
    after,
    check_between,
    check_same,
    finish,
    random_write,
    rows_written,
    send_when,
    start,
)

TWO = ["train", "compaction"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The study, and the seconds from the command to its first row."""
    results = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    process = start(results)
    while not rows_written(results) and process.poll() is None:
        time.sleep(0.01)
    first_row = time.monotonic() - began
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    return results, first_row


def kill(results: Path, phase: str, rng: random.Random, first_row: float) -> bool:
    """Give the command and kill all of it in a phase; False if it came to its end."""
    if phase == "start":  # on a machine that has become faster meanwhile, when it writes its first row
        rows, late = rows_written(results), after(rng.uniform(0.02, first_row))
        return killed(start(results), lambda: late() or rows_written(results) > rows)
    if phase == "train":
        process = start(results)
        more = rows_written(results) + rng.randrange(1, 15)
        later = rng.uniform(0, 0.05)
        reached = False

        def due() -> bool:
            nonlocal reached, later
            if not reached and rows_written(results) >= more:
                reached, later = True, time.monotonic() + later
            return reached and time.monotonic() > later

        return killed(process, due)
    return killed(start(results, random_write(rng, phase)), lambda: False)


def killed(process, due) -> bool:
    send_when(process, due)
    process.communicate()
    return process.returncode == -9


def live(results: Path, undisturbed: tuple[Path, float], phases: list[str], seed: int) -> Counter[str]:
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    for phase in phases:
        if kill(results, phase, rng, undisturbed[1]):
            done[phase] += 1
            check_between(results)
    finish(results)
    check_same(results, undisturbed[0])
    return done


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(LIVES))
def test_fifty_kills_change_no_bit(seed: int, undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    assert live(tmp_path, undisturbed, TEN, seed) == Counter(TEN)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_kills_change_no_bit(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    assert live(tmp_path, undisturbed, TWO, LIVES) == Counter(TWO)
