"""One run by itself: ``python -m run``, or a job of one of Hydra's own launchers."""

from pathlib import Path

from rich.text import Text

from plainres.job import Outcome, execute
from plainres.launch.prepare import prepare
from plainres.launch.stopping import stop_on_signals
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
    study, (spec,) = prepare([conf])
    console = make_console()
    folder = study.run_folder(spec.name)
    console.print(Text(f"plainres: 1 run -> {folder.path}"), soft_wrap=True)
    with stop_on_signals() as asked:
        outcome = execute(spec, study, asked)
    how = "ended before, skipped" if outcome.skipped else f"in {outcome.seconds:.1f} s"
    record = folder.read()
    last = record.get("last_finite") or {}
    error = f", training error {100 * last['train_error']:.2f} % after {last['step']} steps" if last else ""
    console.print(Text(f"plainres: {outcome.status.value} ({how}){error}"), soft_wrap=True)
    if outcome.status in FINISHED:
        console.print(Text(f"plainres: tables and figures: plainres report {study.path}"), soft_wrap=True)
    if outcome.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def await_tracking(conf: RunConf, outcome: Outcome) -> None:
    """Wait a little for the sinks of a run, and say what has not arrived. A sweep does so once for all its jobs."""
    if outcome.skipped:
        return
    study = Study.open(Path(conf.results_dir) / conf.study)
    for line in await_sinks(study.path, [study.run_folder(outcome.name).path], sink_names(conf.tracker)):
        make_console().print(Text(f"plainres: {line}"), soft_wrap=True)
