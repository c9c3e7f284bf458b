"""One run by itself: ``python -m run``, a job of one of Hydra's own launchers, or rank 0 of several processes."""

import sys
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from plainres.engine import engine_notes
from plainres.errors import UserError
from plainres.job import Outcome, execute
from plainres.launch import together
from plainres.launch.prepare import prepare, resolve_device
from plainres.launch.stopping import stop_on_signals
from plainres.pair import RunSpec
from plainres.ranks import LostRank, ranks
from plainres.report.terminal import make_console
from plainres.schema import RunConf
from plainres.store import FINISHED, Status, Study
from plainres.tracking.client import await_sinks
from plainres.tracking.sink import sink_names


def run_single(conf: RunConf) -> Outcome:
    """Check and run one job, and say in a line how it ended.

    Raises:
        UserError: it cannot be run.
        KeyboardInterrupt: the user asked to stop; the run has checkpointed.
    """
    if (count := together.num_processes()) > 1:
        shared = replace(conf, trainer=replace(conf.trainer, devices=count))
        together.check_shared(shared)
        with together.gathered():
            return _run(shared)
    return _run(conf)


def _run(conf: RunConf) -> Outcome:
    if (rank := together.rank_here()) > 0:
        return _follow(conf, rank)
    study, (spec,) = prepare([conf], together.own_device if ranks() else resolve_device)
    outcome = _run_and_say(spec, study)
    if outcome.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def _follow(conf: RunConf, rank: int) -> Outcome:
    """A rank that has nothing to say but its own failure: rank 0 speaks for all."""
    try:
        outcome = together.follow_leader(conf)
    except (UserError, LostRank):
        sys.exit(1)
    if outcome.status is Status.INTERRUPTED:
        sys.exit(130)
    if outcome.status in (Status.FAILED, Status.OOM):
        print(f"plainres: rank {rank}: {outcome.status.value}: {outcome.message}", file=sys.stderr)
        sys.exit(1)
    return outcome


def _run_and_say(spec: RunSpec, study: Study) -> Outcome:
    console = make_console()
    folder = study.run_folder(spec.name)
    console.print(Text(f"plainres: 1 run -> {folder.path}"), soft_wrap=True)
    notes = engine_notes([spec])
    if (replicas := spec.conf.trainer.replicas) > 1:
        notes.append(
            f"trainer.replicas={replicas}: this run trains alone, to the same bits; a sweep over seeds "
            f"(seed=0,1,… -m) trains {replicas} at once"
        )
    for note in notes:
        console.print(Text(f"plainres: {note}"), soft_wrap=True)
    with stop_on_signals() as asked:
        if here := ranks():
            leader = together.Leader(asked, folder, here)
            try:
                outcome = execute(spec, study, leader)
            finally:
                leader.end()
        else:
            outcome = execute(spec, study, asked)
    how = "ended before, skipped" if outcome.skipped else f"in {outcome.seconds:.1f} s"
    record = folder.read()
    last = record.get("last_finite") or {}
    error = f", training error {100 * last['train_error']:.2f} % after {last['step']} steps" if last else ""
    line = f"{outcome.status.value} ({how}){error}"
    if outcome.status is Status.INTERRUPTED:  # which word the command itself says last
        where = f"at step {record['stopped_at_step']} " if record.get("stopped_at_step") is not None else ""
        line = f"stopped {where}({how}); {outcome.message}"
    console.print(Text(f"plainres: {line}"), soft_wrap=True)
    if outcome.status in FINISHED:
        console.print(Text(f"plainres: tables and figures: plainres report {study.path}"), soft_wrap=True)
    return outcome


def await_tracking(conf: RunConf, outcome: Outcome) -> None:
    """Wait a little for the sinks of a run, and say what has not arrived. A sweep does so once for all its jobs."""
    if outcome.skipped:
        return
    study = Study.open(Path(conf.results_dir) / conf.study)
    for line in await_sinks(study.path, [study.run_folder(outcome.name).path], sink_names(conf.tracker)):
        make_console().print(Text(f"plainres: {line}"), soft_wrap=True)
