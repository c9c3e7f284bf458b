"""``plainres.run``: the ids and bits of the command line, mistakes, failures, Ctrl-C, and a process left as it was."""

import io
import logging
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from rich.console import Console

import plainres
import run as command_line
from plainres.launch.sweep import Sweep
from plainres.report.terminal import make_console
from plainres.store import RunFolder

GRID = ["depth=4,6", "connection=plain,residual", "seed=0"]
SMALL = ["model.width=6", "trainer.steps=8", "trainer.eval_every=4", "schedule.warmup_steps=2", "probe.every=4"]
SMALL += ["trainer.device=cpu", "trainer.batchstats_every=4"]
HERE = ["hydra/launcher=basic"]  # in this process: no worker has to import torch
BRANCH = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width, bias={bias})

    def forward(self, x):
        return self.fc(x)
"""


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user stands in an empty folder. Reports, which take most of the time, are not written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sweep, "_report", lambda self, outcomes, began: True)
    return tmp_path


def tables(study: Path) -> dict[str, bytes]:
    return {str(p.relative_to(study)): p.read_bytes() for p in sorted(study.glob("runs/*/*.parquet"))}


def test_it_trains_what_the_command_line_trains(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = plainres.run([*GRID, *SMALL, *HERE, "study=tiny"], results_dir=at_home / "it's here", quiet=True)
    assert study.path == at_home / "it's here" / "tiny"
    assert len(study.runs) == 4 and set(study.runs["status"]) == {"complete"}
    monkeypatch.setattr(sys, "argv", ["run", "-m", *GRID, *SMALL, *HERE, "study=tiny"])
    command_line.main()
    found, wanted = tables(study.path), tables(at_home / "results" / "tiny")
    assert len(wanted) == 8 and found == wanted, "names hold the run ids, and both tables every metric"


def process_state() -> dict[str, object]:
    cudnn = torch.backends.cudnn
    return {
        "cwd": Path.cwd(), "environ": dict(os.environ), "path": list(sys.path), "argv": list(sys.argv),
        "main": (sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)),
        "threads": torch.get_num_threads(), "dtype": torch.get_default_dtype(),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.allow_tf32),
        "precision": torch.get_float32_matmul_precision(),
        "draws": (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())),
        "hydra": (GlobalHydra.instance().hydra, HydraConfig.instance().cfg),
        "logging": (logging.root.level, list(logging.root.handlers), logging.getLogger("mine").disabled),
        "logger": {k: repr(v) for k, v in vars(logging.getLogger("plainres")).items() if k != "_cache"},
        "own modules": [name for name in sys.modules if name.startswith("my_branch")],
    }  # fmt: skip


@pytest.fixture
def unusual_settings(monkeypatch: pytest.MonkeyPatch):
    """Every setting that a run sets stands at another value, as in a user's own process."""
    logging.getLogger("mine")
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    yield
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


