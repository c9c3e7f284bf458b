"""One comparison: the rule on intervals, the floor of 0, split seeds, and how many seeds would decide."""

import numpy as np
import pytest

from plainres.analysis.compare import compare, corrected, decide, differences, is_split, num_failed
from plainres.analysis.rules import ClaimStatus, Direction, Part
from plainres.analysis.stats import Flag

S, C, U = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNDECIDED
ABOVE = Part("x", "percentage points", 1.0, Direction.ABOVE)


@pytest.mark.parametrize(
    ("direction", "low", "high", "status"),
    [
        (Direction.ABOVE, 1.1, 2.0, S),
        (Direction.ABOVE, 1.0, 2.0, U),  # touching the margin is not beyond it
        (Direction.ABOVE, -3.0, 1.0, C),
        (Direction.ABOVE, 0.5, 1.5, U),
        (Direction.NO_RISE, -0.5, 1.0, S),
        (Direction.NO_RISE, -9.0, -3.0, S),  # a fall is no rise
        (Direction.NO_RISE, 1.5, 2.0, C),
        (Direction.NO_RISE, -9.0, 9.0, U),  # wide: not significant is no support
        (Direction.WITHIN, -1.0, 1.0, S),
        (Direction.WITHIN, -2.0, 0.5, U),
        (Direction.WITHIN, 1.5, 2.0, C),
        (Direction.WITHIN, -3.0, -1.5, C),
        (Direction.ABOVE, None, None, U),
    ],
)
def test_a_whole_interval_decides(direction: Direction, low: float, high: float, status: ClaimStatus) -> None:
    assert decide(direction, low, high, 1.0) is status


def seeds(*values: float) -> dict[str, float]:
    return {str(i): v for i, v in enumerate(values)}


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_three_seeds_decide_nothing(n: int) -> None:
    found = compare("rise", ABOVE, "x", 20, seeds(*[50.0] * n), 0.95, 0.07)
    assert found.status is U and found.why == f"{n} of at least 3 seeds"
    assert found.n_needed == 3


def test_no_spread_is_flagged_and_decided_by_the_resolution() -> None:
    found = compare("rise", ABOVE, "x", 20, seeds(50, 50, 50), 0.95, 0.07)
    assert (found.status, found.flag, found.low, found.p) == (S, Flag.NO_SPREAD, pytest.approx(49.93), None)
    assert compare("rise", ABOVE, "x", 20, seeds(1, 1, 1), 0.95, 0.07).status is U


def test_an_undecided_one_says_which_n_would_decide() -> None:
    values = [3.0, 0.5, 5.0]
    found = compare("rise", ABOVE, "x", 20, seeds(*values), 0.95, 0.07)
    assert found.status is U and found.n_needed is not None and found.n_needed > 3
    spread = np.std(values, ddof=1)
    rng = np.random.default_rng(0).normal(size=found.n_needed)
    as_now = np.mean(values) + (rng - rng.mean()) / rng.std(ddof=1) * spread
    assert compare("rise", ABOVE, "x", 20, seeds(*as_now), 0.95, 0.07).status is S


def test_errors_on_the_floor_leave_it_to_the_loss() -> None:
    floor, one, loss = np.zeros(3), np.array([0, 1 / 100, 0]), np.array([-2.0, -2.5, -3.0])
    found = differences(one, floor, loss, loss - 0.5, 100)
    assert bool(found.on_floor) and found.values == pytest.approx([0.5, 0.5, 0.5])
    above = differences(np.array([0, 0.02, 0]), floor, loss, loss, 100)
    assert not bool(above.on_floor) and above.values == pytest.approx([0, 2, 0])
    decided = compare("rise", ABOVE, "x", 20, seeds(1.2, 1.4, 1.3), 0.95, 1e-6, on_floor=True)
    assert (decided.status, decided.unit, decided.margin) == (S, "decades of training loss", 1.0)


def test_split_seeds_need_their_counts_too() -> None:
    """Three seeds that all fail by luck have a tiny spread: where a cell is split, the interval alone is no proof."""
    values = seeds(88.9, 89.0, 89.1)
    assert compare("rise", ABOVE, "x", 20, values, corrected(3), 0.07).status is S
    found = compare("rise", ABOVE, "x", 20, values, corrected(3), 0.07, count=0.05)
    assert found.status is U and "split" in found.why
    assert found.n_needed == 4  # 1 / C(8, 4) = 0.0143 is the first below 0.05 / 3
    assert compare("rise", ABOVE, "x", 20, values, corrected(3), 0.07, count=0.01).status is S


def test_what_is_split_and_what_failed() -> None:
    errors = np.array([[0.0, 0.9, 0.9], [0.5, 0.9, 0.8], [0.0, 0.01, 0.0]])
    assert is_split(errors, 0.9).tolist() == [True, False, False]
    assert num_failed(errors, np.full(3, 0.9)).tolist() == [2, 3, 0]
