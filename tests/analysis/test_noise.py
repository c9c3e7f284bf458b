"""Expected autocorrelations against simulated noise, and the half lag by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from plainres.analysis.noise import Array, brown, half_lag, white


def simulated(lines: Array, max_lag: int) -> Array:
    """Sums over lines (runs, points) of the centred products, lag by lag."""
    centred = lines - lines.mean(1, keepdims=True)
    n = lines.shape[1]
    return np.array([(centred[:, : n - k] * centred[:, k:]).sum() for k in range(max_lag + 1)]) / (centred**2).sum()


@pytest.mark.parametrize(("noise", "walk"), [(white, False), (brown, True)], ids=["white", "brown"])
def test_closed_form_is_what_a_simulation_gives(noise: Callable[[int, int], Array], walk: bool) -> None:
    values = np.random.default_rng(0).normal(size=(20_000, 32))
    lines = values.cumsum(1) if walk else values
    assert noise(32, 16) == pytest.approx(simulated(lines, 16), abs=0.01)


def test_white_noise_in_a_formula() -> None:
    n, k = 50, np.arange(1, 26)
    assert white(n, 25)[1:] == pytest.approx(-(n - k) / (n * (n - 1)))
    assert white(n, 25)[0] == 1


def test_half_lag() -> None:
    assert half_lag(np.array([1.0, 0.8, 0.4, 0.0])) == pytest.approx(1.75)
    assert half_lag(np.array([1.0, 0.0])) == pytest.approx(0.5)
    assert math.isnan(half_lag(np.array([1.0, 0.9, 0.8]))) and math.isnan(half_lag(np.full(3, math.nan)))
