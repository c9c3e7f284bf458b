"""The training process's side of tracking: short lines on pipes to the helper processes, and never a wait.

Nothing here raises: a sink that cannot be reached is noted in the run's folder, and training goes on.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from plainres.options import TrackerName
from plainres.own_class import import_path
from plainres.schema import TrackerConf
from plainres.tracking.sink import PENDING, mark_path, sink_names

PATIENCE_SECONDS = 10.0  # that a command waits, at its very end, for sinks that are still busy
MOST_STARTS = 3  # of a helper in one process, if it dies again and again
_POLL_SECONDS = 0.02


class Helper:
    """A process that holds one sink, for one run after the other. It ends when its pipe is closed, or we die."""

    def __init__(self, name: str) -> None:
        """
        Raises:
            OSError: no further process can be started.
        """
        quiet = {"WANDB_ERROR_REPORTING": "false"}  # unless the user wants it: offline, nothing is to be contacted
        environment = {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}  # of a wandb of ours
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plainres.tracking.helper", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=quiet | environment | import_path(),
            start_new_session=True,  # Ctrl-C is for us: the helper still has to write how the run ended
        )
        self._process.returncode = 0  # it ends by itself, and nobody waits for it
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def send(self, message: dict[str, Any]) -> None:
        """Hand over one line, shorter than PIPE_BUF: all of it or nothing.

        Raises:
            OSError: the helper has died, or has not read for so long that its pipe is full.
        """
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Let it end once it has done what it was told."""
        assert self._process.stdin is not None
        self._process.stdin.close()


_helpers: dict[str, Helper] = {}
_starts: Counter[str] = Counter()


def open_helper(name: str) -> Helper:
    """This process's helper for a sink, started by the first call.

    Raises:
        OSError: it cannot be started, or has died too often.
    """
    if name not in _helpers:
        if _starts[name] == MOST_STARTS:
            raise OSError(f"given up after {MOST_STARTS} failures")
        _starts[name] += 1
        _helpers[name] = Helper(name)
    return _helpers[name]


def _forget(name: str) -> None:
    """Let this process's helper for a sink end, if it has not done so."""
    if helper := _helpers.pop(name, None):
        helper.close()


def close_helpers() -> None:
    """Let all helpers of this process end, and forget their failures."""
    _starts.clear()
    for name in list(_helpers):
        _forget(name)


class Tracker:
    """Tells the sinks of one run what happens to it."""

    def __init__(self, conf: TrackerConf, folder: Path) -> None:
        self._folder = folder
        self._names = sink_names(conf)
        self._told: dict[str, dict[str, Any]] = {}  # what a helper has to know of this run so far

    def start(self) -> None:
        """The run's record and its row files are there; rows follow."""
        self._begin({"open": str(self._folder)})

    def on_checkpoint(self, lengths: dict[str, int]) -> None:
        """So many bytes of the row files are covered by a checkpoint."""
        self._tell({"covered": lengths})

    def end(self) -> None:
        """run.json holds how this attempt ended. Of one that ended before its start, sinks hear nothing."""
        if self._told:
            self._tell({"end": True})

    def _begin(self, message: dict[str, Any]) -> None:
        for name in self._names:
            with suppress(OSError):
                mark_path(self._folder, name).write_text(PENDING)
        self._tell(message)

    def _tell(self, message: dict[str, Any]) -> None:
        for name in list(self._names):
            try:
                self._send(name, message)
            except OSError as error:
                self._drop(name, error)
        self._told |= {next(iter(message), ""): message}

    def _send(self, name: str, message: dict[str, Any]) -> None:
        """Hand over a line; a helper that died without a word on this run is replaced, and told all of it again."""
        try:
            open_helper(name).send(message)
        except BrokenPipeError:
            if _text(mark_path(self._folder, name)) != PENDING:
                raise
            _forget(name)
            helper = open_helper(name)
            for line in [*self._told.values(), message]:
                helper.send(line)

    def _drop(self, name: str, error: OSError) -> None:
        self._names.remove(name)
        _forget(name)  # the next run tries a new one
        mark = mark_path(self._folder, name)
        if _text(mark) in (PENDING, None):  # else the helper has said why
            with suppress(OSError):
                mark.write_text(f"it does not listen: {error.strerror or error}\n")


class LateTracker(Tracker):
    """Tells the sinks of a run all of it at its end. For replicas (replicas.py): a helper holds one run at a time, and
    runs that train side by side would interleave there."""

    def __init__(self, conf: TrackerConf, folder: Path) -> None:
        super().__init__(conf, folder)
        self._started = False
        self._lengths: dict[str, int] | None = None

    def start(self) -> None:
        self._started = True

    def on_checkpoint(self, lengths: dict[str, int]) -> None:
        self._lengths = lengths

    def end(self) -> None:
        if self._started:
            super().start()
            if self._lengths is not None:
                super().on_checkpoint(self._lengths)
            super().end()


class ReportTracker(Tracker):
    """Tells W&B of a study's report."""

    def __init__(self, conf: TrackerConf, study: Path) -> None:
        super().__init__(conf, study)
        self._names = [name for name in self._names if name == TrackerName.wandb]
        self._tell({})  # a helper that is started now has imported what it needs when the report is written

    def start(self) -> None:
        """The report is written."""
        self._begin({"report": str(self._folder)})


def await_sinks(study: Path, folders: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Wait a little for the sinks of what has ended; one line for each sink that has not all of it.

    Args:
        study: the folder that the runs belong to.
        folders: of the runs that this command tracked, and the study's for its report.
        names: of their sinks.
    """
    marks = {name: [mark_path(folder, name) for folder in folders] for name in names}
    waiting = [mark for found in marks.values() for mark in found]
    until = time.monotonic() + PATIENCE_SECONDS
    while (waiting := [m for m in waiting if _text(m) == PENDING]) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    return [line for name in names if (line := _warning(study, name, marks[name]))]


def _text(mark: Path) -> str | None:
    try:
        return mark.read_text()
    except OSError:
        return None


def _warning(study: Path, name: str, marks: list[Path]) -> str:
    texts = [text for mark in marks if (text := _text(mark))]
    if not texts:
        return ""
    known = [text for text in texts if text != PENDING]
    why = known[0].splitlines()[0] if known else f"still busy after {PATIENCE_SECONDS:.0f} s"
    remedy = f"; plainres sync {study} sends it" if name == TrackerName.wandb else ""
    return (
        f"tracker {name}: {len(texts)} of {len(marks)} runs have not arrived there in full ({why}); "
        f"the runs' own files are whole{remedy}"
    )
