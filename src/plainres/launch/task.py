"""What one task of an array job does on its node: one run, which a signal turns into a checkpoint and a requeue.

SLURM sends SIGUSR1 or SIGUSR2 some time before the limit, and SIGTERM when it takes the node back. submitit's own
handler would requeue at once, in the middle of a step; here it is called after the checkpoint has been written.
"""

import signal
import sys
from types import FrameType
from typing import Any

from submitit.helpers import DelayedSubmission

from plainres.job import Outcome, execute
from plainres.launch.stopping import stop_on_signals
from plainres.pair import RunSpec
from plainres.store import Status, Study
from plainres.tracking.client import await_sinks
from plainres.tracking.sink import sink_names

REQUEUING = (signal.SIGUSR1, signal.SIGUSR2)


class RunTask:
    """Called by submitit with a run and its study; pickled by name, so the node needs plainres and nothing else."""

    def __call__(self, spec: RunSpec, study: Study) -> str:
        """Bring the run to its end, or to a checkpoint.

        Returns:
            its status.

        Raises:
            SystemExit: it was told to stop; with a signal before the time limit the task is in the queue again.
        """
        print(f"plainres: {spec.name} on {spec.device} -> {study.path}", flush=True)
        with stop_on_signals((*REQUEUING, signal.SIGTERM), patient=True) as asked:
            outcome = execute(spec, study, asked)
        how = f": {outcome.message}" if outcome.message else ""
        print(f"plainres: {outcome.status.value} after {outcome.seconds:.1f} s{how}", flush=True)
        _await_sinks(spec, study, outcome)
        if outcome.status is not Status.INTERRUPTED:
            return str(outcome.status)
        if asked.received & set(REQUEUING):
            _requeue()
        # SIGTERM alone: scancel, or a node taken back; in that case SLURM itself requeues (sbatch --requeue).
        sys.exit(128 + signal.SIGTERM)

    def checkpoint(self, spec: RunSpec, study: Study) -> DelayedSubmission:
        """submitit asks what to do when the task runs again: the same, from the checkpoint in the run's folder."""
        return DelayedSubmission(self, spec, study)


def _await_sinks(spec: RunSpec, study: Study, outcome: Outcome) -> None:
    """With a task SLURM ends whatever it has started: its sinks' helpers have to be done before."""
    if outcome.skipped:
        return
    folders = [study.run_folder(spec.name).path]
    for line in await_sinks(study.path, folders, sink_names(spec.conf.tracker)):
        print(f"plainres: {line}", flush=True)


def _requeue() -> None:
    """submitit's handler: counts the time limits and puts the task into the queue again; it ends the process."""
    for number in REQUEUING:
        handler: Any = signal.getsignal(number)
        if callable(handler):
            frame: FrameType | None = None
            handler(number, frame)
