"""Each rule fires beyond its limit only; numbers against a slow reading of a real run's files; what is missing."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.analysis.diagnosis import Diagnosis, Finding, diagnose, findings, grouped
from plainres.analysis.diagnosis_rules import RULES, Measure, Window, limit_of
from plainres.analysis.diagnosis_values import METRICS, RunValues, Series, beyond, measure
from plainres.analysis.diagnosis_words import headline, numbers, sentence
from plainres.analysis.inside import Inside
from plainres.analysis.load import LoadedStudy, load_study
from plainres.job import Outcome
from plainres.schema import RunConf
from plainres.store import RunFolder, Status, Study

LN_10 = math.log(10)
NAN = float("nan")
PROBED = np.arange(0, 100, 10)  # of 100 steps: step 0 is early, 10 to 80 are later, 90 is past the peak's tenth
PROFILES = {name: rule.profile for name, rule in RULES.items() if rule.profile is not None}


def row(**values: Any) -> dict[str, Any]:
    """A run of the table of runs that ended well above chance level, but not well."""
    ids = {"run_id": "0", "name": "run-0", "setting": "all", "connection": "residual", "depth": 18, "seed": 0}
    final = {"final_train_error": 0.6, "final_train_loss": 1.9, "final_train_error_batchstats": 0.6}
    return {**ids, "status": "complete", "diverged_step": NAN, "diverged_layer": None, **final, **values}


def run_values(series: dict[tuple[str, str], Series] | None = None, loss: float = 1.9) -> RunValues:
    return RunValues(100, 80, LN_10, np.array([50, 100]), np.full(2, loss), series or {})


def made(rule_id: str, number: float, at: np.ndarray = PROBED, blocks: int = 8) -> RunValues:
    """A run in which the rule's measure is ``number`` at the steps in ``at``, and unsuspicious at the others."""
    rule, profile = RULES[rule_id], PROFILES[rule_id]
    fine = limit_of(rule_id) / 2 if rule.above else limit_of(rule_id) * 2
    values = np.ones((len(PROBED), blocks))
    for i, step in enumerate(PROBED):
        x = number if step in at else fine
        if profile.measure is Measure.EARLY_TO_LATE:
            values[i, : blocks // 4] = x
        elif profile.measure is Measure.GROWTH:
            values[i] = np.linspace(1, x, blocks)
        elif profile.measure is Measure.LARGEST:
            values[i] = [x / 2] * (blocks - 1) + [x]
        else:
            values[i] = [x / 3] * 3 + [x] * 2 + [x * 3] * 3
    names = tuple(f"{profile.scope}s.{i}" for i in range(blocks))
    series = {(profile.scope, profile.metric): Series(PROBED, names, values)}
    if rule.needs:
        series[profile.scope, rule.needs] = Series(PROBED, names, np.full_like(values, 0.5))
    return run_values(series)


def found(values: RunValues, rule_id: str, **of_row: Any) -> Finding | None:
    mine = [f for f in findings(row(**of_row), values) if f.rule == rule_id]
    assert len(mine) <= 1
    return mine[0] if mine else None


@pytest.mark.parametrize("rule_id", PROFILES)
def test_a_rule_on_layers_fires_beyond_its_limit_only(rule_id: str) -> None:
    limit = limit_of(rule_id)
    past, short = (1.01, 0.99) if RULES[rule_id].above else (0.99, 1.01)
    finding = found(made(rule_id, limit * past), rule_id)
    assert finding is not None
    assert finding.number == pytest.approx(limit * past)
    window = {Window.EARLY: (0, 0), Window.LATER: (10, 80), Window.WHOLE: (0, 80)}[PROFILES[rule_id].window]
    assert (finding.first_step, finding.last_step) == window
    assert found(made(rule_id, limit * short), rule_id) is None
    assert not beyond(rule_id, np.array(limit)), "on the limit is not beyond it"


@pytest.mark.parametrize("rule_id", PROFILES)
def test_a_rule_looks_at_its_own_steps(rule_id: str) -> None:
    window = PROFILES[rule_id].window
    past = limit_of(rule_id) * (1.5 if RULES[rule_id].above else 0.7)
    early, later = PROBED[:1], PROBED[(PROBED >= 10) & (PROBED <= 80)]
    assert (found(made(rule_id, past, at=early), rule_id) is not None) == (window is Window.EARLY)
    assert (found(made(rule_id, past, at=later), rule_id) is not None) == (window is not Window.EARLY)
    assert found(made(rule_id, past, at=PROBED[-1:]), rule_id) is None, "the learning rate is near 0 there"
    if window is Window.LATER:
        assert found(made(rule_id, past, at=later[:3]), rule_id) is None, "3 of 8 steps are not most of training"


@pytest.mark.parametrize("rule_id", PROFILES)
def test_a_network_that_has_learned_its_data_has_no_fault_in_small_numbers(rule_id: str) -> None:
    values = made(rule_id, limit_of(rule_id) * (1.5 if RULES[rule_id].above else 0.7))
    for loss, learns in ((0.1 * LN_10, False), (0.11 * LN_10, True), (NAN, True)):
        seen = found(replace(values, losses=np.full(2, loss)), rule_id)
        assert (seen is not None) == (learns or PROFILES[rule_id].window is Window.EARLY)


def test_fewer_than_three_probes_are_no_long_time() -> None:
    values = made("vanishing", 0.001)
    (key,) = values.series
    series = values.series[key]
    for count, fires in ((2, False), (3, True)):
        few = Series(series.steps[1 : 1 + count], series.names, series.values_SN[1 : 1 + count])
        assert (found(replace(values, series={key: few}), "vanishing") is not None) == fires


def test_layers_named_are_those_beyond_the_limit() -> None:
    values = np.full((3, 4), 1e-3)
    values[0] = [12_000.0, 0.5, 2.0, NAN]
    values[1, 3] = 50_000.0  # a weight that started at 0: its first ratio is no fault
    series = {("layer", "update_ratio"): Series(np.array([0, 5, 50]), ("stem.op.weight", "a", "b", "c"), values)}
    finding = found(run_values(series), "update_burst")
    assert finding is not None and finding.layers == ((0, "stem.op.weight"), (2, "b"))
    assert finding.number == 12_000 and (finding.first_step, finding.last_step) == (0, 0)
    assert "stem, b; step 0" in sentence([finding]) and "12,000" in sentence([finding])


def test_most_of_training_is_its_median_and_not_its_mean() -> None:
    values = made("vanishing", 0.03)
    (key,) = values.series
    values.series[key].values_SN[-4:-1, :2] = 900.0  # the last 3 of 8 steps
    finding = found(values, "vanishing")
    assert finding is not None and finding.number == pytest.approx(0.03)
    assert (finding.first_step, finding.last_step) == (10, 50)


def test_measures_by_hand() -> None:
    profile = np.array([4.0, NAN, 9.0, 1.0, 1.0, 2.0, NAN, 2.0, 2.0, 2.0])
    assert measure(Measure.EARLY_TO_LATE, profile) == pytest.approx(math.sqrt(4 * 9) / 2)
    assert measure(Measure.MEDIAN, profile) == 2 and measure(Measure.LARGEST, profile) == 9
    assert measure(Measure.GROWTH, profile) == 0.5
    assert math.isnan(measure(Measure.GROWTH, np.array([0.0, 1.0])))
    assert math.isnan(measure(Measure.MEDIAN, np.array([NAN])))


def test_the_trunk_of_an_arm_without_addition_does_not_grow() -> None:
    values = made("trunk_growth", 1000.0)
    no_ratio = Series(PROBED, tuple("abcdefgh"), np.full((len(PROBED), 8), NAN))
    for series in ({"branch_ratio": no_ratio}, {}):
        mine = {("block", "output_norm"): values.series["block", "output_norm"]}
        mine |= {("block", name): one for name, one in series.items()}
        assert found(replace(values, series=mine), "trunk_growth") is None


def test_a_small_scale_is_no_fault_of_a_run_that_was_trained() -> None:
    values = made("branch_starved", -0.1)
    assert found(values, "branch_starved", final_train_loss=0.51 * LN_10) is not None
    assert found(values, "branch_starved", final_train_loss=0.49 * LN_10) is None
    assert found(values, "branch_starved", final_train_loss=None) is None
    assert found(made("branch_starved", -1.0), "branch_starved") is None, "a learned scale may be negative"


@pytest.mark.parametrize(
    ("steps", "losses", "first"),
    [
        ([1, 40, 100], [2.4, 2.3, 2.3], 1),
        ([1, 40, 100], [1.0, 2.3, 2.3], 40),
        ([1, 51, 100], [1.0, 2.3, 2.3], None),  # 49 of 100 steps
        ([1, 40, 100], [2.3, 2.3, 0.96 * LN_10], None),
        ([1, 40, 100], [2.3, 0.98 * LN_10, 2.3], 1),
        ([1, 40, 100], [2.3, NAN, 2.3], 1),
        ([1, 40, 100], [NAN, NAN, NAN], None),
        ([], [], None),
        ([100], [2.3], None),
    ],
)
def test_chance_is_a_long_plateau_up_to_the_end(steps: list[int], losses: list[float], first: int | None) -> None:
    values = RunValues(100, 80, LN_10, np.array(steps), np.array(losses))
    finding = found(values, "chance")
    assert (None if finding is None else finding.first_step) == first
    if finding is not None:
        lowest = min(x for s, x in zip(steps, losses, strict=True) if s >= finding.first_step and not math.isnan(x))
        assert finding.number == pytest.approx(lowest / LN_10) and f"{lowest:.2f} nats" in sentence([finding])
        assert "× ln 10" in sentence([finding])
    assert found(replace(values, log_classes=NAN), "chance") is None, "C is not known"


def test_running_statistics_by_hand() -> None:
    finding = found(run_values(), "running_statistics", final_train_error=0.81, final_train_error_batchstats=0.66)
    assert finding is not None and finding.number == pytest.approx(15.0) and finding.unit == "percentage points"
    assert "15.0 percentage points" in sentence([finding]) and "81.00 %" in sentence([finding])
    for error, other in ((0.81, 0.77), (0.66, 0.81), (0.81, None), (NAN, 0.1)):
        assert not found(
            run_values(), "running_statistics", final_train_error=error, final_train_error_batchstats=other
        )


def test_a_diverged_run_names_step_and_layer() -> None:
    none = {"final_train_error": NAN, "final_train_loss": NAN, "final_train_error_batchstats": NAN}
    of_row = {"status": str(Status.DIVERGED), "diverged_step": 8.0, "diverged_layer": "blocks.3.branch.0", **none}
    finding = found(run_values(), "diverged", **of_row)
    assert finding is not None and finding.train_error is None
    assert sentence([finding]) == "first step that is not finite is 8; blocks.3.branch.0; step 8."
    assert found(run_values(), "diverged") is None


@pytest.mark.parametrize("loss", [1.9, NAN])
def test_rows_without_values_carry_no_finding(loss: float) -> None:
    empty = {key: Series(PROBED, ("a", "b"), np.full((len(PROBED), 2), NAN)) for key in METRICS}
    one = {key: Series(PROBED[:1], ("a",), np.ones((1, 1))) for key in METRICS}
    for series in (empty, one, {}):
        assert list(findings(row(), run_values(series, loss))) == []
    nothing = RunValues(100, -1, NAN, np.empty(0), np.empty(0))
    assert list(findings(row(final_train_error=None, final_train_loss=None), nothing)) == []


def diagnosis_of(loaded: LoadedStudy) -> Diagnosis:
    return diagnose(loaded, loaded.runs, Inside(loaded, loaded.runs, METRICS))


def test_numbers_of_a_real_run_are_those_of_its_files(
    make_conf: Callable[..., RunConf], execute: Callable[..., tuple[Outcome, RunFolder]], study: Study
) -> None:
    """With a learning rate of 20 the first updates are larger than the weights; read again with pandas alone."""
    _, folder = execute(make_conf("residual", {"optimizer.lr": 20.0, "depth": 10}))
    loaded = load_study(study.path)
    by_rule = {f.rule: f for f in diagnosis_of(loaded).findings}
    layers = pd.read_parquet(folder.path / "layers.parquet")
    steps = pd.read_parquet(folder.path / "steps.parquet")
    early = layers[(layers["scope"] == "layer") & (layers["metric"] == "update_ratio") & (layers["step"] < 1.2)]
    burst = by_rule["update_burst"]
    assert burst.number == pytest.approx(early["value"].max()) and burst.number > 1
    assert {name for _, name in burst.layers} == set(early.loc[early["value"] > 1, "layer_name"])
    assert {burst.first_step, burst.last_step} <= set(early.loc[early["value"] > 1, "step"])
    lr = steps[steps["metric"] == "lr"].set_index("step")["value"]
    later = [s for s in lr.index if s >= 1.2 and s <= lr.index[lr >= 0.1 * lr.max()].max()]
    ratios = layers[(layers["scope"] == "layer") & (layers["metric"] == "update_ratio") & layers["step"].isin(later)]
    median = ratios.groupby("step")["value"].median().median()
    assert len(later) >= 3 and by_rule["update_large"].number == pytest.approx(median)
    assert f"{median:#.3g}" in sentence([by_rule["update_large"]])
    assert burst.run == folder.name


def test_a_study_without_probes_or_with_one_run_is_diagnosed_all_the_same(tmp_path: Path) -> None:
    status = {("plain", 8, 0): Status.DIVERGED, ("residual", 8, 0): Status.FAILED}
    fake = FakeStudy(depths=(8,), seeds=(0, 1), steps=60, probes=False, status=status)
    result = diagnosis_of(load_study(fake.write(tmp_path)))
    assert [(f.rule, f.connection, f.seed) for f in result.findings] == [("diverged", "plain", 0)]
    assert len(result.unprobed) == 3 and result.cells == {("all", "plain", 8): 2, ("all", "residual", 8): 1}
    nothing = diagnosis_of(load_study(FakeStudy(depths=()).write(tmp_path, "none")))
    assert nothing == Diagnosis()


def test_seeds_are_grouped_with_the_range_of_their_numbers() -> None:
    values = {seed: made("vanishing", number) for seed, number in ((0, 0.03), (1, 1e-5), (2, 0.002))}
    all_found = [f for seed, mine in values.items() for f in findings(row(seed=seed), mine)]
    (group,) = grouped([f for f in all_found if f.rule == "vanishing"])
    assert numbers(group) == "0.001 or less to 0.0300"
    assert "2 blocks" not in sentence(group) and "blocks.0, blocks.1; steps 10 to 80" in sentence(group)
    text = headline(group, Diagnosis(all_found, {("all", "residual", 18): 4}))
    assert text.startswith("residual, depth 18 (3 of 4 runs): gradients vanish toward the input")


def test_the_gravest_come_first_whatever_the_setting(tmp_path: Path) -> None:
    both = Diagnosis()
    for setting, rule_id in (("lr=0.1", "branch_quiet"), ("lr=0.3", "vanishing")):
        of_run = list(findings(row(setting=setting), made(rule_id, limit_of(rule_id) / 10)))
        both.extend(Diagnosis([f for f in of_run if f.rule == rule_id], {(setting, "residual", 18): 1}))
    assert [f.rule for f in both.findings] == ["vanishing", "branch_quiet"] and len(both.cells) == 2
