"""``Study.compare``: a paired t interval by hand, our own claims' comparisons, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import plainres
from fake_study import FakeStudy
from plainres.analysis.cells import RISE, Cells
from plainres.analysis.rules import RULES


def errors(study: plainres.Study, connection: str, depth: int, metric: str = "final_train_error") -> np.ndarray:
    runs = study.runs[(study.runs["connection"] == connection) & (study.runs["depth"] == depth)]
    return runs.sort_values("seed")[metric].to_numpy(dtype=float)


@pytest.mark.parametrize("comparisons", [1, 5])
def test_the_interval_by_hand(study: plainres.Study, comparisons: int) -> None:
    difference = 100 * (errors(study, "plain", 6) - errors(study, "residual", 6))
    low, high = stats.t.interval(1 - 0.05 / comparisons, 3, difference.mean(), stats.sem(difference))
    found = study.compare("train_error", "plain", "residual", depth=6, comparisons=comparisons)
    assert (found.effect, found.low, found.high) == pytest.approx((difference.mean(), low, high))
    assert found.values == pytest.approx(dict(zip("0123", difference, strict=True))) and found.n == 4
    assert (found.unit, found.margin) == ("percentage points", 1.0)
    assert found.status == ("supported" if low > 1 else "undecided")


def test_equals_the_gap_of_our_claims(study: plainres.Study) -> None:
    cells = Cells.of(study.runs, "all")
    for depth in (4, 6, 8):
        gap = cells.gap("gap", RULES["cured"].parts["gap"], "residual", depth, 0.95)
        own = study.compare("train_error", "plain", "residual", depth=depth)
        for name in ("effect", "low", "high", "n", "status", "why", "run_ids", "num_diverged", "n_needed"):
            assert getattr(own, name) == getattr(gap, name), name
    rise = cells.rise("rise", RISE, "plain", 6, 0.95)
    own = study.compare("train_error", 6, 4, over="depth", connection="plain")
    assert (own.effect, own.low, own.high) == (rise.effect, rise.low, rise.high)


def test_a_diverged_run_counts_at_chance_and_has_no_loss(study: plainres.Study) -> None:
    error = study.compare("train_error", "plain", "residual", depth=8)
    chance = float(study.runs["chance_error"].iloc[0])
    assert (
        error.values["3"] == pytest.approx(100 * (chance - errors(study, "residual", 8)[3])) and error.num_diverged == 1
    )
    loss = study.compare("train_loss", "plain", "residual", depth=8)
    by_hand = np.log10(errors(study, "plain", 8, "final_train_loss") / errors(study, "residual", 8, "final_train_loss"))
    assert loss.n == 3 and loss.unit == "decades" and loss.effect == pytest.approx(by_hand[:3].mean())


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"depth": 8}, "supported"),
        ({"depth": 8, "direction": "no_rise"}, "contradicted"),
        ({"depth": 8, "direction": "within"}, "contradicted"),
        ({"depth": 6, "margin": 50}, "contradicted"),
        ({"depth": 6, "margin": 50, "direction": "within"}, "supported"),
        ({"depth": 6, "margin": 4.9}, "undecided"),
    ],
)
def test_the_whole_interval_decides(study: plainres.Study, asked: dict, status: str) -> None:
    assert study.compare("train_error", "plain", "residual", **asked).status == status


def test_learning_rates_and_networks_that_were_built(tmp_path: Path) -> None:
    """Pairs over another setting, and over what a network started from; each against the errors that were written."""
    built = {("plain", 6, seed): 0.3 + 0.01 * seed for seed in range(3)}
    trained = {("plain", depth, seed): 0.1 for depth in (4, 6) for seed in range(3)}
    fake = FakeStudy(
        depths=(4, 6), connections=("plain",), seeds=range(3), lrs=(0.03, 0.1), steps=60, probes=False, errors=trained,
        starts=[(4, 0.0)], built_errors=built,
    )  # fmt: skip
    study = plainres.load(fake.write(tmp_path))
    rates = study.compare(
        "train_error", 0.03, 0.1, over="optimizer.lr", connection="plain", depth=6, direction="within"
    )
    assert (rates.effect, rates.n, rates.status) == (0, 3, "supported")
    start = study.compare("train_error", "plain(start=4)", "plain", depth=6, setting="lr=0.1")
    assert start.effect == pytest.approx(100 * (0.31 - 0.1)) and start.n == 3


def test_seeds_that_split_must_agree_in_their_counts(tmp_path: Path) -> None:
    """3 of 4 seeds fail: the interval alone says yes; by Fisher's exact test 3 : 0 of 4 has p = 4 / 56."""
    errors = {("plain", 6, seed): error for seed, error in enumerate((0.8, 0.8, 0.8, 0.3))}
    fake = FakeStudy(depths=(6,), seeds=range(4), steps=60, probes=False, errors=errors)
    found = plainres.load(fake.write(tmp_path)).compare("train_error", "plain", "residual", depth=6)
    assert found.low is not None and found.low > found.margin
    assert found.status == "undecided" and "seeds are split" in found.why and f"p = {4 / 56:.2g}" in found.why


def test_it_reads_as_a_sentence(study: plainres.Study) -> None:
    text = repr(study.compare("val_error", "plain", "residual", depth=8, margin=2))
    assert text.startswith("val_error: plain − residual, depth=8: +") and "n = 4; above 2 percentage points: " in text


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"metric": "trian_error", "depth": 8}, "metric=trian_error: must be one of train_error, val_error"),
        ({"a": "palin", "depth": 8}, "connection=palin: must be one of plain, residual"),
        ({"depth": 7}, "depth=7: must be one of 4, 6, 8"),
        ({"detph": 8}, "detph=8: must be left out: there is no such column of runs"),
        ({"over": "dpeth"}, "over=dpeth: must be connection, depth or another setting's name"),
        ({"over": "name"}, "over=name: must be connection, depth or another setting's name"),
        ({"direction": "up", "depth": 8}, "direction=up: must be one of above, no_rise, within"),
        ({"margin": float("nan"), "depth": 8}, "margin=nan: must be a number of at least 0"),
        ({"margin": "1", "depth": 8}, "margin=1: must be a number of at least 0"),
        ({"comparisons": 0, "depth": 8}, "comparisons=0: must be a whole number of at least 1"),
        ({}, "several pairs have the same seed; give depth=, one of 4, 6, 8"),
        ({"connection": "plain"}, "connection=plain: must be left out, because a and b are its values"),
        ({"b": "plain", "depth": 8}, "a and b are both plain"),
        (
            {"a": 8, "b": 4, "over": "depth"},
            "several pairs have the same seed; give connection=, one of plain, residual",
        ),
    ],
)
def test_a_mistake_is_one_line(study: plainres.Study, asked: dict, line: str) -> None:
    usual = {"metric": "train_error", "a": "plain", "b": "residual"}
    with pytest.raises(plainres.UserError) as error:
        study.compare(**(usual | asked))
    assert line in str(error.value) and "\n" not in str(error.value)


def test_runs_that_differ_in_more_are_no_pair(study: plainres.Study) -> None:
    changed = plainres.load(study.path)
    changed.runs.loc[changed.runs["connection"] == "residual", "model.width"] = 32
    with pytest.raises(plainres.UserError, match=r"no two runs differ in connection alone; .* in model.width too"):
        changed.compare("train_error", "plain", "residual", depth=8)
