"""A report of 40 runs with 100 layers each: seconds and memory, and how both grow with the number of runs."""

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


# The peak of the process by itself: what wait4 tells begins with that of the process that it was forked from.
CODE = """
import sys
from plainres.cli import main
main(sys.argv[2:])
peak, = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
open(sys.argv[1], "w").write(peak)
"""


def _report(results: Path, seeds: int) -> tuple[float, float]:
    """Seconds and peak GiB of ``plainres report``."""
    study = FakeStudy(depths=DEPTHS, seeds=range(seeds)).write(results / f"runs{8 * seeds}")
    peak = results / f"peak{seeds}"
    began = time.perf_counter()
    command = [sys.executable, "-c", CODE, str(peak), "report", str(study)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, float(peak.read_text()) / 1024**2
