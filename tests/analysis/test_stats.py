"""Intervals against scipy called plainly, hand computation, and the inputs that usually give nan."""

import math

import numpy as np
import pytest
from scipy import stats

from plainres.analysis.stats import Flag, interval

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
