"""Run as a process of its own: one run, disturbed at each of its writes in turn, then given again.

    python every_write.py PLACE writes SHARE   dies at every SHARE-th write; and finds the disk full from there on
    python every_write.py PLACE disks STEP     on disks of STEP KiB, 2 STEP, 3 STEP, … (in a mount namespace)
    python every_write.py PLACE readonly 0     in folders that are mounted read-only (in a mount namespace)

Each attempt is a fork, so that torch is imported once; this process itself trains nothing. told.json says for every
fault where it was, how the attempt ended, and whether the second one has the undisturbed run's bits.
"""

import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from plainres import progress
from plainres.config import compose
from plainres.data import load
from plainres.environment import describe
from plainres.errors import UserError
from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.report.build import build_report
from plainres.schema import RunConf
from plainres.store import RunFolder, Study

SETTINGS = [
    "depth=4", "connection=residual", "model.width=6", "trainer.steps=8", "trainer.eval_every=4",
    "trainer.eval_early=false", "trainer.checkpoint_every=4", "schedule.warmup_steps=2", "probe.every=4",
    "trainer.device=cpu", "tracker=none",
]  # fmt: skip
ROOM = "64m"
REPORT_ROOM_KIB = (50, 1000, 3000)  # the page alone is some 5 MiB


