"""Every launcher trains the same bits, ends with a report, and stops politely."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plainres.store import Status, Study

TINY = ["-m", "connection=plain,residual", "depth=4", "model.width=8", "trainer.steps=30", "trainer.device=cpu"]


def sweep(cwd: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "run", *overrides], cwd=cwd, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_launchers_train_the_same_bits_and_a_failure_is_listed_last(tmp_path: Path) -> None:
    done = sweep(tmp_path, *TINY, "hydra/launcher=local", "study=pool")
    assert done.returncode == 0, done.stderr
    assert "runs: 2 complete" in done.stdout and not done.stderr
    plain, residual = sorted(Study.open(tmp_path / "results" / "pool").runs(), key=lambda r: r.name)
    undisturbed = [(plain.path / f"{table}.parquet").read_bytes() for table in ("steps", "layers")]

    # Again, with a run that cannot write: the other is skipped, the report still comes, the failure stands last.
    for name in ("steps.parquet", "layers.parquet", "checkpoint.pt"):
        (residual.path / name).unlink(missing_ok=True)
    residual.update(status=Status.PLANNED)
    done = fails(tmp_path, residual.name, "local")
    assert done.stdout.count("skipped (ended before)") == 1

    serial = Study.create(tmp_path / "results", "serial")
    fails(tmp_path, residual.name, "basic")
    same = serial.run_folder(plain.name)
    assert [(same.path / f"{table}.parquet").read_bytes() for table in ("steps", "layers")] == undisturbed
    assert not (tmp_path / "multirun").exists() and not (tmp_path / "outputs").exists()


def fails(place: Path, victim: str, launcher: str) -> subprocess.CompletedProcess[str]:
    """A sweep of which one run cannot write its rows."""
    study = {"local": "pool", "basic": "serial"}[launcher]
    folder = Study.open(place / "results" / study).run_folder(victim)
    (folder.path / "steps.jsonl").mkdir(parents=True)
    done = sweep(place, *TINY, f"study={study}", f"hydra/launcher={launcher}")
    assert done.returncode == 1
    assert "1 complete, 1 failed" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert victim in last and str(folder.traceback) in last
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.mark.timeout(300)
@pytest.mark.slow  # that an interrupt checkpoints is in test_pool.py
@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_ctrl_c_ends_a_sweep_with_one_line(tmp_path: Path, launcher: str) -> None:
    long = [*TINY, "trainer.steps=1000000", "trainer.eval_every=1000000", f"hydra/launcher={launcher}", "study=long"]
    command = [sys.executable, "-m", "run", *long]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("results/long/runs/*/progress.json")) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert out.strip().splitlines()[-1].startswith("plainres: interrupted (")
    statuses = {r.status() for r in Study.open(tmp_path / "results" / "long").runs()}
    assert statuses <= {Status.INTERRUPTED, Status.PLANNED} and Status.INTERRUPTED in statuses


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_sweep_leaves_nobody_training_and_the_same_command_resumes_it(tmp_path: Path) -> None:
    long = [*TINY, "trainer.steps=1000000", "trainer.eval_every=1000000", "study=long", "connection=plain"]
    process = subprocess.Popen([sys.executable, "-m", "run", *long], cwd=tmp_path, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(tmp_path.glob("results/long/runs/*/progress.json")) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    (run,) = Study.open(tmp_path / "results" / "long").runs()
    while run.status() is not Status.INTERRUPTED and time.monotonic() < until:
        time.sleep(0.1)
    assert run.status() is Status.INTERRUPTED and run.checkpoint.exists()
