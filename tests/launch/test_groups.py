"""Seeds that a sweep trains together: workers that die, launchers that cannot, and the command line."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plainres.errors import UserError
from plainres.grid import expand
from plainres.job import Outcome
from plainres.launch import plan as planning
from plainres.launch.groups import execute_group, refuse_groups
from plainres.launch.plan import make_plan
from plainres.launch.pool import worker_pool
from plainres.launch.settings import LocalConf
from plainres.launch.sweep import Sweep
from plainres.launch.timing import Speed
from plainres.schema import RunConf
from plainres.store import RunFolder, Status, Study

Make = Callable[..., RunConf]
pytestmark = pytest.mark.timeout(300)


def run_pool(sweep: Sweep) -> list[Outcome]:
    with worker_pool(LocalConf(jobs=1), 1, "cpu", sweep.specs[0].conf.data) as run_jobs:
        return run_jobs(sweep)


def kill_after_checkpoint(folder: RunFolder) -> threading.Thread:
    """kill -9 the worker of a run once it has written its first checkpoint."""

    def wait() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if folder.checkpoint.exists():
                os.kill(folder.read_progress()["pid"], signal.SIGKILL)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def content(folder: RunFolder) -> tuple[bytes, bytes, torch.Tensor]:
    weights = torch.load(folder.checkpoint, weights_only=True)["parameters"]
    return (folder.path / "steps.parquet").read_bytes(), (folder.path / "layers.parquet").read_bytes(), weights


@pytest.mark.slow  # an interrupted group is in tests/test_replicas.py
def test_killed_replicas_go_on_to_the_same_bits(tiny: Make, tmp_path: Path) -> None:
    # Three seeds in groups of two: one of them has no company.
    confs = [tiny("residual", seed=s, steps=300, eval_every=150, checkpoint_every=30, replicas=2) for s in range(3)]
    sweep = Sweep.prepare(confs)
    thread = kill_after_checkpoint(sweep.study.run_folder(sweep.specs[1].name))
    outcomes = run_pool(sweep)
    thread.join()
    assert [o.status for o in outcomes] == [Status.FAILED, Status.FAILED, Status.COMPLETE]
    assert all("died" in o.message for o in outcomes[:2])
    assert [(o.status, o.skipped) for o in run_pool(sweep)] == [
        (Status.COMPLETE, False), (Status.COMPLETE, False), (Status.COMPLETE, True),
    ]  # fmt: skip
    other = Study.create(tmp_path, "undisturbed")
    execute_group(sweep.specs, other, lambda: False)
    for spec in sweep.specs:
        mine, undisturbed = content(sweep.study.run_folder(spec.name)), content(other.run_folder(spec.name))
        assert mine[:2] == undisturbed[:2] and torch.equal(mine[2], undisturbed[2])


def test_launchers_without_groups_refuse(tiny: Make) -> None:
    refuse_groups([tiny()])
    with pytest.raises(UserError, match=r"^trainer\.replicas=2: must be 1 with this launcher; .*launcher=local"):
        refuse_groups([tiny(), tiny(replicas=2)])


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_basic_launcher_trains_nothing_with_replicas(command: str, tmp_path: Path) -> None:
    words = ["hydra/launcher=basic", "trainer.replicas=2", "trainer.device=cpu", f"results_dir={tmp_path}"]
    if command == "plan":
        with pytest.raises(UserError, match="1 with this launcher"):
            make_plan(expand(["seed=0,1", *words]), lambda line: None)
        return
    given = [sys.executable, "-m", "run", "-m", "seed=0,1", *words]
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 1 and "trainer.replicas=2: must be 1 with this launcher" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_plan_counts_groups(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = Speed(start=8, update=1, probe=0, evaluation=0, batchstats=0, checkpoint=0, end=0)
    monkeypatch.setattr(planning, "measure", lambda spec: speed)  # 8 + 12 updates: 20 s a run
    confs = [tiny(seed=s, replicas=3, checkpoint_every=100) for s in range(4)]
    grid = replace(expand(["trainer.device=cpu"]), confs=confs, launcher=LocalConf(jobs=4))
    plan = make_plan(grid, lambda line: None)
    assert (plan.work_seconds, plan.wall_seconds) == (80, 60)


@pytest.mark.slow
def test_a_sweep_from_the_command_line(tmp_path: Path) -> None:
    words = [
        "depth=4,6", "connection=plain,residual", "seed=0,1,2", "trainer.replicas=3", "trainer.steps=30",
        "model.width=8", "trainer.device=cpu", "study=together", "tracker=none", f"results_dir={tmp_path}",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "run", "-m", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    study = Study.open(tmp_path / "together")
    records = [folder.read() for folder in study.runs()]
    assert [r["status"] for r in records] == ["complete"] * 12
    assert {r["environment"]["engine"] for r in records} == {"stacked replicas"}
    assert len({r["pair_id"] for r in records}) == 6
    assert (study.report_dir / "runs.csv").read_text().count("\n") == 13
    assert "12/12" in done.stdout

    again = subprocess.run([sys.executable, "-m", "run", *words[3:], "depth=4"], capture_output=True, text=True)
    assert again.returncode == 0 and "ended before, skipped" in again.stdout and "trains alone" in again.stdout
