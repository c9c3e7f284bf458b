import pytest

from plainres.probes.cadence import batchstats_steps, evaluation_steps, probe_steps


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        (0, 600, set()),
        (1, 5, {0, 1, 2, 3, 4}),
        (2, 6, {0, 1, 2, 4, 5}),
        (50, 600, {0, 1, 2, 4, 8, 16, 32, *range(50, 600, 50), 599}),
        (8, 20, {0, 1, 2, 4, 8, 16, 19}),
        (1000, 20, {0, 1, 2, 4, 8, 16, 19}),
        (7, 1, {0}),
        (50, 3, {0, 1, 2}),
    ],
)
def test_probe_steps(every, steps, expected):
    assert probe_steps(every, steps) == expected


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        (1, 4, {0, 1, 2, 3, 4}),
        (50, 600, {0, 1, 2, 5, 10, 20, *range(50, 601, 50)}),
        (51, 120, {0, 1, 2, 5, 10, 20, 50, 51, 102, 120}),
        (100, 250, {0, 1, 2, 5, 10, 20, 50, 100, 200, 250}),
        (1000, 7, {0, 1, 2, 5, 7}),
        (3, 8, {0, 1, 2, 3, 6, 8}),
    ],
)
def test_evaluation_steps(every, steps, expected):
    assert evaluation_steps(every, steps, True) == expected
    assert evaluation_steps(every, steps, False) == {s for s in expected if s % every == 0 or s == steps}


@pytest.mark.parametrize(
    ("every", "eval_every", "steps", "expected"),
    [
        (150, 50, 600, {0, 150, 300, 450, 600}),
        (50, 50, 120, {0, 50, 100, 120}),
        (1, 50, 100, {0, 1, 2, 5, 10, 20, 50, 100}),
        (1000, 50, 100, {0, 100}),
    ],
)
def test_batchstats_steps_are_evaluations(every, eval_every, steps, expected):
    assert batchstats_steps(every, steps, evaluation_steps(eval_every, steps, True)) == expected
