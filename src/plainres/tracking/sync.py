"""`plainres sync`: a study's offline runs to W&B, by W&B's own sync. Run again, it goes on where it stopped.

What is not whole in the study's wandb folder (a sink that failed, a killed run, ``tracker=none``) is first made anew
from the run's own files. Runs that were sent while they trained are left alone.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from plainres.errors import UserError
from plainres.options import TrackerName
from plainres.rows import TABLES, read_rows
from plainres.store import RunFolder, Status, Study
from plainres.tracking.report_run import report_id, send_report
from plainres.tracking.sink import mark_path
from plainres.tracking.wandb_file import is_whole, run_folders
from plainres.tracking.wandb_sink import WandbSink, is_logged_in

Echo = Callable[[str], None]

UNTRACKED = (Status.PLANNED, Status.RUNNING, Status.STALE)  # nothing to send yet, or more to come
SYNCED = ".synced"  # what wandb sync adds to the name of the file that it has sent


def sync(path: str | Path, echo: Echo) -> None:
    """Send what W&B does not have yet of a study.

    Args:
        path: the study's folder.
        echo: called with each line for the user.

    Raises:
        UserError: ``path`` is no study, nobody is logged in, or some runs could not be sent.
    """
    study = Study.open(path)
    os.environ.pop("WANDB_MODE", None)  # it is for training; this is about being online
    files = offline_files(study, echo)
    waiting = [file for file in files if not _is_sent(file)]
    echo(f"{study.name}: {len(files)} offline runs, {len(files) - len(waiting)} of them sent before")
    if not waiting:
        return
    if not is_logged_in():
        raise UserError("not logged in to W&B: wandb login, or set WANDB_API_KEY, then give this command again")
    said = _send([file.parent for file in waiting])
    failed = [file for file in waiting if not _is_sent(file)]
    echo(f"{study.name}: {len(waiting) - len(failed)} runs sent")
    if failed:
        raise UserError(
            f"{len(failed)} runs were not sent ({failed[0].parent.name}, ...): {said}; the same command goes on here"
        )


def offline_files(study: Study, echo: Echo) -> list[Path]:
    """The .wandb file of every run of a study, and of its report, that W&B does not get in another way.

    Those that are missing or not whole are made first.
    """
    found = []
    for folder in study.runs():
        try:
            record = folder.read()
            wanted = folder.status() not in UNTRACKED and record.get("layout") is not None
        except (UserError, KeyError, ValueError) as error:
            echo(f"left out: {folder.name}: {error}")
            continue
        if wanted and not _was_online(study, folder.path, record["run_id"]):
            found.append(_whole_file(study, folder.path, record["run_id"], partial(rebuild, folder)))
    evidence = study.report_dir / "evidence.json"
    if evidence.is_file() and not _was_online(study, study.path, report_id(study)):
        make = partial(send_report, study.path, "offline")
        found.append(_whole_file(study, study.path, report_id(study), make, evidence.stat().st_mtime))
    return found


def rebuild(folder: RunFolder) -> None:
    """Make the offline W&B run of a run from its files, in place of what there is of it."""
    record = folder.read()
    sink = WandbSink(record, folder.path, "offline")
    rows = read_rows(folder, record["layout"])
    sink.write(*(rows[table] for table in TABLES))
    sink.finish(record)


def _whole_file(study: Study, folder: Path, run_id: str, make: Callable[[], None], newer_than: float = 0.0) -> Path:
    mark = mark_path(folder, TrackerName.wandb)
    file = _file(study, run_id)
    if file is None or mark.exists() or not is_whole(file) or file.stat().st_mtime < newer_than:
        make()
        mark.unlink(missing_ok=True)
        file = _file(study, run_id)
    assert file is not None
    return file


def _file(study: Study, run_id: str) -> Path | None:
    """The file of the newest offline run of this id."""
    folders = run_folders(study.path / "wandb", run_id, "offline-run")
    return folders[-1] / f"run-{run_id}.wandb" if folders else None


def _was_online(study: Study, folder: Path, run_id: str) -> bool:
    """Whether W&B got this run, or report, when it was made, all of it."""
    online = run_folders(study.path / "wandb", run_id, "run")
    return bool(online) and not mark_path(folder, TrackerName.wandb).exists()


def _is_sent(file: Path) -> bool:
    return file.with_name(file.name + SYNCED).exists()


def _send(folders: list[Path]) -> str:
    """wandb sync of these; the last line that it said."""
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, folders)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1].removeprefix("wandb: ") if lines else "wandb said nothing"
