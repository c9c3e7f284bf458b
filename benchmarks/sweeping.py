"""A sweep on all cores beside the same runs one after another, each a process of its own; what a tracker adds."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from measure import Row, Setup, row

from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.launch.timing import measure
from plainres.options import Shortcut, TrackerName
from plainres.schema import ConnectionConf, RunConf, TrackerConf

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
    yield from _plan(setup, results)


def _plan(setup: Setup, results: Path) -> Iterator[Row]:
    """What `plainres plan` estimates for the kinds of the default study, beside what their runs then take here."""
    ratios = []
    for depth in (10, 20, 50, 100):
        for connection in (ConnectionConf(), ConnectionConf("residual", Shortcut.identity)):
            conf = RunConf(depth=depth, connection=connection, study="plan", results_dir=str(results))
            conf.trainer = replace(conf.trainer, steps=setup.steps(600), device=setup.device)
            conf.tracker = TrackerConf(TrackerName.none)
            study, (spec,) = prepare([conf])
            estimate = measure(spec).of_run(spec)
            took = execute(spec, study, lambda: False).seconds
            ratios.append(estimate / took)
    note = "8 kinds of run, one after the other"
    yield row("plainres plan: estimated / taken seconds of a run", ratios, "x", between=(0.75, 1.25), note=note)


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
