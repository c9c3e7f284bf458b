"""A sweep on all cores beside the same runs one after another, each a process of its own; what a tracker adds."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from measure import Row, Setup, row

from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.launch.timing import measure as plan_seconds
from plainres.options import Shortcut, TrackerName
from plainres.pair import RunSpec
from plainres.schema import ConnectionConf, RunConf, TrackerConf
from plainres.store import Study

DEPTHS, SEEDS = (10, 20, 50, 100), 5  # of the default study


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Starting, planning and one job; with ``full`` the whole default study, together and run by run."""
    yield _start_up(setup)
    yield _plan(setup, results)
    yield _per_job(setup, results)
    if setup.full:
        yield _sweep(setup, results)


def _sweep(setup: Setup, results: Path) -> Row:
    """As a user gives them: the sweep writes its report, single runs write none."""
    common = ["tracker=none", f"trainer.device={setup.device}", f"trainer.steps={setup.steps(600)}"]
    cells = [(depth, arm, seed) for depth in DEPTHS for arm in ("plain", "residual") for seed in range(SEEDS)]
    together = _seconds(["+sweep=depth", *common, f"results_dir={results}/a"])
    alone = sum(
        _seconds([f"depth={depth}", f"connection={arm}", f"seed={seed}", *common, f"results_dir={results}/b"])
        for depth, arm, seed in cells
    )
    note = f"{together:.0f} s with its report against {alone:.0f} s without, of which each begins anew"
    name = f"+sweep=depth ({len(cells)} runs, {os.cpu_count()} cores) / its runs one after another, a command each"
    return row(name, [alone / together], "x", at_least=2.5, note=note)


def _kinds(setup: Setup, results: Path, study: str, steps: int, seed: int = 0) -> Iterator[tuple[Study, RunSpec]]:
    """The 8 kinds of run of the default study."""
    for depth in DEPTHS:
        for connection in (ConnectionConf(), ConnectionConf("residual", Shortcut.identity)):
            conf = RunConf(depth=depth, seed=seed, connection=connection, study=study, results_dir=str(results))
            conf.trainer = replace(conf.trainer, steps=setup.steps(steps), device=setup.device)
            conf.tracker = TrackerConf(TrackerName.none)
            found, (spec,) = prepare([conf])
            yield found, spec


def _plan(setup: Setup, results: Path) -> Row:
    """What `plainres plan` estimates for the kinds of the default study, beside what their runs then take here."""
    ratios = []
    for study, spec in islice(_kinds(setup, results, "plan", 300), 1, None, 2):  # both arms cost the same
        estimate = plan_seconds(spec).of_run(spec)
        ratios.append(estimate / execute(spec, study, lambda: False).seconds)
    note = "a residual run of each depth of the default study, 300 updates"
    return row("plainres plan: estimated / taken seconds of a run", ratios, "x", between=(0.75, 1.25), note=note)


def _per_job(setup: Setup, results: Path) -> Row:
    """What a run takes in a warm worker beside its steps, probes and evaluations: audit, network, draws, files."""
    seconds = []
    for seed in (0, 1):  # of the second the process knows the kind, as a worker of a sweep of 5 seeds mostly does
        for study, spec in _kinds(setup, results, "jobs", 30, seed):
            outcome = execute(spec, study, lambda: False)
            spent = study.run_folder(outcome.name).read()["seconds"]
            if seed:
                seconds.append(outcome.seconds - sum(spent[name] for name in ("train", "probes", "evaluation")))
    note = "the second run of each of 8 kinds, tracker=none"
    return row("a job's seconds beside steps, probes and evaluations", seconds, "s", at_most=0.3, note=note)


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
