"""tracker=wandb: one offline run a job, holding what our own files hold. Nothing here reaches for the network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plainres.options import TrackerMode
from plainres.rows import read_table
from plainres.store import Study
from plainres.tracking import wandb_mode

COMMAND = [
    sys.executable, "-m", "run", "-m", "connection=plain,residual", "depth=4", "model.width=8", "trainer.steps=30",
    "trainer.device=cpu", "trainer.checkpoint_every=10", "tracker=wandb", "tracker.mode=offline", "study=tracked",
    "hydra/launcher=basic",
]  # fmt: skip


@pytest.mark.slow
def test_offline_runs_hold_what_the_files_hold(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")} | {
        "WANDB_ERROR_REPORTING": "false"
    }
    subprocess.run(COMMAND, cwd=tmp_path, env=environment, check=True, capture_output=True)
    study = Study.open(tmp_path / "results" / "tracked")
    assert len(list(study.runs())) == 2
    for run in study.runs():
        record = run.read()
        (sink,) = (study.path / "wandb").glob(f"offline-run-*-{record['run_id']}")
        history = logged(sink / f"run-{record['run_id']}.wandb", environment)
        for metric in ("train_error", "val_loss", "lr"):
            table = read_table(run, "steps", record["layout"]).to_pandas().query("metric == @metric")
            ours = dict(zip(table["step"].tolist(), table["value"].tolist(), strict=True))
            assert {row["step"]: row[metric] for row in history if metric in row} == ours


def logged(path: Path, environment: dict[str, str]) -> list[dict[str, float]]:
    wandb = Path(sys.executable).parent / "wandb"
    command = [str(wandb), "leet", "inspect", "--json", str(path)]
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    records = [json.loads(line) for line in out.splitlines()]
    rows = [record["history"]["item"] for record in records if "history" in record]
    assert rows, out[:500]
    return rows


def test_mode_auto_never_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert wandb_mode(TrackerMode.auto) == "offline"
    assert wandb_mode(TrackerMode.online) == "online"


def test_none_imports_nothing_of_wandb() -> None:
    code = "import sys, plainres.job; print('wandb' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
