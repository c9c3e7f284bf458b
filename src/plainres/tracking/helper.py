"""A helper process: one sink, for one run after the other, told by lines on its standard input. See ``client.py``.

A sink that raises ends the process, so that the next run begins with a fresh one; one that cannot be built does not,
because whatever it needs may be back for the next run. When the training process is killed, its run is left unfinished.
"""

import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import orjson

from plainres.own_class import words_of
from plainres.rows import TABLES, parse_lines, read_rows
from plainres.store import RunFolder, Status
from plainres.tracking.sink import Sink, mark_path, sink_class

GRACE_SECONDS = 300.0  # that a helper may go on after its training process has ended

Message = dict[str, Any]
Messages = queue.SimpleQueue[Message | None]


def main() -> None:
    """Serve until standard input ends."""
    name = sys.argv[1]
    messages: Messages = queue.SimpleQueue()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    try:
        sink_class(name)  # imported while the training process still prepares
    except Exception:  # said to the first run that needs it
        traceback.print_exc()
    run: Listening | None = None
    while (message := messages.get()) is not None:
        if "open" in message:
            run = _open(name, Path(message["open"]))
        elif "report" in message:
            _report(name, Path(message["report"]))
        elif message and run is not None:  # an empty one only starts the helper
            try:
                run.hear(message)
            except BaseException as error:  # a sink may raise anything
                _note(run.folder.path, name, error)
                _quit(name, messages)
    if run is not None and not run.ended:
        os._exit(0)  # its process was killed: a sink that finished it in good order would say what is not so


def _read(messages: Messages) -> None:
    for line in sys.stdin.buffer:
        messages.put(orjson.loads(line))
    messages.put(None)
    timer = threading.Timer(GRACE_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _open(name: str, folder: Path) -> "Listening | None":
    try:
        return Listening(name, folder)
    except BaseException as error:  # whatever a sink's constructor raises
        _note(folder, name, error)
        return None


def _report(name: str, study: Path) -> None:
    from plainres.tracking.report_run import send_report

    try:
        send_report(study)
        mark_path(study, name).unlink(missing_ok=True)
    except BaseException as error:  # as above
        _note(study, name, error)


def _note(folder: Path, name: str, error: BaseException) -> None:
    """Say in a run's folder why its sink has not all of it; as far as the disk allows."""
    try:
        mark_path(folder, name).write_text(f"{words_of(error)}\n\n{''.join(traceback.format_exception(error))}")
    except OSError:
        traceback.print_exc()


def _quit(name: str, messages: Messages) -> None:
    """End this process; runs that it was told of and will not come to are not left pending."""
    while not messages.empty():
        message = messages.get()
        if message and (folder := message.get("open") or message.get("report")):
            _note(Path(folder), name, RuntimeError("the run before this one took its sink down"))
    os._exit(1)


class Listening:
    """One attempt at a run, as its sink hears of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = RunFolder(folder)
        self.ended = False
        self._name = name
        self._behind = False
        self._offsets = dict.fromkeys(TABLES, 0)
        self._sent = dict.fromkeys(TABLES, 0)
        self._sink: Sink = sink_class(name)(self.folder.read(), folder)

    def hear(self, message: Message) -> None:
        """``{"covered": lengths}`` or ``{"end": true}``."""
        if "covered" in message:
            self._write(self._covered(message["covered"]))
            return
        record = self.folder.read()
        if record["status"] == Status.DIVERGED or self._behind:  # rows after the last checkpoint count now
            rows = read_rows(self.folder, record["layout"])
            self._write({table: rows[table][self._sent[table] :] for table in TABLES})
        self._sink.finish(record)
        self.ended = True
        mark_path(self.folder.path, self._name).unlink(missing_ok=True)

    def _covered(self, lengths: dict[str, int]) -> dict[str, list[dict[str, Any]]]:
        """The lines up to these lengths; none where the run has meanwhile ended, which has its own message."""
        found = {}
        try:
            for table in TABLES:
                with (self.folder.path / f"{table}.jsonl").open("rb") as file:
                    file.seek(self._offsets[table])
                    found[table] = parse_lines(file.read(lengths[table] - self._offsets[table]))
        except FileNotFoundError:
            self._behind = True
            return {table: [] for table in TABLES}
        self._offsets |= lengths
        return found

    def _write(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        if not any(rows.values()):
            return
        self._sink.write(*(rows[table] for table in TABLES))
        for table in TABLES:
            self._sent[table] += len(rows[table])


if __name__ == "__main__":
    main()
