"""`plainres status`: the runs of a study and their states, from run.json alone (no pandas: it starts at once)."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainres.analysis.load import readable
from plainres.errors import UserError
from plainres.report.terminal import make_console
from plainres.store import RunFolder, Status, Study

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    Status.COMPLETE: "green",
    Status.RUNNING: "cyan",
    Status.DIVERGED: "yellow",
    Status.FAILED: "red",
    Status.OOM: "red",
    Status.STALE: "magenta",
    Status.INTERRUPTED: "magenta",
}


def print_status(path: str | Path, console: "Console | None" = None) -> None:
    """List every run: state, step of steps, final (or last known) training error, and what went wrong.

    Raises:
        UserError: ``path`` is no study.
    """
    from rich.text import Text

    study = Study.open(path)
    console = console or make_console()
    counts: Counter[str] = Counter()
    rows, problems = [], []
    for folder in study.runs():
        try:
            record = readable(folder)
            rows.append((record["name"], record["status"], *_cells(folder, record)))
            counts[record["status"]] += 1
        except UserError as error:
            problems.append(str(error))
    width = max([len(row[0]) for row in rows], default=4)
    for name, status, steps, wrong, note in rows:
        line = Text(f"{name:<{width}}  ")
        line.append(f"{status:<11}", style=STYLES.get(Status(status), ""))
        line.append(f"  {steps:>11}  {wrong:>8}  {note}".rstrip())
        console.print(line, soft_wrap=True)
    for problem in problems:
        console.print(f"cannot be read: {problem}", markup=False, soft_wrap=True)
    words = ", ".join(f"{counts[str(s)]} {s}" for s in Status if counts[str(s)])
    broken = f", {len(problems)} unreadable" if problems else ""
    total = len(rows) + len(problems)
    count = f"{total} run{'s' if total != 1 else ''}"
    console.print(f"{study.name}: {count}: {words or 'none'}{broken}", markup=False, soft_wrap=True)


def _cells(folder: RunFolder, record: dict[str, Any]) -> tuple[str, str, str]:
    """Step of steps, training error in %, and a note."""
    progress = folder.read_progress() if record["status"] in (Status.RUNNING, Status.STALE) else {}
    last = record.get("final") or record.get("last_finite") or {}
    here = progress or last
    step, error = here.get("step", record.get("stopped_at_step")), here.get("train_error")
    budget = record["identity"].get("trainer.steps", "?")
    steps = "" if step is None else f"{step}/{budget}"
    return steps, "" if error is None else f"{100 * error:.2f} %", _note(folder, record)


def _note(folder: RunFolder, record: dict[str, Any]) -> str:
    diverged, error = record.get("diverged"), record.get("error")
    if diverged:
        return f"at step {diverged['step']} in {diverged['layer']} ({diverged['where']})"
    if error:
        where = f", see {folder.traceback}" if folder.traceback.is_file() else ""
        message = str(error["message"]).split("\n")[0].removesuffix(f"; traceback in {folder.traceback}")
        kind = "" if message.startswith(f"{error['kind']}:") else f"{error['kind']}: "
        return f"{kind}{message}{where}"
    if record["status"] == Status.STALE:
        return "its process is gone; run the same command again to resume"
    return ""
