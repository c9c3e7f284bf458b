"""A small sweep given as a user gives it, disturbed at a chosen moment, and what two studies must have in common."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from plainres import checkpoint
from plainres.report.status import print_status
from plainres.store import RunFolder, Status, Study

INJECTED = Path(__file__).parent / "faults" / "injected"
COMMAND = [
    sys.executable, "-m", "run", "-m", "connection=plain,residual", "depth=4,6", "model.width=8", "trainer.steps=150",
    "trainer.eval_every=15", "trainer.batchstats_every=75", "trainer.checkpoint_every=5", "probe.every=5",
    "trainer.device=cpu", "tracker=none", "study=small", "hydra.launcher.jobs=2",
]  # fmt: skip
TEN = ["start"] * 2 + ["train"] * 4 + ["checkpoint"] * 2 + ["compaction", "report"]  # phases of the kills of a life
LIVES = 5
RUN_FILES = {".lock", "run.json", "steps.parquet", "layers.parquet", "checkpoint.pt"}
STUDY_FILES = {".lock", ".report.lock", "study.json", "sweep.log", "runs", "report"}
WHEN_IT_WAS = ("seconds_", "started", "finished", "peak_memory")  # columns of runs.csv


@dataclass(frozen=True)
class Fault:
    """A signal in the n-th call of a function on a path: see injected/sitecustomize.py."""

    signal: str
    who: str
    when: str
    call: str
    pattern: str
    n: int

    @property
    def environment(self) -> dict[str, str]:
        words = (self.signal, self.who, self.when, self.call, self.pattern, str(self.n))
        sent = Path(tempfile.mkdtemp()) / "sent"
        return {"PLAINRES_FAULT": " ".join(words), "PLAINRES_FAULT_ONCE": str(sent)}


def start(results: Path, fault: Fault | None = None, command: list[str] = COMMAND) -> "subprocess.Popen[str]":
    """The command, in a group of processes of its own as a shell's job is."""
    environment = dict(os.environ)
    if fault:
        paths = [str(INJECTED), os.environ.get("PYTHONPATH", "")]
        environment |= fault.environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.Popen(
        [*command, f"results_dir={results}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=environment, preexec_fn=_hear_interrupts,
    )  # fmt: skip


def _hear_interrupts() -> None:
    """A shell's background job ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(results: Path) -> str:
    """The same command to its end; what it says."""
    process = start(results)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    return out


def send_when(
    process: "subprocess.Popen[str]", due: Callable[[], bool], number: int = signal.SIGKILL, who: str = "group"
) -> bool:
    """Send a signal to the command's group, or its leader, once something is so; False when it ended before."""
    while process.poll() is None:
        if due():
            (os.killpg if who == "group" else os.kill)(process.pid, number)
            return True
        time.sleep(0.002)
    return False


def after(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def rows_written(results: Path) -> int:
    """Lines of the runs that train now; 0 while none does."""
    count = 0
    for lines in results.glob("small/runs/*/steps.jsonl"):
        try:
            count += lines.read_bytes().count(b"\n")
        except FileNotFoundError:  # it ended just now
            continue
    return count


def random_write(rng: random.Random, phase: str) -> Fault:
    """A kill at a random write of a phase."""
    when = rng.choice(["before", "after"])
    if phase == "checkpoint":
        call = rng.choice(["fsync", "replace"])
        return Fault("SIGKILL", "group", when, call, r"\.checkpoint\.pt\..*\.partial$", rng.randrange(1, 20))
    if phase == "compaction":
        call, pattern = rng.choice(
            [("fsync", r"\.(steps|layers)\.parquet\..*\.partial$"), ("replace", r"\.(steps|layers)\.parquet\."),
             ("unlink", r"(steps|layers)\.jsonl$")]
        )  # fmt: skip
        return Fault("SIGKILL", "group", when, call, pattern, rng.randrange(1, 3))
    assert phase == "report"
    # Of the process that writes the tables, or of one of those that draw: whichever gets there first.
    call, n = rng.choice(["fsync", "replace"]), rng.randrange(1, 12)
    return Fault("SIGKILL", "group", when, call, r"/report/.*\.partial$", n)


def check_between(results: Path) -> None:
    """What holds after every kill: no file lies, and whoever asks gets an answer."""
    place = results / "small"
    if not (place / "study.json").exists():
        return
    print_status(place)
    for folder in Study.open(place).runs():
        if not folder.exists():
            continue
        assert folder.status() in (Status.PLANNED, Status.STALE, Status.INTERRUPTED, Status.COMPLETE)
        assert not folder.checkpoint.exists() or checkpoint.read(folder.checkpoint) is not None
        for table in folder.path.glob("*.parquet"):
            pd.read_parquet(table)


def check_same(results: Path, undisturbed: Path) -> None:
    """Rows, weights, tables and figures of two studies are the same bytes, and no other file is there."""
    one, other = (Study.open(place / "small") for place in (results, undisturbed))
    assert {p.name for p in one.path.iterdir()} == STUDY_FILES
    mine, theirs = list(one.runs()), list(other.runs())
    assert [run.name for run in mine] == [run.name for run in theirs]
    for a, b in zip(mine, theirs, strict=True):
        check_same_run(a, b)
    files = [sorted(str(p.relative_to(s.report_dir)) for p in s.report_dir.rglob("*")) for s in (one, other)]
    assert files[0] == files[1]
    for name in files[0]:
        paths = [s.report_dir / name for s in (one, other)]
        if name == "runs.csv":
            tables = [pd.read_csv(path) for path in paths]
            kept = [c for c in tables[0] if not c.startswith(WHEN_IT_WAS)]
            pd.testing.assert_frame_equal(tables[0][kept], tables[1][kept])
        elif name.endswith((".csv", ".png", ".pdf")):
            assert paths[0].read_bytes() == paths[1].read_bytes(), name


def check_same_run(a: RunFolder, b: RunFolder) -> None:
    """Two folders of one run, complete: the same tables and weights, every row once, nothing beside them."""
    assert a.status() is b.status() is Status.COMPLETE
    assert {p.name for p in a.path.iterdir()} == RUN_FILES
    for table, key in (("steps", ["step", "kind", "metric"]), ("layers", ["step", "scope", "layer_index", "metric"])):
        paths = [f.path / f"{table}.parquet" for f in (a, b)]
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert not pd.read_parquet(paths[0]).duplicated(key).any()
    contents = [torch.load(f.checkpoint, weights_only=True) for f in (a, b)]
    assert torch.equal(contents[0]["parameters"], contents[1]["parameters"])
    assert a.read()["final"] == b.read()["final"]
