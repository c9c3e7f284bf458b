"""Rows for W&B against a plain computation of each number."""

import math

import pytest

from plainres.tracking.history import History, profile_scalars


def update(step, **values):
    return {"step": step, "kind": "update", "values": values}


def evaluation(step, **values):
    return {"step": step, "kind": "eval", "values": values}


def layers(step, grad, ratio):
    return {"step": step, "values": {"layer": {"grad_norm": grad}, "block": {"branch_ratio": ratio}}}


def test_a_step_has_one_row_with_all_that_stands_under_it():
    steps = [evaluation(0, train_error=0.9, val_loss=None), update(0, lr=0.1, grad_norm_total=2.0, clip_coef=1.0),
             evaluation(3, train_error=0.5)]  # fmt: skip
    rows = dict(History(8).rows(steps, [layers(0, [1.0, 2.0, 4.0], [None])]))
    assert list(rows) == [0, 3]
    expected = {"train_error": 0.9, "lr": 0.1, "grad_norm_total": 2.0}
    expected |= {"grad_norm/first": 1.0, "grad_norm/last": 4.0, "grad_norm/min": 1.0, "grad_norm/max": 4.0}
    assert rows[0].scalars == pytest.approx(expected | {"grad_norm/log_slope": math.log(2)})
    assert rows[3].scalars == {"train_error": 0.5} and not rows[3].profiles


def test_the_slope_is_that_of_the_least_squares_line():
    values = {0: 3.0, 1: 0.5, 3: 0.25, 6: 7.0}
    y = [math.log(v) for v in values.values()]
    mean_x, mean_y = sum(values) / 4, sum(y) / 4
    slope = sum((x - mean_x) * (v - mean_y) for x, v in zip(values, y, strict=True))
    slope /= sum((x - mean_x) ** 2 for x in values)
    found = profile_scalars("grad_norm", [(0, 3.0), (1, 0.5), (2, 0.0), (3, 0.25), (6, 7.0)])
    assert found["grad_norm/log_slope"] == pytest.approx(slope)
    assert found["grad_norm/min"] == 0, "a gradient of 0 has no logarithm, and is the smallest all the same"


@pytest.mark.parametrize("pairs", [[(0, 1.0)], [(0, 0.0), (1, 0.0)], [(1, 2.0), (2, 0.0)]])
def test_no_slope_through_fewer_than_two_points(pairs):
    found = profile_scalars("grad_norm", pairs)
    assert "grad_norm/log_slope" not in found and len(found) == 4


def test_what_does_not_exist_is_left_out_of_a_profile():
    assert profile_scalars("branch_ratio", []) == {}
    ((_, row),) = History(1).rows([], [layers(0, [None, 0.1], [None])])
    assert row.profiles == {"grad_norm": [(1, pytest.approx(0.1))]}


@pytest.mark.parametrize(
    ("probed", "sent"),
    [
        ([0, 1, 2, 4, 8, 16, 32, *range(50, 600, 50), 599], [0, 200, 400, 599]),
        (list(range(600)), [0, 200, 400, 599]),
        ([0, 400, 599], [0, 400, 599]),
    ],
)
def test_profiles_are_sent_at_a_few_moments_however_often_a_run_is_probed(probed, sent):
    history = History(600)
    rows = [row for step in probed for row in history.rows([], [layers(step, [1.0], [0.5])])]
    assert [number for number, step in rows if step.profiles] == sent
    assert all(step.scalars["branch_ratio/max"] == 0.5 for _, step in rows)
