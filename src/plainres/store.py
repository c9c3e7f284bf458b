"""A run's folder: identity, status, rows; atomic writes. No torch, no Hydra.

    results/<study>/study.json                       what this folder is
    results/<study>/runs/<readable name>-<run_id>/
        run.json         config, ids, audit, status, versions, seconds; replaced as a whole, never half-written
        steps.jsonl      while training: one line per evaluation or probed update
        layers.jsonl     while training: one line per probe step, an array per metric
        steps.parquet    the same rows as tidy tables, once the run has ended
        layers.parquet
        checkpoint.pt    weights, optimizer, position
        progress.json    where a running job stands, for the live view; gone when it ends
        traceback.txt    only if the run failed

Line format: ``{"step": 3, "kind": "update", "values": {"lr": 0.01}, "reasons": {"x": "why it is null"}}`` and
``{"step": 3, "values": {"layer": {"grad_norm": [..]}}, "reasons": {"layer": {"grad_norm": {"0": "why"}}}}``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from plainres.errors import UserError

STUDY_FILE = "study.json"
FORMAT = 1
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Status(StrEnum):
    """Where a run stands. ``stale`` is never written: it is how a ``running`` run without a process shows."""

    PLANNED = "planned"
    RUNNING = "running"
    COMPLETE = "complete"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    OOM = "oom"
    STALE = "stale"


FINISHED = (Status.COMPLETE, Status.DIVERGED)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` so that a reader, or a crash, sees the old or the new content, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def clear_partial(folder: Path) -> None:
    """Delete what a killed process had half-written; call only while nobody else writes into the folder."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, indented for people."""
    write_atomic(path, orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


class Study:
    """A folder of runs under one question."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def report_dir(self) -> Path:
        return self.path / "report"

    @classmethod
    def create(cls, results_dir: str | Path, name: str) -> "Study":
        """Open ``results_dir/name``, making it if there is none.

        Raises:
            UserError: the folder cannot be written, or holds something that is no study of this name.
        """
        path = Path(results_dir).expanduser().absolute() / name
        marker = path / STUDY_FILE
        try:
            # In this order: another command makes the marker before anything that is not _is_begun.
            if path.exists() and not all(map(_is_begun, path.iterdir())) and not marker.exists():
                raise UserError(
                    f"study={name}: {path} exists and is no plainres study (no study.json in it); "
                    "choose another study= or results_dir="
                )
            path.mkdir(parents=True, exist_ok=True)
            with FileLock(path / ".lock"):
                clear_partial(path)
                (path / ".writable.partial").touch()
                clear_partial(path)
                if not marker.exists():
                    write_json(marker, {"format": FORMAT, "study": name})
                (path / "runs").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(
                f"results_dir={results_dir}: cannot write {path} ({error.strerror}); choose another"
            ) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> "Study":
        """Open an existing study folder for reading.

        Raises:
            UserError: there is no study at ``path``, or it is one of another name or of a newer format.
        """
        path = Path(path).expanduser().absolute()
        marker = path / STUDY_FILE
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; give a study's, such as results/depth")
        if not marker.is_file():
            raise UserError(f"{path}: not a plainres study (no study.json); give a folder such as results/depth")
        found = read_json(marker)
        if found.get("format", 0) > FORMAT:
            raise UserError(f"{marker}: written by a newer plainres (format {found['format']}); upgrade plainres")
        if found.get("study") != path.name:
            raise UserError(
                f"{path}: holds the study '{found.get('study')}', not '{path.name}'; "
                "give the folder its old name back or choose another study="
            )
        return cls(path)

    def run_folder(self, run_name: str) -> "RunFolder":
        return RunFolder(self.path / "runs" / run_name)

    def runs(self) -> Iterator["RunFolder"]:
        """All run folders, in order of name, readable or not."""
        root = self.path / "runs"
        if root.is_dir():
            yield from (RunFolder(p) for p in sorted(root.iterdir()) if p.is_dir())


def _is_begun(path: Path) -> bool:
    """Whether it is of a study that another command makes just now, or was killed while it made it."""
    return path.name == ".lock" or path.name.endswith(".partial")


def _remedy(path: Path) -> str:
    if path.name == STUDY_FILE:  # the runs beside it are whole
        return f'write {{"format": {FORMAT}, "study": "{path.parent.name}"}} into it'
    return "restore it, or delete its folder and run again"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        UserError: the file is missing, unreadable or not a JSON object.
    """
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); {_remedy(path)}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a JSON object; {_remedy(path)}")
    return value


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock")

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.pt"

    @property
    def traceback(self) -> Path:
        return self.path / "traceback.txt"

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def read(self) -> dict[str, Any]:
        """run.json.

        Raises:
            UserError: it is missing, garbled, of a newer format, or has an id that no run has.
        """
        path = self.path / "run.json"
        record = read_json(path)
        if record.get("format", 0) > FORMAT:
            raise UserError(f"{self.path}: written by a newer plainres (format {record['format']}); upgrade plainres")
        run_id = record.get("run_id", "none")
        if not (isinstance(run_id, str) and _SAFE_ID.fullmatch(run_id)):  # W&B's files are named by it
            raise UserError(f"{path}: run_id={run_id!r}: must be letters and digits; {_remedy(path)}")
        return record

    def write(self, record: dict[str, Any]) -> None:
        """Replace run.json as a whole."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "run.json", {"format": FORMAT} | record)

    def plan(self, record: dict[str, Any]) -> None:
        """Write the record of a run that nobody has begun or planned; leave any other as it is."""
        if self.exists() or not self.acquire():
            return
        try:
            if not self.exists():
                self.write(record)
        finally:
            self.release()

    def update(self, **changes: Any) -> dict[str, Any]:
        """Change top-level entries of run.json."""
        record = self.read() | changes
        self.write(record)
        return record

    def status(self) -> Status:
        """The written status, or ``stale`` for a running one that no process holds."""
        written = Status(self.read()["status"])
        if written is Status.RUNNING and not self.is_locked():
            return Status.STALE
        return written

    def acquire(self, timeout: float = 0) -> bool:
        """Take the run for this process; False if another process trains it. Released when the process dies."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=timeout)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        self._lock.release()

    def is_locked(self) -> bool:
        """Whether some process is training this run now."""
        if self._lock.is_locked:
            return True
        if not (self.path / ".lock").exists():
            return False
        if not self.acquire():
            return True
        self.release()
        return False

    def write_progress(self, **values: Any) -> None:
        """Say where a running job stands (step, loss, train_error); a lost or late one harms nothing."""
        partial = self.path / ".progress.partial"
        with suppress(OSError):
            partial.write_bytes(orjson.dumps(values))
            partial.replace(self.path / "progress.json")

    def read_progress(self) -> dict[str, Any]:
        try:
            value = orjson.loads((self.path / "progress.json").read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return value if isinstance(value, dict) else {}

    def clear_progress(self) -> None:
        for name in ("progress.json", ".progress.partial"):
            (self.path / name).unlink(missing_ok=True)
