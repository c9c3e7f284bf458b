"""A sweep on all cores beside the same runs one after another, each a process of its own; what a tracker adds."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from measure import Row, Setup, row

SEEDS = 5  # of the default study


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Of the default study's 40 runs those of seed 0 are timed, all with ``full``."""
    seeds = list(range(SEEDS if setup.full else 1))
    common = ["tracker=none", f"trainer.device={setup.device}", f"trainer.steps={setup.steps(600)}"]
    cells = [(depth, arm, seed) for depth in (10, 20, 50, 100) for arm in ("plain", "residual") for seed in seeds]
    together = _seconds(["+sweep=depth", f"seed={','.join(map(str, seeds))}", *common, f"results_dir={results}/a"])
    alone = sum(
        _seconds([f"depth={depth}", f"connection={arm}", f"seed={seed}", *common, f"results_dir={results}/b"])
        for depth, arm, seed in cells
    )
    words = "" if setup.full else "; those of seed 0, the report included"
    yield row(
        f"+sweep=depth ({len(cells)} runs, {os.cpu_count()} cores) / its runs one after another", [alone / together],
        "x", at_least=2.5, note=f"{together:.0f} s against {alone:.0f} s{words}",
    )  # fmt: skip
    yield _start_up(setup)


def _seconds(overrides: Sequence[str]) -> float:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "run", *overrides]
        subprocess.run(command, check=True, capture_output=True, cwd=place, env=os.environ | {"WANDB_MODE": "disabled"})
    return time.perf_counter() - began


def _start_up(setup: Setup) -> Row:
    """``python -m run --help`` in a process of its own."""
    values = [_seconds(["--help"]) for _ in range(setup.rounds)]
    return row("python -m run --help", values, "s", at_most=1.5)
