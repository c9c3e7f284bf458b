"""Where a report's figures are drawn: here, one after the other, or in processes beside this one.

Drawing is most of a report's time and needs nothing but a figure's CSV, so that it can go on elsewhere while tables are
computed here. The bytes are the same in both ways.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from plainres.figures.canvas import NothingToDraw
from plainres.figures.save import csv_bytes, save_csv
from plainres.figures.styles import REPORT, STYLES
from plainres.own_class import import_path

if TYPE_CHECKING:
    import pandas as pd

Done = Callable[[str], None]  # called with "" once the files are there, or with why there is nothing to draw


class Drawing:
    """A context in which figures are drawn; at its end the processes are gone, whatever happened."""

    def __init__(self, processes: int = 0) -> None:
        """
        Args:
            processes: how many draw beside this one; with fewer than 2 figures are drawn here.
        """
        self._pool = ThreadPoolExecutor(processes) if processes > 1 else None
        self._own = threading.local()
        self._drawers: list[subprocess.Popen[str]] = []
        self._pending: list[tuple[Future[str], Done]] = []

    def __enter__(self) -> "Drawing":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)  # what is being drawn is drawn to its end: no half of a file
            for drawer in self._drawers:
                drawer.communicate()

    def save(self, kind: str, table: "pd.DataFrame", folder: Path, name: str, done: Done) -> None:
        """Write ``name``.csv, .pdf and .png in the report's style, now or by the end of ``finish``.

        Args:
            kind: which figure, a key of ``gallery.KINDS``.
            table: what it draws.
            folder: made if it is not there.
            name: of the files, without suffix.
            done: called from this thread, for one figure after the other in the order of the calls.
        """
        data = csv_bytes(table)
        if self._pool is None:
            done(draw_one(kind, data, folder, name, REPORT.name))
        else:
            task = {"kind": kind, "csv": data.decode(), "folder": str(folder), "name": name, "style": REPORT.name}
            self._pending.append((self._pool.submit(self._ask, task), done))

    def finish(self) -> None:
        """Wait for all figures.

        Raises:
            OSError: one could not be written.
            RuntimeError: one could not be drawn, or a process was killed.
        """
        for future, done in self._pending:
            done(future.result())
        self._pending = []

    def _ask(self, task: dict[str, str]) -> str:
        """In a thread: have the process of this thread draw; why there was nothing to draw, or ""."""
        drawer: subprocess.Popen[str] | None = getattr(self._own, "drawer", None)
        if drawer is None:
            drawer = self._own.drawer = self._start()
        assert drawer.stdin is not None and drawer.stdout is not None
        try:
            drawer.stdin.write(json.dumps(task) + "\n")
            drawer.stdin.flush()
            line = drawer.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the process that drew {task['name']} has been killed")
        answer: dict[str, Any] = json.loads(line)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["text"])
        if "trace" in answer:
            raise RuntimeError(f"{task['name']} could not be drawn: {answer['trace']}")
        return str(answer["nothing"])

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "plainres.figures.drawer"]
        drawer = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | import_path(),
        )
        self._drawers.append(drawer)
        return drawer


def draw_one(kind: str, data: bytes, folder: Path, name: str, style: str) -> str:
    """Draw a figure from its CSV; why there is nothing to draw, or ""."""
    try:
        save_csv(kind, data, folder, name, STYLES[style])
    except NothingToDraw as nothing:
        return str(nothing)
    return ""
