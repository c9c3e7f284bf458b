"""The autocorrelation that white and brown noise have on a finite line, in closed form."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def expected_autocorrelation(covariance: Array, max_lag: int) -> Array:
    """Autocovariance of a centred line over its variance, both as expectations: (max_lag + 1,).

    Args:
        covariance: of the values at the n points of the line, (n, n). Centring takes the line's own mean away.
        max_lag: the largest lag.
    """
    n = len(covariance)
    centring = np.eye(n) - 1 / n
    centred = centring @ covariance @ centring
    traces: Array = np.array([np.trace(centred, k) for k in range(max_lag + 1)])
    share: Array = traces / traces[0]
    return share


def white(points: int, max_lag: int) -> Array:
    """Independent values: 1 at lag 0, then −(n − k) / (n(n − 1)), a little below 0."""
    return expected_autocorrelation(np.eye(points), max_lag)


def brown(points: int, max_lag: int) -> Array:
    """A random walk: covariance min(s, t)."""
    steps = np.arange(1, points + 1, dtype=float)
    return expected_autocorrelation(np.minimum.outer(steps, steps), max_lag)


def half_lag(autocorrelation: Array) -> float:
    """The lag at which it first falls below 1/2, between lags by a straight line; nan if it does not."""
    below = np.flatnonzero(autocorrelation < 0.5)
    if not below.size:
        return float("nan")
    k = int(below[0])
    upper, lower = autocorrelation[k - 1], autocorrelation[k]
    return float(k - 1 + (upper - 0.5) / (upper - lower))
