"""Networks built from trained ones in the analysis: labels, tables, outcomes, and the claim in every status."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fake_study import NUM_TRAIN, FakeStudy
from plainres.analysis.audit import audit_table
from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim
from plainres.analysis.construction import Outcome, construction_curves, construction_table, outcome_of, with_outcomes
from plainres.analysis.curves import curves
from plainres.analysis.degradation import judge
from plainres.analysis.evidence import gather
from plainres.analysis.evidence_construction import solution_exists
from plainres.analysis.load import OUTCOME, LoadedStudy, load_study
from plainres.analysis.rules import ClaimStatus
from plainres.analysis.settings import add_labels, arm_order, built_of, is_built, legend_words
from plainres.store import Status

S, C, U, N = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNDECIDED, ClaimStatus.NOT_TESTED
SEEDS = (0, 1, 2)
LOST = {("plain", 50, seed): 0.6 + seed / 100 for seed in SEEDS}
FAKE = FakeStudy(depths=(10, 50), seeds=SEEDS, steps=60, probes=False, starts=((10, 0.0), (10, 0.1)), built_errors=LOST)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedStudy:
    return with_outcomes(load_study(FAKE.write(tmp_path_factory.mktemp("construction"))))


@pytest.fixture(scope="module")
def two_rates(tmp_path_factory: pytest.TempPathFactory) -> LoadedStudy:
    fake = replace(FAKE, lrs=(0.01, 0.1), starts=((10, 0.0),))
    return with_outcomes(load_study(fake.write(tmp_path_factory.mktemp("rates"))))


# Labels.


def test_labels_are_no_connections_and_no_settings(loaded: LoadedStudy) -> None:
    assert arm_order(loaded.runs["connection"]) == [
        "plain", "plain(start=10)", "plain(start=10, noise=0.1)",
        "residual", "residual(start=10)", "residual(start=10, noise=0.1)",
    ]  # fmt: skip
    assert set(loaded.runs["setting"]) == {"all"}
    assert Cells.of(loaded.runs, "all").connections == ["residual"]
    assert not is_built(Cells.of(loaded.runs, "all").runs).any()


@pytest.mark.parametrize(
    ("label", "arm", "words"),
    [
        ("plain(start=10)", "plain", "plain, built from depth 10"),
        ("residual(alpha=0.5, start=4, noise=0.1)", "residual(alpha=0.5)", None),
        ("plain(start=10, noise=1e-05)", "plain", "plain, built from depth 10, noise 1e-05"),
    ],
)
def test_a_label_says_what_it_was_made_of(label: str, arm: str, words: str | None) -> None:
    found = built_of(label)
    assert found is not None and found.arm == arm
    assert words is None or legend_words(label) == words


@pytest.mark.parametrize("label", ["plain", "residual(alpha=0.5)", "start", "plain(restart=10)"])
def test_a_label_from_scratch_says_nothing(label: str) -> None:
    assert built_of(label) is None and legend_words(label) == label


def test_parts_of_a_connection_and_its_start_stand_in_one_bracket(loaded: LoadedStudy) -> None:
    runs = loaded.runs.drop(columns=["setting", "connection"])
    scaled = runs[(runs["connection.name"] == "residual") & is_built(runs)].head(1)
    both = pd.concat([runs, scaled.assign(**{"connection.alpha": 0.5, "run_id": "new"})], ignore_index=True)
    assert add_labels(both)["connection"].iloc[-1] == "residual(alpha=0.5, start=10)"


# Tables.


def test_a_built_network_is_measured_against_its_source(loaded: LoadedStudy) -> None:
    table = judge(loaded.runs).table.set_index(["connection", "depth"])
    row = table.loc[("plain(start=10)", 50)]
    errors = [0.6 + seed / 100 for seed in SEEDS]
    assert row["degradation_from_depth"] == 10 and row["degradation_n"] == 3
    assert row["degradation_mean"] == pytest.approx(np.mean(errors)) == pytest.approx(row["train_error_mean"])
    assert row["gap_n"] == 0 and row["gap_flag"] == "not from scratch"
    scratch = table.loc[("residual", 50)]
    assert scratch["gap_n"] == 3 and scratch["degradation_from_depth"] == 10


def test_other_arms_are_judged_as_without_built_networks(loaded: LoadedStudy) -> None:
    with_, without = judge(loaded.runs), judge(loaded.runs[~is_built(loaded.runs)])
    arms = with_.table[with_.table["connection"].isin(["plain", "residual"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(arms, without.table)
    pd.testing.assert_frame_equal(with_.onsets, without.onsets)
    assert with_.left_out.empty


def test_a_pair_has_one_start(loaded: LoadedStudy) -> None:
    pairs = audit_table(loaded.runs, loaded.records)
    counts = pairs.groupby(["connection", "depth"]).size().to_dict()
    arms = [("residual", 10), ("residual", 50), ("residual(start=10)", 50), ("residual(start=10, noise=0.1)", 50)]
    assert counts == dict.fromkeys(arms, 3)
    starts = loaded.runs.set_index("run_id")[["start.depth", "start.noise"]]
    for pair in pairs.to_dict("records"):
        assert list(starts.loc[pair["run_id"]]) == list(starts.loc[pair["plain_run_id"]])


@pytest.mark.parametrize(
    ("errors", "diverged", "outcome"),
    [
        ([0.01, 0.02, 0.01], False, Outcome.KEPT),
        ([0.01, 0.11, 0.02], False, Outcome.KEPT),  # an excursion of exactly 10 points, 1 point at the end
        ([0.01, 0.1101, 0.01], False, Outcome.REGAINED),
        ([0.9, 0.5, 0.01], False, Outcome.REGAINED),  # thrown out by noise at the start
        ([0.01, 0.01, 0.0201], False, Outcome.LOST),
        ([0.01, 0.9, 0.9], False, Outcome.LOST),
        ([0.01, 0.01], True, Outcome.LOST),
        ([0.0, 0.0], False, Outcome.KEPT),
    ],
)
def test_outcomes_by_hand(errors: list[float], diverged: bool, outcome: Outcome) -> None:
    assert outcome_of(0.01, pd.Series(errors), diverged) is outcome


def test_the_table_of_constructed_runs(loaded: LoadedStudy) -> None:
    table, problems = construction_table(loaded)
    assert len(table) == 12 and not problems
    row = table[(table["connection"] == "plain(start=10)") & (table["seed"] == 1)].iloc[0]
    assert (row["start_depth"], row["start_noise"], row["outcome"]) == (10, 0.0, "lost")
    assert row["worst_train_error"] == row["final_train_error"] == pytest.approx(0.61) and row["worst_step"] == 60
    assert row["first_away_step"] == 10  # 0.61·10/60 is 10.2 points
    assert row["max_output_difference"] == 3e-5 and row["source"] in set(loaded.runs["run_id"])
    assert set(table.loc[table["connection"].str.startswith("residual"), "outcome"]) == {"kept"}


def test_runs_that_have_not_ended_or_lost_their_rows_have_no_outcome(tmp_path: Path) -> None:
    status = {("plain", 50, 0): Status.INTERRUPTED, ("plain", 50, 1): Status.PLANNED, ("plain", 50, 2): Status.DIVERGED}
    study = replace(FAKE, status=status, starts=((10, 0.0),)).write(tmp_path)
    found = with_outcomes(load_study(study)).runs
    plain = found[found["connection"] == "plain(start=10)"].set_index("seed")[OUTCOME]
    assert plain[2] == "lost" and plain[[0, 1]].isna().all()
    victim = next((study / "runs").glob("mlp-residual-d050-from010-s0-*")) / "steps.parquet"
    victim.write_bytes(b"")
    broken = with_outcomes(load_study(study))
    assert len(broken.problems) == 1 and victim.parent.name in broken.problems[0]


def test_curves_stand_beside_those_from_scratch(loaded: LoadedStudy) -> None:
    drawn, _ = curves(loaded, loaded.runs)
    shown = construction_curves(drawn)
    assert set(shown["depth"]) == {50} and set(shown["metric"]) == {"train_error"}
    assert set(shown["connection"]) == set(loaded.runs["connection"])
    assert construction_curves(drawn[~drawn["connection"].str.contains("start")]).empty


# The claim.


Change = Callable[[pd.DataFrame], pd.DataFrame]


def found_in(loaded: LoadedStudy, change: Change = lambda runs: runs, setting: str = "all") -> Claim:
    runs = change(loaded.runs.copy())
    return solution_exists("study", Cells.of(runs, setting), "residual", runs)


def with_difference(values: list[float]) -> Change:
    """Constructed plain networks that err by so much (a fraction) more than their sources, by seed."""

    def change(runs: pd.DataFrame) -> pd.DataFrame:
        exact = is_built(runs) & (runs["start.noise"] == 0)
        more = runs["seed"].map(dict(enumerate(values)))
        return runs.assign(construction_train_error=runs["construction_train_error"].where(~exact, more))

    return change


def test_the_claim_supported(loaded: LoadedStudy) -> None:
    found = found_in(loaded)
    assert found.status is S and found.command == ""
    (comparison,) = found.comparisons
    assert (comparison.n, comparison.effect, comparison.depth) == (3, 0.0, 50)
    assert comparison.high == pytest.approx(100 / NUM_TRAIN)
    assert "Plain networks of depth 50" in found.sentence
    assert "the solution was at learning rate 0.03 lost in 3 of 3 runs." in found.sentence
    built = loaded.runs[loaded.runs["connection"] == "plain(start=10)"]
    assert set(built["run_id"]) < set(found.run_ids) and len(found.run_ids) == 6, "runs and their sources"


def test_the_claim_contradicted(loaded: LoadedStudy) -> None:
    found = found_in(loaded, with_difference([0.2, 0.21, 0.19]))
    assert found.status is C and "do not err as these do" in found.sentence
    assert found.comparisons[0].effect == pytest.approx(20.0)


def test_the_claim_undecided(loaded: LoadedStudy) -> None:
    found = found_in(loaded, with_difference([0.0, 0.003, 0.0015]))
    assert found.status is U and "the interval holds the margin" in found.sentence
    assert "start.depth=10" in found.command and "depth=50" in found.command
    few = found_in(loaded, lambda runs: runs[~(is_built(runs) & (runs["seed"] > 0))])
    assert few.status is U and "1 of at least 3 seeds" in few.sentence


def test_the_claim_not_tested(loaded: LoadedStudy) -> None:
    found = found_in(loaded, lambda runs: runs[~is_built(runs)])
    assert found.status is N and found.comparisons == ()
    assert found.command == (
        "python -m run -m depth=50 connection=plain seed=0,1,2 schedule.warmup_steps=20 trainer.steps=60 "
        "start.depth=10 study=study_construction"
    ).replace(" schedule.warmup_steps=20", "")
    only_noise = found_in(loaded, lambda runs: runs[~(is_built(runs) & (runs["start.noise"] == 0))])
    assert only_noise.status is N, "a perturbed network is no solution"


def test_the_claim_says_where_no_such_network_is_known(loaded: LoadedStudy) -> None:
    tanh = found_in(loaded, lambda runs: runs[~is_built(runs)].assign(**{"model.activation": "tanh"}))
    assert tanh.status is N and "model.activation=tanh" in tanh.sentence and tanh.command == ""


def test_rows_of_another_setting_do_not_count_but_other_rates_do(two_rates: LoadedStudy) -> None:
    found = found_in(two_rates, setting="lr=0.1")
    assert found.status is S and len(found.comparisons) == 2
    assert "at learning rate 0.01 lost in 3 of 3 runs, at learning rate 0.1 lost in 3" in found.sentence

    def elsewhere(runs: pd.DataFrame) -> pd.DataFrame:
        return runs.assign(**{"model.width": runs["model.width"].where(~is_built(runs), 32)})

    assert found_in(two_rates, elsewhere, setting="lr=0.1").status is N


def test_the_pool_may_come_from_another_study(loaded: LoadedStudy) -> None:
    scratch = loaded.runs[~is_built(loaded.runs)]
    found = solution_exists("depth", Cells.of(scratch, "all"), "residual", pd.concat([scratch, loaded.runs]))
    assert found.status is S and found.comparisons[0].n == 3, "a run that both studies hold counts once"


def test_gather_lists_the_claim_once_for_each_connection(two_rates: LoadedStudy) -> None:
    runs = two_rates.runs
    nothing = pd.DataFrame({"run_id": [], "quantity": [], "value": []})
    evidence = gather("x", runs, audit_table(runs, two_rates.records), {}, dict.fromkeys(runs["setting"], nothing))
    mine = [(c.setting, c.connection, c.status) for c in evidence.claims if c.id == "solution_exists"]
    assert mine == [("lr=0.01", "residual", S), ("lr=0.1", "residual", S)]
    assert {c.connection for c in evidence.conclusions} == {"residual"}


def test_a_setting_of_built_runs_alone_has_no_claims(loaded: LoadedStudy) -> None:
    runs = loaded.runs[is_built(loaded.runs)]
    nothing: dict[str, Any] = {"all": pd.DataFrame({"run_id": [], "quantity": [], "value": []})}
    assert gather("x", runs, audit_table(runs, loaded.records), {}, nothing).claims == []
    assert len(judge(runs).table) == 4
