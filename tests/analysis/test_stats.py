"""Intervals against scipy called plainly, hand computation, and the inputs that usually give nan."""

import math

import numpy as np
import pytest
from scipy import stats

from plainres.analysis.stats import Flag, bounds, count_p, estimate, holm, interval, needed_n, p_value

N = 1437


def test_mean_interval_is_scipys() -> None:
    values = [0.61, 0.65, 0.70, 0.66, 0.58]
    found = interval(values, N)
    low, high = stats.t.interval(0.95, df=4, loc=np.mean(values), scale=stats.sem(values))
    assert (found.n, found.flag) == (5, Flag.NONE)
    assert found.mean == pytest.approx(0.64)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_paired_difference_is_scipys_paired_test() -> None:
    plain, residual = np.array([0.61, 0.65, 0.70]), np.array([0.01, 0.0, 0.02])
    found = interval(plain - residual, N)
    expected = stats.ttest_rel(plain, residual).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_by_hand() -> None:
    found = interval([0.1, 0.3], N)
    assert found.sd == pytest.approx(math.sqrt(0.02))
    half = 12.7062047 * math.sqrt(0.02) / math.sqrt(2)  # t of 1 degree of freedom at 97.5 %
    assert (found.low, found.high) == (pytest.approx(0.2 - half), pytest.approx(0.2 + half))


@pytest.mark.parametrize("value", [0.0, 0.8977, -0.25])
@pytest.mark.parametrize("count", [2, 5])
def test_equal_values_have_the_resolution_of_an_error(value: float, count: int) -> None:
    found = interval([value] * count, N)
    assert (found.n, found.sd, found.flag) == (count, 0.0, Flag.NO_SPREAD)
    assert (found.low, found.high) == (pytest.approx(value - 1 / N), pytest.approx(value + 1 / N))


def test_rounding_is_no_spread() -> None:
    assert interval([0.3 - 0.1, 0.2, 0.5 - 0.3], N).flag is Flag.NO_SPREAD


def test_one_example_of_difference_is_spread() -> None:
    found = interval([0.0, 0.0, 1 / N], N)
    assert found.flag is Flag.NONE
    assert found.sd is not None and found.sd > 0


def test_one_value_has_no_interval() -> None:
    found = interval([0.5], N)
    assert (found.n, found.mean, found.sd, found.low, found.high) == (1, 0.5, None, None, None)
    assert found.flag is Flag.ONE_VALUE


def test_no_value_is_null() -> None:
    found = interval([], N)
    assert (found.n, found.mean, found.low, found.high, found.flag) == (0, None, None, None, Flag.NO_VALUE)


def test_a_corrected_level_is_a_wider_interval() -> None:
    values = [0.61, 0.65, 0.70, 0.66, 0.58]
    found = interval(values, N, 1 - 0.05 / 3)
    low, high = stats.t.interval(1 - 0.05 / 3, df=4, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_arrays_and_single_studies_agree() -> None:
    values = np.random.default_rng(0).normal(0.3, 0.1, (4, 3, 5))
    values[0, 0] = 0.25
    found = bounds(values, 1 / N, 0.99)
    for index in np.ndindex(4, 3):
        one = interval(values[index], N, 0.99)
        assert (one.mean, one.low, one.high) == (found.mean[index], found.low[index], found.high[index])
    assert found.no_spread.sum() == 1 and found.high[0, 0] == pytest.approx(0.25 + 1 / N)


def test_p_value_is_scipys() -> None:
    values = [0.61, 0.65, 0.70, 0.66, 0.58]
    assert p_value(estimate(values, 0.001), 0.6) == pytest.approx(stats.ttest_1samp(values, 0.6).pvalue)
    assert p_value(estimate([0.5, 0.5], 0.001), 0.6) is None
    assert p_value(estimate([0.5], 0.001), 0.6) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, None]) == [pytest.approx(0.04), None]
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_needed_n_is_the_least_that_is_narrow_enough() -> None:
    n = needed_n(distance=1.0, sd=1.0, confidence=0.95)
    assert n is not None and n > 3
    assert stats.t.ppf(0.975, n - 1) / math.sqrt(n) < 1 <= stats.t.ppf(0.975, n - 2) / math.sqrt(n - 1)
    assert needed_n(1e-6, 1.0, 0.95) is None


@pytest.mark.parametrize("table", [(3, 3, 0, 3), (4, 5, 1, 5), (2, 10, 2, 10), (0, 4, 0, 4)])
def test_counts_are_fishers_exact_test(table: tuple[int, int, int, int]) -> None:
    failed, n, other, n_other = table
    expected = stats.fisher_exact([[failed, n - failed], [other, n_other - other]], alternative="greater").pvalue
    assert count_p(*table) == pytest.approx(expected)
