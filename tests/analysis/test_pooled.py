"""Claims that other studies' runs decide (learning rates, initial scales): every status, against hand computation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fake_study import FakeStudy
from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim
from plainres.analysis.evidence import gather
from plainres.analysis.evidence_identity import near_identity
from plainres.analysis.evidence_tuning import RATE, Best, Tuning, not_tuning
from plainres.analysis.load import load_study
from plainres.analysis.near_identity import chance_loss, early_losses, early_mean, start_of
from plainres.analysis.pool import Pool
from plainres.analysis.rules import ClaimStatus
from plainres.store import Status, Study

S, C, U, N = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNDECIDED, ClaimStatus.NOT_TESTED
DEPTHS, SEEDS = (4, 16), range(5)
Errors = Mapping[tuple[str, int], float]
NOISE = np.array([0.0, 0.004, -0.004, 0.002, -0.002])
OWN = {("plain", 4): 0.01, ("residual", 4): 0.01, ("plain", 16): 0.6, ("residual", 16): 0.01}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """A study in which plain-16 degrades and residual cures it, at learning rate 0.03."""
    fake = FakeStudy(depths=DEPTHS, seeds=SEEDS, steps=60, probes=False)
    return with_errors(load_study(fake.write(tmp_path_factory.mktemp("pooled"))).runs, OWN)


def with_errors(table: pd.DataFrame, errors: Errors) -> pd.DataFrame:
    """Final errors (and losses of the same number) of each cell, with a little noise over seeds."""
    keys = zip(table["connection"], table["depth"], table["seed"], strict=True)
    values = [errors[arm, depth] + NOISE[seed % 5] for arm, depth, seed in keys]
    return table.assign(final_train_error=values, final_train_loss=values)


def at_rate(runs: pd.DataFrame, rate: float, errors: Errors, first_seed: int = 0) -> pd.DataFrame:
    """The same runs at another learning rate, with seeds from ``first_seed`` on."""
    there = with_errors(runs, OWN | errors)
    ids = there["run_id"] + f"-{rate}-{first_seed}"
    return there.assign(**{RATE: rate, "run_id": ids, "seed": there["seed"] + first_seed})


def tuned(runs: pd.DataFrame, rates: Mapping[float, tuple[float, float]]) -> Pool:
    """Learning rate -> plain-16's error on the choosing seeds, and on those that are compared; and the study's own."""
    others = []
    for rate, (choosing, compared) in rates.items():
        others.append(at_rate(runs, rate, {("plain", 16): choosing}, 100))
        others.append(at_rate(runs, rate, {("plain", 16): compared}))
    return Pool.of(runs, [at_rate(runs, 0.03, {}, 100), *others])


def tuning_claim(runs: pd.DataFrame, pool: Pool) -> Claim:
    return not_tuning("depth", Cells.of(runs, "all"), "residual", pool)


def test_a_gap_at_the_best_rates_is_supported(runs: pd.DataFrame) -> None:
    pool = tuned(runs, {0.003: (0.5, 0.5), 0.01: (0.3, 0.35), 0.1: (0.7, 0.7)})
    found = tuning_claim(runs, pool)
    assert found.status is S and found.shown is not None
    assert found.shown.effect == pytest.approx(34.0) and found.shown.n == 5
    assert "0.01 and 0.003" in found.shown.label, "residual is alike at all rates: the least of them"
    compared = pool.runs.set_index("run_id").loc[list(found.run_ids)]
    assert set(compared.loc[compared["connection"] == "plain", RATE]) == {0.01}
    assert set(compared["seed"]) == set(SEEDS)
    assert "edge" in found.sentence and "residual at depth 16 (0.003)" in found.sentence
    assert "plain at depth 16" not in found.sentence.partition("edge")[2]


def test_the_compared_seeds_choose_nothing(runs: pd.DataFrame) -> None:
    """0.1 looks best on the seeds that are compared, 0.01 on those that choose."""
    pool = tuned(runs, {0.01: (0.3, 0.5), 0.1: (0.4, 0.01)})
    assert Tuning.of(Cells.of(runs, "all"), pool).best("plain", 16) == Best(0.01, True)
    found = tuning_claim(runs, pool)
    assert found.shown is not None and found.shown.effect == pytest.approx(49.0)


def test_a_gap_that_a_rate_closes_is_contradicted(runs: pd.DataFrame) -> None:
    found = tuning_claim(runs, tuned(runs, {0.01: (0.01, 0.01), 0.1: (0.7, 0.7)}))
    assert found.status is C and found.sentence.startswith("At each arm's best learning rate the gap is closed")


def test_two_seeds_leave_it_undecided_and_say_how_many_would_do(runs: pd.DataFrame) -> None:
    pool = tuned(runs, {0.01: (0.3, 0.3)})
    kept = pool.runs[(pool.runs["seed"] < 2) | (pool.runs["seed"] >= 100)]
    found = tuning_claim(runs, Pool(kept))
    assert found.status is U and "2 of at least 3 seeds" in found.sentence
    assert "optimizer.lr=0.3,0.1,0.03,0.01,0.003" in found.command and "seed=0,1,2,100,101,102" in found.command


@pytest.mark.parametrize("choosing", [False, True], ids=["one rate", "no seeds to choose"])
def test_without_a_choice_it_is_not_tested(runs: pd.DataFrame, choosing: bool) -> None:
    others = [at_rate(runs, 0.01, {}), at_rate(runs, 0.1, {})] if choosing else []
    found = tuning_claim(runs, Pool.of(runs, others))
    assert found.status is N and "--with results/depth_learning_rate" in found.sentence
    assert found.command.startswith("python -m run -m ") and "study=depth_learning_rate" in found.command


def test_a_rate_at_which_a_run_diverges_is_not_chosen(runs: pd.DataFrame) -> None:
    pool = tuned(runs, {0.01: (0.2, 0.2), 0.1: (0.4, 0.4)})
    bad = (pool.runs[RATE] == 0.01) & (pool.runs["seed"] == 101) & (pool.runs["connection"] == "plain")
    table = pool.runs.assign(status=pool.runs["status"].where(~bad, str(Status.DIVERGED)))
    table = table.assign(final_train_loss=table["final_train_loss"].where(~bad))
    best = Tuning.of(Cells.of(runs, "all"), Pool(table)).best("plain", 16)
    assert best is not None and best.rate == 0.1


def test_without_degradation_there_is_nothing_to_tune_away(runs: pd.DataFrame) -> None:
    flat = with_errors(runs, OWN | {("plain", 16): 0.01})
    found = tuning_claim(flat, tuned(flat, {0.01: (0.3, 0.3)}))
    assert found.status is N and "do not degrade" in found.sentence


def test_pool_takes_a_run_once_and_keeps_the_studys_own_names(runs: pd.DataFrame) -> None:
    other = at_rate(runs, 0.3, {})
    other.loc[other["connection"] == "residual", "connection.alpha"] = 0.5
    pool = Pool.of(runs, [runs, other])
    assert len(pool.runs) == 2 * len(runs)
    own = pool.runs[pool.runs["run_id"].isin(runs["run_id"])]
    assert set(own["connection"]) == {"plain", "residual"}
    assert set(pool.runs["connection"]) == {"plain", "residual", "residual(alpha=0.5)"}
    labels = {str(c.setting) for c in pool.alike(Cells.of(runs, "all"), ["depth", "connection", "seed", RATE])}
    assert labels == {"lr=0.03", "lr=0.3"}
    assert len(pool.alike(Cells.of(runs, "all"), ["depth", "connection", "seed"])) == 1


# near_identity


def ablation(runs: pd.DataFrame, full: float, near: float, early: tuple[float, float]) -> Pool:
    """residual and an arm with α = 0.1 at learning rate 0.3: final errors (= losses), and log10 of early losses."""
    full_arm = at_rate(runs, 0.3, {("residual", 4): 0.002, ("residual", 16): full})
    arm = at_rate(runs, 0.3, {("residual", 4): 0.001, ("residual", 16): near})
    arm = arm[arm["connection"] == "residual"].copy()
    arm = arm.assign(run_id=arm["run_id"] + "-near", connection="scaled")
    arm = arm.assign(**{"connection.name": "scaled", "connection.scale": "fixed", "connection.alpha": 0.1})
    tables = [full_arm, arm]
    losses = {i: early[k] + NOISE[j % 5] for k, t in enumerate(tables) for j, i in enumerate(t["run_id"])}
    return Pool.of(runs, tables, losses)


def identity_claim(runs: pd.DataFrame, pool: Pool, connection: str = "residual") -> Claim:
    return near_identity("depth", Cells.of(runs, "all"), connection, pool)


def test_near_identity_supported_where_early_and_final_loss_both_gain(runs: pd.DataFrame) -> None:
    found = identity_claim(runs, ablation(runs, 0.5, 0.1, (1.0, 0.0)))
    assert found.status is S and "(scaled)" in found.sentence and "learning rate 0.3" in found.sentence
    early, end = found.comparisons
    assert (early.depth, end.depth) == (16, 16), "at depth 4 the arm at full scale is on the floor"
    gains = np.log10((0.5 + NOISE) / (0.1 + NOISE))
    expected = stats.ttest_1samp(gains, 0).confidence_interval(1 - 0.05 / 2)
    assert end.effect == pytest.approx(gains.mean())
    assert (end.low, end.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert early.effect == pytest.approx(1.0)


def test_near_identity_contradicted_where_the_end_does_not_follow(runs: pd.DataFrame) -> None:
    found = identity_claim(runs, ablation(runs, 0.5, 0.5, (1.0, 0.0)))
    assert found.status is C and "Not so: residual − scaled at depth 16, final loss" in found.sentence


def test_near_identity_undecided_with_two_seeds(runs: pd.DataFrame) -> None:
    pool = ablation(runs, 0.5, 0.1, (1.0, 0.0))
    few = replace(pool, runs=pool.runs[pool.runs["seed"] < 2])
    found = identity_claim(runs, few)
    assert found.status is U and "2 of at least 3 seeds" in found.sentence and "optimizer.lr=0.3" in found.command


def test_near_identity_not_tested_on_the_floor_or_without_arms(runs: pd.DataFrame) -> None:
    on_floor = identity_claim(runs, ablation(runs, 0.005, 0.001, (1.0, 0.0)))
    assert on_floor.status is N and "study=depth_init_ablation" in on_floor.command
    assert identity_claim(runs, Pool.of(runs)).status is N


def test_a_diverged_arm_counts_at_chance_level(runs: pd.DataFrame) -> None:
    pool = ablation(runs, 0.5, 0.1, (1.0, 0.0))
    bad = pool.runs["run_id"].str.endswith("-near") & (pool.runs["depth"] == 16)
    table = pool.runs.assign(status=pool.runs["status"].where(~bad, str(Status.DIVERGED)))
    found = identity_claim(runs, replace(pool, runs=table))
    end = found.comparisons[1]
    chance = np.log10(chance_loss(float(runs["chance_error"].iloc[0])))
    assert end.effect == pytest.approx(np.log10(0.5 + NOISE).mean() - chance) and end.num_diverged == 5
    audit = pd.DataFrame({"setting": [], "connection": [], "clean": [], "run_id": []})
    nothing = pd.DataFrame({"run_id": [], "quantity": [], "value": []})
    claims = gather("depth", runs, audit, {}, {"all": nothing}, replace(pool, runs=table)).claims
    (claim,) = [c for c in claims if c.id == "near_identity"]
    assert claim.sensitivity == "5 diverged runs count at chance level; without them: undecided"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plain", ""),
        ("residual", "full"),
        ("scaled", "near"),
        ("depth_scaled", "near"),
        ("skipinit", "near"),
        ("rezero", "near"),
        ("layerscale", "near"),
        ("zero_init", "near"),
        ("zero/scaled", "near"),
        ("zero/skipinit", ""),
        ("highway", ""),
        ("stochastic_depth", ""),
        ("deepnorm", ""),
        ("projected", ""),
    ],
)
def test_how_a_preset_starts(make_preset: Any, name: str, kind: str) -> None:
    assert start_of(make_preset(name).connection) == kind


def test_early_mean_weighs_each_row_by_its_steps() -> None:
    rows = pd.DataFrame({"step": [1, 5, 10, 20], "value": [4.0, 2.0, 1.0, 9.0]})
    assert early_mean(rows, 10) == pytest.approx((1 * 4 + 4 * 2 + 5 * 1) / 10)
    assert early_mean(rows, 0.5) is None


def test_early_losses_come_from_the_tables_of_ablated_runs_only(execute: Any, make_preset: Any, study: Study) -> None:
    for name in ("residual", "scaled", "highway"):
        execute(make_preset(name))
    loaded = load_study(study.path)
    found, problems = early_losses(loaded)
    ablated = loaded.runs[loaded.runs["connection"] != "highway"]
    assert not problems and set(found) == set(ablated["run_id"])
    for row in ablated.to_dict("records"):
        table = pd.read_parquet(study.path / "runs" / row["folder"] / "steps.parquet")
        mine = table[(table["metric"] == "train_loss_running") & table["value"].notna() & (table["step"] <= 3)]
        total, before = 0.0, 0
        for step, value in sorted(zip(mine["step"], mine["value"], strict=True)):
            total, before = total + (step - before) * value, step
        assert found[row["run_id"]] == pytest.approx(np.log10(total / before))
    alone = replace(loaded, runs=loaded.runs[loaded.runs["connection"] == "residual"])
    assert early_losses(alone) == ({}, [])
