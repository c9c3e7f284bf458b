"""Folders -> table: every broken folder is named once, and the rest is still done."""

import json
import shutil
from pathlib import Path

import orjson
import pytest

from fake_study import CHANCE, FakeStudy
from plainres.analysis.load import identity_names, load_study
from plainres.analysis.settings import setting_order
from plainres.analysis.tables import load_layers, load_steps
from plainres.errors import UserError
from plainres.store import Status

SMALL = FakeStudy(depths=(4, 8), seeds=(0, 1), steps=60)


def folders(study: Path) -> list[Path]:
    return sorted((study / "runs").iterdir())


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "run.json"
    path.write_bytes(orjson.dumps(json.loads(path.read_text()) | changes))


def test_one_row_per_run(tmp_path: Path) -> None:
    loaded = load_study(SMALL.write(tmp_path))
    runs = loaded.runs
    assert len(runs) == 8 and not loaded.problems
    assert list(runs["depth"]) == [4] * 4 + [8] * 4
    assert set(identity_names()) <= set(runs.columns)
    assert set(runs["setting"]) == {"all"}
    assert runs["final_train_error"].notna().all() and set(runs["chance_error"]) == {CHANCE}


def test_broken_folders_are_named_and_left_out(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    empty, garbled, listed, newer, stranger, *good = folders(study)
    shutil.rmtree(empty)
    empty.mkdir()
    (garbled / "run.json").write_bytes(b'{"half": ')
    (listed / "run.json").write_bytes(b"[]")
    rewrite(newer, format=99)
    rewrite(stranger, status="resting")
    loaded = load_study(study)
    assert len(loaded.runs) == len(good) == 3
    assert len(loaded.problems) == 5
    for folder, problem in zip((empty, garbled, listed, newer, stranger), loaded.problems, strict=True):
        assert folder.name in problem and "\n" not in problem


def test_a_copied_folder_counts_once(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    first = folders(study)[0]
    shutil.copytree(first, first.with_name(f"{first.name} (Kopie) ä[b]"))
    loaded = load_study(study)
    assert len(loaded.runs) == 8
    assert [("copy of run" in p, "Kopie" in p) for p in loaded.problems] == [(True, True)]


def test_an_older_run_has_defaults_for_younger_fields(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    folder = folders(study)[0]
    identity = json.loads((folder / "run.json").read_text())["identity"]
    del identity["optimizer.nesterov"]
    rewrite(folder, identity=identity)
    assert set(load_study(study).runs["setting"]) == {"all"}


def test_settings_name_only_what_varies(tmp_path: Path) -> None:
    runs = load_study(FakeStudy(depths=(4,), seeds=(0,), steps=60, lrs=(0.03, 0.1)).write(tmp_path)).runs
    assert sorted(set(runs["setting"])) == ["lr=0.03", "lr=0.1"]


def test_one_name_for_two_connections_is_told_apart(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4,), seeds=(0, 1), connections=("residual",), steps=60).write(tmp_path)
    folder = folders(study)[0]
    identity = json.loads((folder / "run.json").read_text())["identity"]
    rewrite(folder, identity=identity | {"connection.shortcut": "none"})
    labels = set(load_study(study).runs["connection"])
    assert labels == {"residual(shortcut=identity)", "residual(shortcut=none)"}


def test_a_study_without_runs(tmp_path: Path) -> None:
    study = FakeStudy(depths=()).write(tmp_path)
    loaded = load_study(study)
    assert loaded.runs.empty and not loaded.problems


def test_not_a_study(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a plainres study"):
        load_study(tmp_path)


def test_tables_carry_their_run(tmp_path: Path) -> None:
    loaded = load_study(FakeStudy(depths=(4,), seeds=(0,), steps=60).write(tmp_path))
    steps, problems = load_steps(loaded, loaded.runs, "eval", ["train_error"])
    assert not problems
    assert set(steps["metric"]) == {"train_error"} and set(steps["connection"]) == {"plain", "residual"}
    wanted = {run_id: [0, 4] for run_id in loaded.runs["run_id"]}
    layers, problems = load_layers(loaded, loaded.runs, [("layer", "grad_norm")], wanted)
    assert not problems
    assert set(layers["step"]) == {0, 4} and set(layers["scope"]) == {"layer"}
    assert len(layers) == 2 * 2 * 4  # runs, steps, layers


def test_unreadable_tables_are_named(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4,), seeds=(0, 1), steps=60).write(tmp_path)
    bad = folders(study)[0]
    (bad / "steps.parquet").write_bytes(b"PAR1 no")
    loaded = load_study(study)
    steps, problems = load_steps(loaded, loaded.runs, "eval", ["train_error"])
    assert len(problems) == 1 and bad.name in problems[0] and "\n" not in problems[0]
    assert steps["run_id"].nunique() == 3


def test_rows_of_a_run_that_is_not_finished(tmp_path: Path) -> None:
    status = {("plain", 4, 0): Status.INTERRUPTED}
    loaded = load_study(FakeStudy(depths=(4,), seeds=(0,), steps=60, status=status).write(tmp_path))
    steps, _ = load_steps(loaded, loaded.runs, "eval", ["train_error"])
    assert steps.groupby("connection", observed=True)["step"].max().to_dict() == {"plain": 20, "residual": 60}


def test_a_number_beside_null_stays_what_it_is(tmp_path: Path) -> None:
    path = FakeStudy(depths=(4,), seeds=(0, 1), steps=60, probes=False).write(tmp_path)
    record = next(path.glob("runs/*/run.json"))
    found = json.loads(record.read_text())
    found["identity"]["data.size"] = 32
    record.write_text(json.dumps(found))
    assert {repr(v) for v in load_study(path).runs["data.size"]} == {"32", "None"}


def test_settings_stand_in_order_of_their_numbers():
    labels = ["steps=1200", "steps=600", "steps=600", "lr=0.03, steps=60", "lr=1e-05", "lr=0.003, steps=600", "all"]
    assert setting_order(labels) == [
        "all", "lr=1e-05", "lr=0.003, steps=600", "lr=0.03, steps=60", "steps=600", "steps=1200",
    ]  # fmt: skip
