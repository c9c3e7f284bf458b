"""Simulated studies with known truth: how often degradation is claimed where there is none."""

import numpy as np
import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.analysis.cells import Cells
from plainres.analysis.degradation import onset_of
from plainres.analysis.load import load_study
from plainres.analysis.simulation import (
    CHANCE,
    NULLS,
    NUM_EXAMPLES,
    NUM_STUDIES,
    counts,
    degrades,
    false_positives,
    lower_bound,
    power,
)
from plainres.analysis.stats import count_p

RATE = 0.05


@pytest.mark.parametrize("num_depths", [4, 8])
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("null", NULLS)
def test_false_positive_rate(null: str, n: int, num_depths: int) -> None:
    hits = false_positives(NULLS[null], n, num_depths)
    assert lower_bound(hits, NUM_STUDIES) <= RATE


def test_the_interval_alone_would_not_hold_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why split seeds need their counts: 30 % of runs at chance, three seeds, eight depths."""
    monkeypatch.setattr(
        "plainres.analysis.simulation.is_split", lambda errors, chance: np.zeros(errors.shape[:-1], bool)
    )
    assert false_positives(NULLS["bimodal"], 3, 8) / NUM_STUDIES > RATE


def test_the_bound_is_clopper_and_pearsons() -> None:
    from scipy.stats import binomtest

    found = binomtest(120, 2000, alternative="greater").proportion_ci(0.99)
    assert lower_bound(120, 2000) == pytest.approx(found.low) and lower_bound(0, 2000) == 0


def test_power_grows_with_n_and_is_near_1_for_what_the_default_study_finds() -> None:
    shares = [power(0.05, 0.02, n) for n in (3, 5, 10, 20)]
    assert shares == sorted(shares) and shares[-1] > 0.95
    assert power(0.64, 0.13, 5) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize(("n", "num_depths"), [(3, 4), (3, 8), (4, 4), (4, 8), (5, 8), (7, 8), (10, 8)])
def test_any_share_at_chance(share: float, n: int, num_depths: int) -> None:
    def null(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        failed = rng.random(shape) < share
        return np.where(failed, rng.normal(CHANCE, 0.01, shape), np.abs(rng.normal(0.01, 0.005, shape)))

    assert lower_bound(false_positives(null, n, num_depths, 20_000), 20_000) <= RATE


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_rise_of_exactly_the_margin_is_rarely_called_more(n: int) -> None:
    def null(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        errors = rng.normal(0.4, 0.02, shape)
        errors[:, 1:] += 0.01
        return errors

    assert lower_bound(false_positives(null, n, 4, 20_000), 20_000) <= RATE


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    fake = FakeStudy(depths=(4, 6, 8, 10), connections=("plain",), seeds=range(5), steps=60, probes=False)
    return load_study(fake.write(tmp_path_factory.mktemp("simulated"))).runs


def by_table(runs: pd.DataFrame, errors: np.ndarray, log_losses: np.ndarray) -> bool:
    """The same study through the table of runs: errors (depths, n), of the first n seeds."""
    depths = sorted(runs["depth"].unique())
    kept = runs[runs["seed"] < errors.shape[1]]
    at = [(depths.index(d), s) for d, s in zip(kept["depth"], kept["seed"], strict=True)]
    values = {"final_train_error": [errors[i] for i in at], "final_train_loss": [10 ** log_losses[i] for i in at]}
    kept = kept.assign(**values, num_train=NUM_EXAMPLES, chance_error=CHANCE)
    return onset_of(Cells.of(kept, "all").plain_rises) is not None


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("n", [3, 5])
def test_arrays_and_tables_agree(runs: pd.DataFrame, null: str, n: int) -> None:
    rng = np.random.default_rng(n)
    errors = NULLS[null](rng, (6, 4, n))
    errors[2:4, -1] = np.clip(errors[2:4, -1] + 0.3, 0, 0.95)  # some studies in which there is a rise
    errors[4], errors[5] = 0.0, 0.0  # and some on the floor of 0, decided by the loss
    losses = rng.normal(-3, 0.1, errors.shape)
    losses[5, 2:] += 2
    expected = degrades(errors, losses)
    assert [by_table(runs, e, x) for e, x in zip(errors, losses, strict=True)] == expected.tolist()
    assert not expected[4] and expected[5]


def test_split_studies_agree_too(runs: pd.DataFrame) -> None:
    """All deep seeds at chance, no shallow one, another depth split: 3 seeds are open, 5 are enough."""
    for n in (3, 5):
        errors = np.full((4, n), 0.001)
        errors[2], errors[1, 0] = CHANCE, CHANCE
        losses = np.zeros(errors.shape)
        found = bool(degrades(errors[None], losses[None])[0])
        assert found == by_table(runs, errors, losses) == (count_p(n, n, 0, n) <= RATE / 3) == (n == 5)


def test_the_null_of_counts_sits_on_the_floor() -> None:
    errors = counts(np.random.default_rng(0), (1000,))
    assert (errors == 0).mean() > 0.3 and np.allclose(errors * NUM_EXAMPLES, np.round(errors * NUM_EXAMPLES))
