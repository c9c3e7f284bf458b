"""Ctrl-C and SIGTERM in each phase: exit code 130, one line, nothing half-written; the same command goes on."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import run
from plainres.launch.stopping import terminated_as_interrupted
from plainres.report.status import print_status
from plainres.store import RunFolder, Study
from small_sweep import (
    Fault,
    after,
    check_between,
    check_same,
    check_same_run,
    finish,
    rows_written,
    send_when,
    start,
)

SIGNALS = [signal.SIGINT, signal.SIGTERM]
PHASES = {
    "start": "plainres.launch.prepare.load",
    "train": "plainres.train.Training.update",
    "evaluate": "plainres.train.evaluate",
}
ONE = [
    "depth=4", "connection=residual", "model.width=6", "trainer.steps=8", "trainer.eval_every=2", "probe.every=2",
    "schedule.warmup_steps=2", "trainer.device=cpu", "trainer.checkpoint_every=3", "tracker=none",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _hear_interrupts() -> Iterator[None]:
    """Also where these tests are a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def command(monkeypatch: pytest.MonkeyPatch, results: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["run", *words, f"results_dir={results}"])
    run.main()


def signal_in(monkeypatch: pytest.MonkeyPatch, target: str, number: int, nth: int) -> None:
    """Send this process a signal at the beginning of the n-th call of a function."""
    place, _, name = target.rpartition(".")
    owner = resolve_name(place)
    original, calls = getattr(owner, name), 0

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            os.kill(os.getpid(), number)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, disturbed)


def the_run(results: Path) -> RunFolder:
    (folder,) = Study.open(results / "single").runs()
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    results = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patched:
        command(patched, results, *ONE)
    return the_run(results)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_an_import_is_finished_before_a_command_ends(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of numpy in a process fails later, in numpy's words."""
    (tmp_path / "half.py").write_text(
        f"import os\nos.kill(os.getpid(), {int(number)})\nfor _ in range(9): pass\nWHOLE = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        assert importlib.import_module("half").WHOLE
        time.sleep(10)
        pytest.fail("not interrupted")
    sys.modules.pop("half")


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
@pytest.mark.parametrize("phase", PHASES)
def test_a_run_ends_with_one_line_and_goes_on(
    phase: str, number: int, undisturbed: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as stopped:
        signal_in(patched, PHASES[phase], number, 1 if phase == "start" else 3)
        command(patched, tmp_path, *ONE)
    assert stopped.value.code == 130
    said = capsys.readouterr()
    assert said.err == "plainres: interrupted\n"
    assert not list(tmp_path.rglob("*.partial"))
    if phase == "start":
        assert not list(tmp_path.iterdir())
    else:
        assert the_run(tmp_path).status() == "interrupted" and the_run(tmp_path).checkpoint.exists()
        step = the_run(tmp_path).read()["stopped_at_step"]
        assert f"plainres: stopped at step {step} (in " in said.out
        assert said.out.endswith("the same command goes on from its checkpoint\n")
        print_status(tmp_path / "single")
        assert f"  {step}/8" in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patched:
        command(patched, tmp_path, *ONE)
    check_same_run(the_run(tmp_path), undisturbed)


@pytest.mark.usefixtures("pool_in_this_process")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)], ids=lambda n: n.name
)
def test_a_report_that_is_interrupted_leaves_no_half_of_a_file(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signal_in(monkeypatch, "plainres.report.build.report_page", number, 1)  # others draw the figures meanwhile
    with pytest.raises(SystemExit) as stopped:
        command(monkeypatch, tmp_path, "-m", *ONE)
    assert stopped.value.code == 130
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "plainres: interrupted (1 complete); the same command goes on from here"
    assert shown.err == "" and not list(tmp_path.rglob("*.partial"))
    assert (tmp_path / "single" / "report" / "audit.csv").exists()


def begun(process: "subprocess.Popen[str]") -> bool:
    """Whether ``main`` has been reached: from there on SIGTERM has a handler."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def starting(process: "subprocess.Popen[str]", seconds: float) -> Callable[[], bool]:
    """Due so many seconds after ``main`` has been reached: Hydra and torch are imported, jobs checked."""
    due: Callable[[], bool] | None = None

    def is_due() -> bool:
        nonlocal due
        if due is None and begun(process):
            due = after(seconds)
        return due is not None and due()

    return is_due


REPORTING = r"/report/.*\.partial$"
WAYS = {"Ctrl-C": (signal.SIGINT, "group"), "kill": (signal.SIGTERM, "leader"), "service": (signal.SIGTERM, "group")}


@pytest.fixture(scope="module")
def undisturbed_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("undisturbed")
    finish(results)
    return results


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_a_sweep_ends_with_one_line_in_every_phase(way: str, undisturbed_sweep: Path, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes of its job; ``kill`` means one; a service that ends means all."""
    rng = random.Random(way)
    for phase in ["start", "start", "train", "train", "report"]:
        out, err = disturbed(tmp_path, phase, way, rng)
        assert "Traceback" not in out + err
        assert err in ("", "plainres: interrupted\n")
        assert (err or out).splitlines()[-1].startswith("plainres: interrupted"), (phase, out)
        assert not list(tmp_path.rglob("*.partial"))
        check_between(tmp_path)
    finish(tmp_path)
    check_same(tmp_path, undisturbed_sweep)


def disturbed(results: Path, phase: str, way: str, rng: random.Random) -> tuple[str, str]:
    """Give the command, send the signal in a phase, and wait for its end; what it said."""
    number, who = WAYS[way]
    if phase == "report":
        process = start(results, Fault(number.name, who, "before", "fsync", REPORTING, rng.randrange(1, 9)))
    else:
        process, more = start(results), rows_written(results) + rng.randrange(1, 10)
        due = starting(process, rng.uniform(0, 4)) if phase == "start" else lambda: rows_written(results) >= more
        assert send_when(process, due, number, who)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (phase, out, err)
    return out, err