class Points:
    """Counts the writes of this process below a folder, and disturbs one.

    A disk that is full stays so: from its moment on nothing can be made or written, only renamed and deleted.
    """

    def __init__(self, place: Path, fault: str, at: int) -> None:
        self.seen: list[str] = []
        self._place, self._fault, self._at = str(place), fault, at

    def meet(self, what: str, path: object, half: Callable[[], object] = lambda: None, needs_room: bool = True) -> None:
        """One write. ``half`` does a part of it, which is what a fault in its middle leaves."""
        if not str(path).startswith(self._place):
            return
        self.seen.append(f"{what} {Path(str(path)).name}")
        now = len(self.seen)
        if self._fault == "kill" and now == self._at:
            half()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "full" and now >= self._at and needs_room:
            if now == self._at:
                half()
            raise OSError(errno.ENOSPC, "No space left on device")

    def watch(self) -> None:
        """Put this between the process and its disk."""
        fsync, opened = os.fsync, pathlib.Path.open

        def watched_fsync(fd: int) -> None:
            self.meet("fsync", Path(f"/proc/self/fd/{fd}").readlink())
            fsync(fd)

        def watched_open(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if mode in ("r", "rb"):
                return opened(path, mode, *args, **kwargs)
            self.meet("open", path)
            return Writing(opened(path, mode, *args, **kwargs), path, self)

        os.fsync, pathlib.Path.open = watched_fsync, watched_open  # type: ignore[assignment]  # a patch
        for name, needs_room in {"replace": False, "unlink": False, "touch": True, "mkdir": True}.items():
            setattr(pathlib.Path, name, self._watched(name, getattr(pathlib.Path, name), needs_room))

    def _watched(self, name: str, call: Callable[..., Any], needs_room: bool) -> Callable[..., Any]:
        def watched(path: Path, *args: Any, **kwargs: Any) -> Any:
            self.meet(name, path, needs_room=needs_room)
            return call(path, *args, **kwargs)

        return watched


class Writing:
    """A file whose writes are met; the half of one that a fault leaves is on the disk."""

    def __init__(self, file: Any, path: Path, points: Points) -> None:
        self._file, self._path, self._points = file, path, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Writing":
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def write(self, data: Any) -> Any:
        self._points.meet("write", self._path, lambda: self._half(data))
        return self._file.write(data)

    def _half(self, data: Any) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()


@cache
def conf() -> RunConf:
    return compose(SETTINGS)


def warm() -> None:
    """Do once what every child would do again, all but training: a process that has trained must not fork."""

    load(conf().data)
    describe("cpu", conf().trainer.threads)
    with TemporaryDirectory() as place:
        prepare([replace(conf(), results_dir=place)])


def attempt(place: Path, fault: str = "", at: int = 0) -> dict[str, Any]:
    """Check and train the run in a child; ``ended`` is its status, the one line of a refusal, or ``killed``."""
    points = Points(place, fault, at)

    def act() -> dict[str, Any]:
        progress.PROGRESS_SECONDS = 1e12  # what is written by the clock is not the same writes twice
        points.watch()
        try:
            study, (spec,) = prepare([replace(conf(), results_dir=str(place))])
            outcome = execute(spec, study, lambda: False)
        except UserError as error:
            return {"ended": "refused", "message": str(error), "seen": points.seen}
        return {"ended": str(outcome.status), "message": outcome.message, "seen": points.seen}

    return in_child(act)


def report(place: Path) -> dict[str, Any]:
    """Write the report in a child."""

    def act() -> dict[str, Any]:
        try:
            build_report(place / "single")
        except UserError as error:
            return {"ended": "refused", "message": str(error)}
        return {"ended": "complete", "message": ""}

    return in_child(act)


def in_child(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        told = {"ended": "raised"}
        try:
            torch.set_num_threads(1)
            told = act()
        except BaseException as error:
            told = {"ended": "raised", "message": repr(error)}
        finally:
            os.write(writing, json.dumps(told).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else {"ended": "killed", "message": "", "seen": []}


def the_run(place: Path) -> RunFolder:
    (folder,) = Study.open(place / "single").runs()
    return folder


def content(place: Path) -> dict[str, Any]:
    """What two folders of the run have in common; ``files`` are those of the study too."""
    folder = the_run(place)
    weights = torch.load(folder.checkpoint, weights_only=True)["parameters"]
    return {
        "files": sorted(str(p.relative_to(place)) for p in place.rglob("*")),
        "tables": [(folder.path / f"{table}.parquet").read_bytes() for table in ("steps", "layers")],
        "weights": weights.numpy().tobytes(),
        "final": folder.read()["final"],
    }


def tried(place: Path, where: str, first: dict[str, Any], undisturbed: dict[str, Any]) -> dict[str, Any]:
    """What became of a fault, and of the same command after it."""
    again = attempt(place)
    same = again["ended"] == "complete" and content(place) == undisturbed
    return {"where": where, "ended": first["ended"], "message": first["message"], "again": again["ended"], "same": same}


def at_every_write(place: Path, share: int) -> list[dict[str, Any]]:
    seen = attempt(place / "undisturbed")["seen"]
    undisturbed, told = content(place / "undisturbed"), []
    for fault in ("kill", "full"):
        for at in range(1, len(seen) + 1, share):
            here = place / f"{fault}-{at}"
            told.append({"fault": fault, **tried(here, seen[at - 1], attempt(here, fault, at), undisturbed)})
    return told


def on_small_disks(place: Path, step: int) -> list[dict[str, Any]]:
    """Real disks of growing size, up to one that is large enough; then reports on disks too small for them."""
    attempt(place / "undisturbed")
    undisturbed, disk, told = content(place / "undisturbed"), place / "disk", []
    disk.mkdir()
    for size in range(step, 1 << 20, step):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)], check=True)
        here = disk / "results"
        first = attempt(here)
        resize(disk, ROOM)
        told.append({"fault": "disk", **tried(here, f"{size} KiB", first, undisturbed)})
        if first["ended"] == "complete":
            break
        subprocess.run(["umount", str(disk)], check=True)
    for more in REPORT_ROOM_KIB:
        shutil.rmtree(here / "single" / "report", ignore_errors=True)
        found = os.statvfs(disk)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize >> 10
        resize(disk, f"{used + more}k")
        first = report(here)
        partial = [p.name for p in here.rglob("*.partial")]
        resize(disk, ROOM)
        again = report(here)["ended"]
        same = again == "complete" and not partial and not list(here.rglob("*.partial"))
        told.append({"fault": "report", "where": f"report with {more} KiB left", **first, "again": again, "same": same})
    return told


def in_read_only_folders(place: Path, _: int) -> list[dict[str, Any]]:
    """The results, then the folder of the run alone; then the report of a study that is read-only."""
    attempt(place / "undisturbed")
    undisturbed, results, told = content(place / "undisturbed"), place / "results", []
    results.mkdir()
    with read_only(results):
        first = attempt(results)
    told.append(tried(results, "results", first, undisturbed))
    folder = the_run(results)
    folder.update(status="planned")
    folder.checkpoint.unlink()
    with read_only(folder.path):
        first = attempt(results)
    told.append(tried(results, "run", first, undisturbed))
    with read_only(results):
        first = report(results)
    told.append({"where": "report", **first, "again": report(results)["ended"], "same": True})
    return told


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def main(place: Path, what: str, number: int) -> None:
    warm()
    act = {"writes": at_every_write, "disks": on_small_disks, "readonly": in_read_only_folders}[what]
    (place / "told.json").write_text(json.dumps(act(place, number)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
