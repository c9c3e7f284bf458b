"""``plainres.load``: tables equal to what is on disk, published reports, and no PyTorch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import plainres
from fake_study import FakeStudy, probe_steps
from plainres.report.build import build_report

PUBLISHED = Path(__file__).parents[2] / "results" / "published" / "depth-digits-mlp"


def run_json(folder: Path, start: str) -> dict:
    (path,) = (folder / "runs").glob(f"{start}-*")
    return json.loads((path / "run.json").read_text())


def test_runs_are_those_on_disk(study: plainres.Study, folder: Path) -> None:
    assert len(study.runs) == 24 and study.problems == [] and study.path == folder and study.name == "depth"
    row = study.runs[study.runs["run_id"] == run_json(folder, "mlp-plain-d006-s2")["run_id"]].iloc[0]
    assert (row["connection"], row["depth"], row["seed"], row["status"]) == ("plain", 6, 2, "complete")
    assert row["final_train_error"] == run_json(folder, "mlp-plain-d006-s2")["final"]["train_error"]
    assert repr(study) == f"<Study depth: 24 runs (23 complete, 1 diverged) in {folder}>"


def test_curves_have_a_row_for_every_evaluation(study: plainres.Study, folder: Path) -> None:
    curves = study.curves()
    assert set(curves["run_id"]) == set(study.runs["run_id"]) and not curves.duplicated(["run_id", "step"]).any()
    one = curves[(curves["connection"] == "plain") & (curves["depth"] == 6) & (curves["seed"] == 2)]
    raw = pd.read_parquet(next((folder / "runs").glob("mlp-plain-d006-s2-*")) / "steps.parquet")
    raw = raw[(raw["kind"] == "eval") & (raw["metric"] == "train_error")]
    assert list(one["step"]) == list(raw["step"]) and list(one["train_error"]) == list(raw["value"])
    assert {"val_error", "train_loss", "train_error_running"} <= set(curves)


def test_layers_have_a_row_for_every_member_and_step(study: plainres.Study) -> None:
    rows = study.layers("grad_norm")
    one = rows[(rows["connection"] == "residual") & (rows["depth"] == 8) & (rows["seed"] == 0)]
    layer = one[one["scope"] == "layer"]
    assert sorted(layer["step"].unique()) == probe_steps(60, 60)
    assert set(layer["layer_index"]) == set(range(8)) and len(layer) == 8 * len(probe_steps(60, 60))
    assert layer.loc[layer["layer_index"] == 0, "layer_name"].unique().tolist() == ["stem.op.weight"]
    with pytest.raises(plainres.UserError, match=r"metric=gradnorm: must be one of .*block_gain.*grad_norm"):
        study.layers("gradnorm")


def test_the_verdict_table_by_hand(study: plainres.Study) -> None:
    table = study.degradation().set_index(["connection", "depth"])
    assert table.loc[("plain", 8), "n_diverged"] == 1
    assert table.loc[("plain", 6), "train_error_mean"] == pytest.approx(0.06 + 0.0015)
    assert table.loc[("residual", 6), "gap_mean"] == pytest.approx(0.0615 - 0.0125)


def test_a_study_without_probes_says_so(tmp_path: Path) -> None:
    bare = plainres.load(FakeStudy(depths=(4,), seeds=(0,), steps=60, probes=False).write(tmp_path))
    with pytest.raises(plainres.UserError, match=r"metric=grad_norm: must be measured; these runs have no probes"):
        bare.layers("grad_norm")


def test_a_lost_table_is_one_line(tmp_path: Path) -> None:
    path = FakeStudy(depths=(4,), seeds=(0,), steps=60).write(tmp_path)
    for table in path.glob("runs/*/steps.parquet"):
        table.write_text("garbled")
    with pytest.raises(plainres.UserError, match=r"steps table cannot be read .*\(and 1 more\)$"):
        plainres.load(path).curves()


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_no_study_is_one_line(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(plainres.UserError, match="give a"):
        plainres.load(path)


@pytest.mark.parametrize("value", [3, None, ["results/depth"]])
def test_what_is_no_path_is_one_line(value: Any) -> None:
    with pytest.raises(plainres.UserError, match=r"^load\(.*\): must be the path of a study's folder"):
        plainres.load(value)


def test_a_published_report_has_its_tables_and_no_rows(study: plainres.Study) -> None:
    published = plainres.load(PUBLISHED)
    assert len(published.runs) == 40 and set(published.runs["depth"]) == {10, 20, 50, 100}
    table = published.degradation().set_index(["connection", "depth"])
    assert 100 * table.loc[("plain", 50), "gap_n"] >= 0 and 100 * table.loc[("residual", 50), "gap_mean"] > 60
    assert published.evidence()["degradation"].status == "supported"
    for ask in (published.curves, lambda: published.layers("grad_norm"), published.report):
        with pytest.raises(plainres.UserError, match="is a published report and holds no"):
            ask()
    with pytest.raises(plainres.UserError, match="holds no run folders"):
        published.evidence(beside=[study])
    with pytest.raises(plainres.UserError, match="cannot be read beside another study"):
        study.evidence(beside=[PUBLISHED])


@pytest.mark.slow
def test_the_runs_of_a_published_report_compare_as_those_on_disk(folder: Path, tmp_path: Path, monkeypatch) -> None:
    """runs.csv is text: what is equal on disk must be equal in it."""
    monkeypatch.setattr("plainres.report.build.paper_figures", lambda tables: ())
    copy = FakeStudy(depths=(4, 6), seeds=range(3), steps=60, probes=False, lrs=(0.03, 0.1)).write(tmp_path / "a")
    build_report(copy)
    (copy / "report").rename(tmp_path / "published")
    ask = {"metric": "train_loss", "a": 6, "b": 4, "over": "depth", "connection": "plain", "setting": "lr=0.1"}
    on_disk, published = plainres.load(copy).compare(**ask), plainres.load(tmp_path / "published").compare(**ask)
    assert published == on_disk and published.n == 3


def test_reading_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys, plainres; assert not {'numpy', 'pandas', 'torch'} & set(sys.modules);"
        "study = plainres.load(sys.argv[1]); study.curves(); study.layers('grad_norm'); plainres.evidence(study);"
        "study.compare('train_error', 'plain', 'residual', depth=8);"
        "bad = {'torch', 'matplotlib', 'hydra'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'laod'; it has Evidence, Study"):
        plainres.laod  # noqa: B018 - the access is what is tested
    assert set(plainres.__all__) <= set(dir(plainres))