@pytest.mark.parametrize("ends", ["well", "refused", "stopped"])
@pytest.mark.usefixtures("unusual_settings")
def test_nothing_of_the_process_is_changed(at_home: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    (at_home / "my_branch.py").write_text(BRANCH.format(bias=False))
    words = ["depth=4", "model.branch=my_branch:Mine", *SMALL, *HERE, "study=tiny"]
    monkeypatch.syspath_prepend(at_home / "other")
    before = process_state()
    if ends == "well":
        assert plainres.run(words, quiet=True).runs["status"].tolist() == ["complete"]
    elif ends == "refused":
        with pytest.raises(plainres.UserError, match=r"^depth=5: "):
            plainres.run([*words, "depth=5"], quiet=True)
    else:
        monkeypatch.setattr("plainres.launch.single.execute", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            plainres.run(words, quiet=True)
    assert process_state() == before


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_branch_that_is_written_again_is_another_run(at_home: Path) -> None:
    """A cell with %%writefile, and the user's own import of it: what is checked is what the file says now."""
    words = ["depth=4", "model.branch=my_branch:Mine", *SMALL, *HERE, "study=tiny"]
    file = at_home / "my_branch.py"
    file.write_text(BRANCH.format(bias=False))
    sys.path.insert(0, str(at_home))
    import my_branch

    try:
        first = plainres.run(words, quiet=True)
        file.write_text(BRANCH.format(bias=True))
        both = plainres.run(words, quiet=True)
        assert sys.modules["my_branch"] is my_branch
    finally:
        sys.path.remove(str(at_home))
        del sys.modules["my_branch"]
    assert len(first.runs) == 1 and both.runs["model.branch_code"].nunique() == 2
    without, with_bias = sorted(both.runs["num_parameters"])
    assert with_bias == without + 6, "one block of width 6"


def test_a_library_below_the_folder_stays_imported(at_home: Path) -> None:
    """Who stands in their home folder may have Python itself below it."""
    (at_home / "lib").mkdir()
    (at_home / "lib" / "deeper_library.py").write_text("")
    text = f"import sys\nsys.path.append({str(at_home / 'lib')!r})\nimport deeper_library\n"
    (at_home / "my_branch.py").write_text(text + BRANCH.format(bias=False))
    try:
        plainres.run(["depth=4", "model.branch=my_branch:Mine", *SMALL, *HERE, "study=tiny"], quiet=True)
        assert "deeper_library" in sys.modules and "my_branch" not in sys.modules
    finally:
        sys.modules.pop("deeper_library", None)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("depth=4", "overrides=depth=4: must be a list of settings, such as ['depth=4']"),
        ([4], "overrides: 4 is no text"),
        (["-m", "depth=4"], "-m: a flag of the command line"),
        (["results_dir=x"], "results_dir=x: is given as plainres.run([...], results_dir=...)"),
        (["model.branch=__main__:Mine"], "%%writefile my_branch.py) and give model.branch=my_branch:Mine"),
        (["dpeth=4"], "dpeth: no such setting; did you mean depth"),
        (["+sweep=deth"], "did you mean +sweep=depth?"),
        (["depth=5"], "depth=5"),
        (["depth=4", "model.branch=nowhere:Mine"], "cannot import nowhere"),
        (["hydra/sweeper=basic", "depth=4"], "hydra/sweeper: plainres.run has a sweeper of its own"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(at_home: Path, overrides: list[str], line: str) -> None:
    given = overrides if isinstance(overrides, str) or overrides == [4] else [*overrides, *HERE]
    with pytest.raises(plainres.UserError) as error:
        plainres.run(given, quiet=True)
    assert line in str(error.value) and "\n" not in str(error.value)
    assert not list(at_home.iterdir())


def test_another_thread_is_refused(at_home: Path) -> None:
    said = []

    def call() -> None:
        try:
            plainres.run(["depth=4"])
        except plainres.UserError as error:
            said.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert said == ["plainres.run: must be called in the main thread, which alone hears Ctrl-C"]


def test_failed_runs_are_warned_of_and_come_back(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RunFolder) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("plainres.job.compact", broken)
    with pytest.warns(RuntimeWarning, match=r"1 of 1 runs did not end: mlp-plain-d004-s0-\w+: failed: .*"):
        study = plainres.run(["depth=4", *SMALL, *HERE, "study=tiny"], quiet=True)
    assert study.runs["status"].tolist() == ["failed"] and study.runs["error"].notna().all()


def test_a_report_that_fails_is_an_error(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "_report", lambda self, outcomes, began: False)
    with pytest.raises(plainres.UserError, match="the report could not be written, the runs are safe"):
        plainres.run(["depth=4", *SMALL, *HERE, "study=tiny"], quiet=True)


def test_quiet_says_nothing_and_else_plain_lines(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["depth=4", *SMALL, *HERE, "study=tiny"]
    plainres.run(words, quiet=True)
    assert capsys.readouterr() == ("", "")
    plainres.run(words)
    shown = capsys.readouterr().out
    assert shown.startswith("plainres: checking 1 job\n") and "\x1b" not in shown
    log = (at_home / "results" / "tiny" / "sweep.log").read_text()
    assert "start: plainres.run depth=4 model.width=6" in log


class Cell(io.StringIO):
    """A notebook cell's output, which says that it is a terminal."""

    def isatty(self) -> bool:
        return True


Cell.__module__ = "ipykernel.iostream"


def test_a_notebook_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Cell())
    assert Console().is_terminal, "what rich makes of it"
    assert not make_console().is_terminal and not make_console().is_jupyter


def test_a_folder_of_the_users_settings(at_home: Path) -> None:
    (at_home / "confs" / "connection").mkdir(parents=True)
    (at_home / "confs" / "connection" / "mine.yaml").write_text("name: mine\nshortcut: identity\n")
    words = [f"hydra.searchpath=[file://{at_home}/confs]", "connection=mine", "depth=4", *SMALL, *HERE, "study=tiny"]
    assert plainres.run(words, quiet=True).runs["connection"].tolist() == ["mine"]


SCRIPT = """
import plainres

study = plainres.run({words}, results_dir={folder!r})
print("status:", *study.runs["status"])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_script_without_a_main_guard_trains_in_workers(tmp_path: Path) -> None:
    """Python's spawn would run such a script again in every worker; bits are those of this process's command line."""
    words = [*GRID, *SMALL, "study=tiny"]
    (tmp_path / "script.py").write_text(SCRIPT.format(words=words, folder="from_script"))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("status: complete complete complete complete\n") and not done.stderr
    command = [sys.executable, "-m", "run", "-m", *words]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=250)
    assert tables(tmp_path / "from_script" / "tiny") == tables(tmp_path / "results" / "tiny")


STOPPED = """
import os, signal, threading, time, plainres
from pathlib import Path

def stop():
    while not list(Path("results/tiny/runs").glob("*/progress.json")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=stop, daemon=True).start()
words = ["depth=4,6", "model.width=6", "trainer.steps=1000000", "trainer.device=cpu", "study=tiny"]
try:
    plainres.run(words)
except KeyboardInterrupt:
    print("stopped:", *sorted(plainres.load("results/tiny").runs["status"]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stop_button_leaves_checkpoints(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("stopped: interrupted")
    assert "the same command goes on from here" in done.stdout
