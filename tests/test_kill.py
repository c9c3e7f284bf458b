"""kill -9 at random moments, then the same command again: the same bits as a run that nothing disturbed."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from plainres.store import Status, Study

COMMAND = [
    sys.executable, "-m", "run", "depth=8", "connection=residual", "model.width=16", "trainer.steps=400",
    "trainer.eval_every=20", "trainer.checkpoint_every=10", "probe.every=5", "trainer.device=cpu",
]  # fmt: skip


def finish(results: Path) -> None:
    subprocess.run([*COMMAND, f"results_dir={results}"], check=True, capture_output=True)


def start_and_kill(results: Path, after_rows: int) -> bool:
    """Kill the run once it has written some more lines; False when it ended before."""
    process = subprocess.Popen([*COMMAND, f"results_dir={results}"], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        lines = list(results.glob("single/runs/*/steps.jsonl"))
        if lines and lines[0].exists() and lines[0].read_bytes().count(b"\n") >= after_rows:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.002)
    return False


def content(results: Path) -> tuple[bytes, bytes, torch.Tensor]:
    (run,) = Study.open(results / "single").runs()
    assert run.status() is Status.COMPLETE
    assert {p.name for p in run.path.iterdir()} == {
        ".lock", "run.json", "steps.parquet", "layers.parquet", "checkpoint.pt"
    }  # fmt: skip
    weights = torch.load(run.checkpoint, weights_only=True)["parameters"]
    return (run.path / "steps.parquet").read_bytes(), (run.path / "layers.parquet").read_bytes(), weights


@pytest.mark.timeout(900)
@pytest.mark.slow  # one kill of a whole sweep is in launch/test_launchers.py
@pytest.mark.parametrize("kills", [15])
def test_killed_runs_resume_to_the_same_bits(kills: int, tmp_path: Path) -> None:
    finish(tmp_path / "undisturbed")
    rng = random.Random(7)
    moments = sorted(rng.randrange(1, 100) for _ in range(kills))
    killed = sum(start_and_kill(tmp_path / "killed", rows) for rows in moments)
    assert killed, "no kill arrived in time: make the run longer"
    (run,) = Study.open(tmp_path / "killed" / "single").runs()
    assert run.status() in (Status.STALE, Status.PLANNED, Status.COMPLETE)
    finish(tmp_path / "killed")
    steps, layers, weights = content(tmp_path / "killed")
    same_steps, same_layers, same_weights = content(tmp_path / "undisturbed")
    assert steps == same_steps and layers == same_layers and torch.equal(weights, same_weights)
