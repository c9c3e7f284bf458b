"""Means and paired differences with two-sided t intervals; defined for every input, never nan.

``bounds`` is the one implementation, on arrays of any number of studies; ``interval`` is it for one list of values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

CONFIDENCE = 0.95
ERROR_RATE = 1 - CONFIDENCE
SAME = 1e-9  # errors are multiples of 1/N with N far below 1e9: what differs by less is rounding
MAX_N = 1000  # a claim that needs more seeds than that will not be decided by seeds


class Flag(StrEnum):
    """Why an interval is not an ordinary t interval."""

    NONE = ""
    NO_VALUE = "n = 0"
    ONE_VALUE = "n = 1"
    NO_SPREAD = "no spread"


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` values, with its interval. Fractions in, fractions out; what does not exist is None.

    Attributes:
        n: number of values (or of pairs).
        mean: their mean.
        sd: sample standard deviation, n − 1 in the denominator.
        low: lower end of the interval. It may lie below 0 also for an error: it is not cut.
        high: upper end.
        flag: "n = 0" and "n = 1" have no interval; "no spread" has mean ± 1/N, the resolution of an error.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    flag: Flag


@dataclass(frozen=True)
class Bounds:
    """Means with intervals, for arrays: every attribute has the shape of the values without their last axis."""

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    no_spread: np.ndarray


def t_quantile(df: int, confidence: float) -> float:
    """The upper quantile of a two-sided t interval (scipy.stats.t.ppf is the same number, and slower to import)."""
    from scipy.special import stdtrit

    return float(stdtrit(df, (1 + confidence) / 2))


def bounds(values: np.ndarray, resolution: float | np.ndarray, confidence: float = CONFIDENCE) -> Bounds:
    """Two-sided t intervals over the last axis.

    Args:
        values: (..., n) with n ≥ 2, finite, one value per seed.
        resolution: half-width where all n values are equal: equal values do not show that the true spread is 0,
            only that it is below what can be resolved, 1/N for an error counted on N examples. A number, or (...).
        confidence: level of each interval, such as 1 − 0.05/m.
    """
    n = values.shape[-1]
    mean, sd = values.mean(axis=-1), values.std(axis=-1, ddof=1)
    no_spread = np.ptp(values, axis=-1) <= SAME
    half = np.where(no_spread, resolution, t_quantile(n - 1, confidence) * sd / math.sqrt(n))
    return Bounds(mean, np.where(no_spread, 0.0, sd), mean - half, mean + half, no_spread)


def interval(values: Sequence[float] | np.ndarray, num_examples: int, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of errors, or of paired differences of errors, with a t interval.

    Args:
        values: one finite value per seed, as fractions.
        num_examples: N, the number of examples the errors are counted on: 1/N is the resolution.
        confidence: level of the interval.
    """
    return estimate(values, 1 / num_examples, confidence)


def estimate(values: Sequence[float] | np.ndarray, resolution: float, confidence: float = CONFIDENCE) -> Estimate:
    """``bounds`` for one list of values of any length, as an ``Estimate`` in the values' own unit."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Estimate(0, None, None, None, None, Flag.NO_VALUE)
    if data.size == 1:
        return Estimate(1, float(data[0]), None, None, None, Flag.ONE_VALUE)
    found = bounds(data, resolution, confidence)
    flag = Flag.NO_SPREAD if found.no_spread else Flag.NONE
    return Estimate(data.size, float(found.mean), float(found.sd), float(found.low), float(found.high), flag)


def p_value(found: Estimate, limit: float) -> float | None:
    """Two-sided p-value of "the true mean is ``limit``"; None without a spread (no t statistic exists)."""
    if found.mean is None or not found.sd:
        return None
    from scipy.special import stdtr

    t = (found.mean - limit) / (found.sd / math.sqrt(found.n))
    return float(2 * stdtr(found.n - 1, -abs(t)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment (Holm 1979); a p-value that does not exist counts as a test, and stays None."""
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        adjusted[i] = highest
    return adjusted


def needed_n(distance: float, sd: float, confidence: float) -> int | None:
    """The least n ≥ 3 whose interval would be narrower than ``distance`` on each side, were mean and sd as now.

    Args:
        distance: from the mean to the nearest margin.
        sd: standard deviation of the values at hand.
        confidence: level of the interval.

    Returns:
        None if more than ``MAX_N`` values would be needed.
    """
    for n in range(3, MAX_N + 1):
        if t_quantile(n - 1, confidence) * sd / math.sqrt(n) < distance:
            return n
    return None


def count_p(failed: int, n: int, failed_other: int, n_other: int) -> float:
    """One-sided p-value of Fisher's exact test: at least ``failed`` of ``n`` were chance as good for both groups."""
    total = failed + failed_other
    ways = sum(math.comb(n, k) * math.comb(n_other, total - k) for k in range(failed, min(n, total) + 1))
    return ways / math.comb(n + n_other, total)
