"""Several settings or studies in one report: --with, the figures that lay them side by side, and what is said of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.cli import main
from plainres.report.build import build_report
from plainres.report.examine import ReportResult

RATES, DEPTHS, SEEDS = (0.01, 0.03, 0.1), (10, 50), (0, 1, 2, 100, 101)


@pytest.fixture(scope="module", autouse=True)
def _only_figures_across() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plainres.report.build.paper_figures", lambda tables: [])
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study at one learning rate, and one at three; their reports have the figures across settings alone."""
    where = tmp_path_factory.mktemp("across")
    own = FakeStudy(depths=DEPTHS, seeds=(0, 1, 2), steps=60, probes=False).write(where, "depth")
    rates = FakeStudy(depths=DEPTHS, seeds=SEEDS, lrs=RATES, steps=60, probes=False).write(where, "rates")
    return own, rates


@pytest.fixture(scope="module")
def result(folders: tuple[Path, Path]) -> ReportResult:
    return build_report(folders[0], beside=[folders[1]])


def test_the_document_names_the_studies_and_their_runs(result: ReportResult) -> None:
    document = json.loads((result.folder / "evidence.json").read_text())
    count = len(RATES) * len(DEPTHS) * len(SEEDS) * 2
    assert len(document["provenance"]["with"]["rates"]["run_ids"]) == count
    used = {i for c in document["claims"] for i in c["run_ids"]} - set(document["provenance"]["run_ids"])
    line = f"{len(used)} of the {count} runs of rates test claims about this study; "
    line += "that study was made by the same code and machine."
    assert line in document["limits"] and 0 < len(used) < count
    text = (result.folder / "evidence.md").read_text()
    assert f"read beside it: {count} runs of the study rates" in text


def test_a_best_rate_at_the_edge_is_among_the_limits_and_in_the_verdict(result: ReportResult) -> None:
    (found,) = [c for c in result.evidence.claims if c.id == "not_tuning"]
    assert found.caveat.startswith("At the edge of the rates tried (0.01, 0.03, 0.1)")
    text = (result.folder / "evidence.md").read_text()
    assert f"- not_tuning: {found.caveat}" in text
    assert "supported with a reservation (see the limits) is not_tuning" in result.evidence.conclusions[0].not_shown


def test_the_figure_shows_every_run_at_its_rate_and_marks_the_chosen_one(result: ReportResult) -> None:
    table = pd.read_csv(result.folder / "figures" / "error_by_learning_rate.csv")
    assert len(table) == len(RATES) * len(DEPTHS) * len(SEEDS) * 2
    runs = result.others[0].runs.rename(columns={"optimizer.lr": "x"}).astype({"x": float})
    both = table.merge(runs, on=["connection", "depth", "seed", "x"], how="left")
    assert np.allclose(both["train_error"], both["final_train_error"])
    for (arm, depth), part in table.groupby(["connection", "depth"]):
        losses = runs[(runs["connection"] == arm) & (runs["depth"] == depth) & (runs["seed"] >= 100)]
        best = losses.groupby("x")["final_train_loss"].mean()
        (chosen,) = part.loc[part["chosen"], "x"].unique()
        assert best[chosen] == best.min()


@pytest.mark.slow
def test_settings_stand_side_by_side(folders: tuple[Path, Path]) -> None:
    result = build_report(folders[1])
    assert {"settings", "error_by_learning_rate"} <= set(result.figures)
    table = pd.read_csv(result.folder / "figures" / "settings.csv")
    assert set(table["setting"]) == {f"lr={rate}" for rate in RATES}
    degradation = pd.read_csv(result.folder / "degradation.csv")
    both = table.merge(degradation, on=["setting", "connection", "depth"], suffixes=("", "_other"))
    assert len(both) == len(degradation) and np.allclose(both["train_error_mean"], both["train_error_mean_other"])


def test_runs_read_beside_a_study_decide_its_claims_and_nothing_else(result: ReportResult) -> None:
    figures = result.folder / "figures"
    assert (figures / "error_by_learning_rate.png").exists()
    alone = build_report(result.loaded.study.path)
    assert not list(figures.glob("error_by_learning_rate*")), "a report without the others takes their figures away"
    claims = {c.id: c for c in result.evidence.claims}
    before = {c.id: c for c in alone.evidence.claims}
    assert (str(before["not_tuning"].status), str(claims["not_tuning"].status)) == ("not_tested", "supported")
    for name in set(before) - {"not_tuning"}:
        assert claims[name] == before[name], name
    pd.testing.assert_frame_equal(alone.verdict.table, result.verdict.table)


def test_studies_that_are_read_already_or_do_not_fit_are_named(folders: tuple[Path, Path], tmp_path: Path) -> None:
    odd = FakeStudy(depths=(10, 50), seeds=(0,), lrs=(0.5,), steps=90, probes=False).write(tmp_path, "odd")
    said: list[str] = []
    result = build_report(folders[0], said.append, [folders[0], odd, odd])
    assert [line.endswith(": is read already") for line in said] == [True, True] and len(result.others) == 1
    text = (result.folder / "evidence.md").read_text()
    assert "None of the 4 runs of odd enters a claim" in text


def test_a_study_that_is_not_there_gets_one_line(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report", str(folders[0]), "--with", str(folders[1]), "--with", str(folders[0].parent / "nothing")])
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "nothing" in error and "Traceback" not in error
