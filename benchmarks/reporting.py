"""A report of 40 runs with 100 layers each: seconds and memory, and how both grow with the number of runs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Row, Setup, row

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_study import FakeStudy  # a study in the real format, of any size

DEPTHS = (94, 96, 98, 100)


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """40 runs, then 120 (400 with ``full``)."""
    seconds, memory = _report(results, 5)
    yield row("report of 40 runs x 100 layers", [seconds], "s", at_most=15)
    yield row("report of 40 runs x 100 layers: memory", [memory], "GiB", at_most=1)
    seeds = 50 if setup.full else 15
    more, larger = _report(results, seeds)
    grown = (more / seconds) / (seeds / 5)
    note = f"{more:.0f} s and {larger:.1f} GiB for {8 * seeds} runs"
    yield row(f"report of {8 * seeds} runs: seconds, against proportional growth", [grown], "x", at_most=1.1, note=note)


def _report(results: Path, seeds: int) -> tuple[float, float]:
    """Seconds and peak GiB of ``plainres report``."""
    study = FakeStudy(depths=DEPTHS, seeds=range(seeds)).write(results / f"runs{8 * seeds}")
    code = "import sys; from plainres.cli import main; sys.exit(main(sys.argv[1:]))"
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, "report", str(study)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"plainres report ended with {status}")
    return time.perf_counter() - began, used.ru_maxrss / 1024**2
