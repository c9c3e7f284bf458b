"""What tracker=wandb (offline) costs: the same runs without and with it, in turn, in one process that is warm.

Wall seconds move with whatever else the machine does, so runs alternate (without, with, without, ...). CPU seconds move
less: those of training are this process's, those of tracking its helper's and wandb-core's. A sweep keeps all cores
busy, so what tracking adds to it is about the ratio of the two.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from loops import MLP
from measure import Row, Setup, row

from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.options import TrackerMode, TrackerName
from plainres.schema import ProbeConf, RunConf, TrackerConf
from plainres.tracking.client import await_sinks, close_helpers, open_helper

TICKS = os.sysconf("SC_CLK_TCK")
TRACKERS = {"without": TrackerConf(TrackerName.none), "with": TrackerConf(TrackerName.wandb, TrackerMode.offline)}
DEPTHS = (10, 50)  # of the default study


@dataclass
class Cost:
    """Of one run: wall seconds of the job, CPU seconds of training and of tracking, seconds in the loop's calls."""

    wall: float
    cpu: float
    helper: float
    calls: float


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Runs of two of the default study's depths, without and with the tracker."""
    conf = replace(MLP.conf, probe=ProbeConf(), study="bench")
    conf.trainer = replace(conf.trainer, steps=setup.steps(600), device=setup.device)
    for how in TRACKERS:  # imports, and the first run of a helper
        measure(replace(conf, depth=4, seed=99), results, how)
    pairs = [tuple(measure(replace(conf, depth=depth), results, how) for how in TRACKERS) for depth in DEPTHS]
    close_helpers()
    bare, tracked = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    calls = [100 * cost.calls / cost.wall for cost in tracked]
    yield row("tracker=wandb, offline: its calls' share of a run", calls, "%", at_most=1)
    helper = [cost.helper for cost in tracked]
    yield row("tracker=wandb, offline: CPU seconds of its helper for a run", helper, "s", at_most=0.25)
    share = 100 * sum(helper) / sum(cost.cpu for cost in bare)
    note = f"depths {', '.join(map(str, DEPTHS))}"
    yield row("tracker=wandb, offline: CPU beside that of training", [share], "%", at_most=5, note=note)


def measure(conf: RunConf, results: Path, how: str) -> Cost:
    """Train one run to its end, and wait until its sink has it."""
    study, (spec,) = prepare([replace(conf, tracker=TRACKERS[how], results_dir=str(results / how))])
    tracked = how == "with"
    before = helper_cpu() if tracked else 0.0
    cpu = time.process_time()
    outcome = execute(spec, study, lambda: False)
    cpu = time.process_time() - cpu
    folder = study.run_folder(outcome.name)
    if tracked and (problems := await_sinks(study.path, [folder.path], ["wandb"])):
        raise RuntimeError(problems[0])
    helper = helper_cpu() - before if tracked else 0.0
    return Cost(outcome.seconds, cpu, helper, folder.read()["seconds"]["tracker"])


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
