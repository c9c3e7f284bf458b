"""What tracker=wandb (offline) costs: the same runs without and with it, in turn, in one process that is warm.

python benchmarks/tracking.py              # the default study's depths, residual, 2 rounds: some minutes

Wall seconds move with whatever else the machine does, so runs alternate (without, with, without, ...) and differences
are taken within a round. CPU seconds do so less: those of training are this process's, those of tracking its helper's
and wandb-core's. A sweep keeps all cores busy, so what tracking adds to it is about the ratio of the two.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.options import Shortcut, TrackerMode, TrackerName
from plainres.schema import ConnectionConf, RunConf, TrackerConf
from plainres.tracking.client import await_sinks, close_helpers, open_helper

TICKS = os.sysconf("SC_CLK_TCK")
TRACKERS = {"without": TrackerConf(TrackerName.none), "with": TrackerConf(TrackerName.wandb, TrackerMode.offline)}


@dataclass
class Cost:
    """Of one run: wall seconds of the job, CPU seconds of training and of tracking, seconds in the loop's calls."""

    wall: float
    cpu: float
    helper: float
    calls: float


def helper_cpu() -> float:
    """CPU seconds so far of the helper and the processes it started."""
    return sum(map(_cpu_of, _family(open_helper("wandb")._process.pid)))


def _family(process: int) -> Iterator[int]:
    yield process
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _family(int(child))


def _cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(conf: RunConf, results: Path, how: str) -> Cost:
    """Train one run to its end, and wait until its sink has it."""
    study, (spec,) = prepare([replace(conf, tracker=TRACKERS[how], results_dir=str(results / how))])
    tracked = how == "with"
    before = helper_cpu() if tracked else 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = execute(spec, study, lambda: False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    folder = study.run_folder(outcome.name)
    if tracked and (problems := await_sinks(study.path, [folder.path], ["wandb"])):
        raise RuntimeError(problems[0])
    return Cost(wall, cpu, helper_cpu() - before if tracked else 0.0, folder.read()["seconds"]["tracker"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    conf = RunConf(connection=ConnectionConf("residual", Shortcut.identity), study="bench")
    conf.trainer = replace(conf.trainer, steps=args.steps, device="cpu")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    costs: dict[int, list[tuple[Cost, Cost]]] = {depth: [] for depth in args.depths}
    with tempfile.TemporaryDirectory() as results:
        for how in TRACKERS:  # imports, and the first run of a helper
            measure(replace(conf, depth=4, seed=99), Path(results), how)
        for seed in range(args.rounds):
            for depth in args.depths:
                one = replace(conf, depth=depth, seed=seed)
                costs[depth].append((measure(one, Path(results), "without"), measure(one, Path(results), "with")))
                print(f"depth {depth}, round {seed + 1}: {line([costs[depth][-1:]])}", flush=True)
        close_helpers()
    print(f"all: {line(list(costs.values()))}; load {os.getloadavg()[0]:.1f}")


def line(groups: list[list[tuple[Cost, Cost]]]) -> str:
    """Medians of the fixed costs, and shares of the sums."""
    pairs = [pair for group in groups for pair in group]
    added = sorted(tracked.wall - bare.wall for bare, tracked in pairs)
    helper = statistics.median(tracked.helper for _, tracked in pairs)
    share = sum(tracked.helper for _, tracked in pairs) / sum(bare.cpu for bare, _ in pairs)
    calls = sum(tracked.calls for _, tracked in pairs) / sum(tracked.wall for _, tracked in pairs)
    return (
        f"wall added a run {statistics.median(added):+.2f} s [{added[0]:+.2f}, {added[-1]:+.2f}], "
        f"helper {helper:.2f} CPU s a run = {100 * share:.1f} % of training's, in the loop {100 * calls:.3f} %"
    )


if __name__ == "__main__":
    main()
