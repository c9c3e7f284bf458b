"""SLURM's commands: are they here, which tasks are in the queue, hold back those that have not begun."""

import shutil
import subprocess
from collections.abc import Iterable

from plainres.errors import UserError

ANSWER_SECONDS = 60.0  # a busy scheduler's


def check_tools() -> None:
    """
    Raises:
        UserError: this machine cannot submit jobs.
    """
    missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
    if missing:
        raise UserError(
            f"hydra/launcher=slurm: no {' and no '.join(missing)} on PATH; start it on a login node of the cluster, "
            "or use hydra/launcher=local"
        )


def queued_tasks(jobs: Iterable[str]) -> set[str] | None:
    """The tasks of these jobs that wait or run, as ``job_index``; None when the scheduler does not answer now."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--jobs={','.join(jobs)}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode:  # a job that ended some minutes ago is no longer known
        return set() if "Invalid job id" in found.stderr else None
    return set(found.stdout.split())


def cancel_waiting(job: str) -> None:
    """Take the tasks of a job that have not begun out of the queue."""
    subprocess.run(["scancel", "--state=PENDING", job], capture_output=True, timeout=ANSWER_SECONDS, check=False)
