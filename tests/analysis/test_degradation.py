"""The verdict: pairing, divergence, onset, and everything that can be missing."""

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from fake_study import CHANCE, NUM_TRAIN, FakeStudy
from plainres.analysis.degradation import MARGIN, Verdict, judge
from plainres.analysis.load import load_study
from plainres.store import Status


def verdict(tmp_path: Path, **options: Any) -> Verdict:
    settings: dict[str, Any] = {"depths": (10, 20), "seeds": (0, 1, 2), "steps": 60, "probes": False} | options
    return judge(load_study(FakeStudy(**settings).write(tmp_path)).runs)


def cell(found: Verdict, depth: int, connection: str, setting: str = "all") -> dict[str, Any]:
    t = found.table
    rows = t[(t["depth"] == depth) & (t["connection"] == connection) & (t["setting"] == setting)].to_dict("records")
    assert len(rows) == 1
    return dict(rows[0])


def errors(depth: int, **arms: list[float]) -> dict[tuple[str, int, int], float]:
    return {(arm, depth, seed): value for arm, values in arms.items() for seed, value in enumerate(values)}


PLAIN, RESIDUAL = [0.5, 0.6, 0.55], [0.1, 0.05, 0.2]


def test_gap_and_degradation_are_paired_by_seed(tmp_path: Path) -> None:
    shallow = errors(10, plain=[0.1, 0.0, 0.05], residual=[0.0, 0.1, 0.0])
    found = verdict(tmp_path, errors=shallow | errors(20, plain=PLAIN, residual=RESIDUAL))
    plain = cell(found, 20, "plain")
    expected = stats.ttest_rel(PLAIN, [0.1, 0.0, 0.05]).confidence_interval(0.95)
    assert plain["degradation_low"] == pytest.approx(expected.low, abs=1e-7)
    assert plain["degradation_high"] == pytest.approx(expected.high, abs=1e-7)
    assert (plain["degradation_n"], plain["degradation_from_depth"], plain["gap_flag"]) == (3, 10, "plain itself")
    residual = cell(found, 20, "residual")
    expected = stats.ttest_rel(PLAIN, RESIDUAL).confidence_interval(0.95)
    assert (residual["gap_n"], residual["gap_low"]) == (3, pytest.approx(expected.low, abs=1e-7))
    assert residual["train_error_sd"] == pytest.approx(stats.tstd(RESIDUAL), abs=1e-7)
    assert cell(found, 10, "plain")["degradation_flag"] == "shallowest"


def test_zero_spread_has_an_interval(tmp_path: Path) -> None:
    row = cell(verdict(tmp_path, errors=errors(20, plain=[0.5] * 3, residual=[0.0] * 3)), 20, "residual")
    assert row["gap_flag"] == "no spread"
    assert row["gap_low"] == pytest.approx(0.5 - 1 / NUM_TRAIN)
    assert row["gap_high"] == pytest.approx(0.5 + 1 / NUM_TRAIN)
    assert row["train_error_low"] == pytest.approx(-1 / NUM_TRAIN)


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    found = verdict(tmp_path, seeds=(0,))
    row = cell(found, 20, "residual")
    assert row["gap_flag"] == row["train_error_flag"] == "n = 1" and row["gap_low"] != row["gap_low"]
    assert found.onsets["onset_depth"].isna().all()
    assert all("undecided" in words for words in found.onsets["verdict"])


def test_diverged_runs_count_at_chance(tmp_path: Path) -> None:
    found = verdict(tmp_path, status={("plain", 20, 1): Status.DIVERGED}, errors=errors(20, plain=[0.5, 0.1, 0.5]))
    row = cell(found, 20, "plain")
    assert (row["n"], row["n_diverged"], row["n_left_out"]) == (3, 1, 0)
    assert row["train_error_mean"] == pytest.approx((0.5 + CHANCE + 0.5) / 3)
    assert found.left_out.empty


@pytest.mark.parametrize("status", [Status.FAILED, Status.OOM, Status.INTERRUPTED, Status.PLANNED, Status.RUNNING])
def test_unfinished_runs_are_left_out_by_name(tmp_path: Path, status: Status) -> None:
    found = verdict(tmp_path, status={("residual", 20, 1): status})
    assert (cell(found, 20, "residual")["n"], cell(found, 20, "residual")["n_left_out"]) == (2, 1)
    assert cell(found, 20, "residual")["gap_n"] == 2
    left = found.left_out.set_index("connection")["why"].to_dict()
    assert "no result at the budget" in left["residual"]
    assert "no finished run of the other arm" in left["plain"]


def test_learning_rates_are_never_mixed(tmp_path: Path) -> None:
    found = verdict(tmp_path, lrs=(0.03, 0.1))
    assert len(found.table) == 8
    assert {cell(found, 20, "residual", f"lr={lr}")["gap_n"] for lr in ("0.03", "0.1")} == {3}


def test_onset_needs_the_whole_interval_above_the_margin(tmp_path: Path) -> None:
    over, at = [0.02, 0.021, 0.022], [MARGIN - 0.005, MARGIN, MARGIN + 0.02]
    found = verdict(tmp_path, depths=(10, 20, 50), errors=errors(20, plain=at) | errors(50, plain=over))
    onsets = found.onsets.set_index("connection")
    assert onsets.loc["plain", "onset_depth"] == 50
    assert onsets.loc["plain", "verdict"] == "degrades from depth 50 (undecided: 20)"
    assert onsets.loc["residual", "verdict"] == "no degradation up to depth 50"


def test_a_wide_interval_is_no_evidence_of_absence(tmp_path: Path) -> None:
    found = verdict(tmp_path, seeds=(0, 1), errors=errors(20, plain=[0.5, 0.8]))
    onsets = found.onsets.set_index("connection")
    assert onsets["onset_depth"].isna().all()
    assert onsets.loc["plain", "verdict"].startswith("undecided at depth 20")


def test_a_missing_arm(tmp_path: Path) -> None:
    found = verdict(tmp_path, connections=("residual",))
    assert cell(found, 20, "residual")["gap_flag"] == "n = 0"
    assert len(found.left_out) == 6


def test_plain_alone_lacks_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, connections=("plain",)).left_out.empty


def test_missing_shallow_seed_leaves_its_pair_out(tmp_path: Path) -> None:
    found = verdict(tmp_path, missing=[("plain", 10, 2)])
    assert cell(found, 20, "plain")["degradation_n"] == 2
    assert cell(found, 10, "residual")["gap_n"] == 2


def test_no_finished_run(tmp_path: Path) -> None:
    every = {(arm, 10, 0): Status.PLANNED for arm in ("plain", "residual")}
    found = verdict(tmp_path, depths=(10,), seeds=(0,), status=every)
    assert list(found.table["n"]) == [0, 0] and len(found.left_out) == 2


def test_no_run_at_all(tmp_path: Path) -> None:
    found = verdict(tmp_path, depths=())
    assert found.table.empty and found.onsets.empty and "gap_mean" in found.table
