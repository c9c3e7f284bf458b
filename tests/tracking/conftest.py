"""W&B's offline runs, read back by W&B's own reader."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plainres.store import Study
from plainres.tracking import client
from plainres.tracking.wandb_file import run_folders

PLAINRES = [sys.executable, "-m", "run"]


@dataclass
class Offline:
    """What ``wandb leet inspect`` finds in the file of an offline run.

    Attributes:
        run: the record of its start: id, group, job_type, tags, project.
        config, summary: as they are at the end.
        history: step -> values that W&B did not add itself.
        exit_code: None where nobody finished it.
    """

    folder: Path
    run: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    exit_code: int | None = None

    def scalars(self, name: str) -> dict[int, float]:
        """step -> value of one metric."""
        return {step: values[name] for step, values in self.history.items() if name in values}

    def profile(self, metric: str, step: int) -> list[list[float]]:
        """Rows of the table behind a profile's chart."""
        path = self.history[step][f"profile/{metric}_table.path"]
        rows: list[list[float]] = json.loads((self.folder / "files" / path).read_text())["data"]
        return rows


def _read(file: Path) -> Offline:
    wandb = Path(sys.executable).parent / "wandb"
    command = [str(wandb), "leet", "inspect", "--json", str(file)]
    environment = os.environ | {"WANDB_ERROR_REPORTING": "false"}
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found = Offline(file.parent)
    for record in map(json.loads, filter(None, out.splitlines())):
        content = record[record["type"]]
        if record["type"] == "run":
            found.run, found.config = content, content.get("config", {}).get("update", {})
        elif record["type"] == "summary":
            found.summary |= content.get("update", {})
        elif record["type"] == "history":
            step = content["step"].get("num", 0) if "step" in content else content["item"]["_step"]
            assert step not in found.history, "one row a step"
            found.history[step] = {k: v for k, v in content["item"].items() if not k.startswith("_")}
        elif record["type"] == "exit":
            found.exit_code = content.get("exit_code", 0)
    return found


@pytest.fixture(scope="session")
def read_back() -> Callable[[Study, str], Offline]:
    """read_back(study, id): the one offline run of that id in the study's wandb folder."""

    def read(study: Study, run_id: str) -> Offline:
        (folder,) = run_folders(study.path / "wandb", run_id, "offline-run")
        return _read(folder / f"run-{run_id}.wandb")

    return read


@pytest.fixture
def helpers() -> Iterator[None]:
    """Helper processes of this test end with it."""
    yield
    client.close_helpers()


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """command("depth=4", ...): python -m run in an empty folder, with W&B offline unless ``environment`` says else."""

    def start(*overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"WANDB_MODE": "offline"} | environment
        return subprocess.run([*PLAINRES, *overrides], cwd=tmp_path, env=variables, capture_output=True, text=True)

    return start
