"""The benchmark runs and writes what it says it does. How fast things are is for `make bench`, on a quiet machine."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from plainres.grid import expand

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sections_give_rows_with_targets(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    command = [sys.executable, "benchmarks/bench.py", "--rounds", "1", "--share", "0.01", "--json", str(file)]
    command += ["--only", "step", "probes", "images"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert set(found["machine"]) == {"device", "cores", "torch", "python", "load", "date", "commit"}
    assert file.with_suffix(".md").read_text().count("\n") == len(found["rows"]) + 4
    rows = {row["name"]: row for row in found["rows"]}
    for case in ("mlp d100", "cnn d50", "cifar_resnet d20", "vit d12"):
        row = rows[f"{case}, probe=off / minimal loop"]
        assert row["met"] is (row["value"] >= float(row["target"].split()[1])) and row["unit"] == "x"
        assert row["value"] > 0
    assert all(math.isfinite(row["value"]) for row in rows.values())
    for part in ("default probes", "parameter metrics", "block and forward", "gradient norm and update", "pad, crop"):
        assert any(name.startswith(part) and row["met"] in (True, False) for name, row in rows.items()), part


def test_the_sweeps_of_the_gpu_check_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings in every mode that this machine has; none of them is trained."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    check = importlib.import_module("gpu_check")
    for name, words in check.MODES.items():
        if check.CUDA or name not in check.ONLY_CUDA:
            confs = expand([*check.SWEEP[1:], *words]).confs
            assert len(confs) == 4 and {conf.trainer.steps for conf in confs} == {check.STEPS}


@pytest.mark.slow
def test_a_device_that_is_not_there_is_one_line() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    command = [sys.executable, "benchmarks/bench.py", "--device", "cuda"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no CUDA device here" in done.stderr
