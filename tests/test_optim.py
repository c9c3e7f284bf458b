import itertools
import math

import pytest
import torch

from plainres.optim import build_optimizer, learning_rate, set_learning_rate
from plainres.options import DecayRule, OptimizerName, ScheduleName
from plainres.schema import OptimizerConf, ScheduleConf


def schedule(name, warmup=0, marks=(), factor=0.1):
    return ScheduleConf(ScheduleName(name), warmup, list(marks), factor)


@pytest.mark.parametrize("name", list(ScheduleName))
def test_warm_up_is_linear_and_reaches_the_base_with_its_last_step(name):
    conf = schedule(name, warmup=4, marks=[50] if name == "step" else [])
    rates = [learning_rate(conf, 0.8, step, 100) for step in range(5)]
    assert rates[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8], rel=1e-15)
    assert rates[3] == rates[4] == 0.8


def test_constant():
    assert {learning_rate(schedule("constant"), 0.3, step, 50) for step in range(50)} == {0.3}


@pytest.mark.parametrize(("step", "share"), [(20, 1.0), (30, (1 + math.sqrt(0.5)) / 2), (40, 0.5), (60, 0.0)])
def test_cosine_from_the_end_of_the_warm_up_to_0_at_the_end_of_the_budget(step, share):
    assert learning_rate(schedule("cosine", warmup=20), 2.0, step, 60) == pytest.approx(2.0 * share, abs=1e-15)


def test_cosine_falls_all_the_time_and_its_last_update_is_still_one():
    rates = [learning_rate(schedule("cosine", warmup=5), 1.0, step, 40) for step in range(5, 40)]
    assert all(a > b for a, b in itertools.pairwise(rates))
    assert rates[-1] == pytest.approx(0.5 * (1 - math.cos(math.pi / 35)))


def test_step_takes_the_factor_at_every_milestone():
    conf = schedule("step", marks=[3, 6], factor=0.5)
    rates = [learning_rate(conf, 8.0, step, 9) for step in range(9)]
    assert rates == [8.0] * 3 + [4.0] * 3 + [2.0] * 3


def test_a_milestone_inside_the_warm_up_counts_afterwards():
    conf = schedule("step", warmup=4, marks=[2], factor=0.5)
    assert [learning_rate(conf, 1.0, step, 9) for step in (1, 3, 4)] == [0.5, 1.0, 0.5]


@pytest.mark.parametrize("fused", [False, True])
def test_optimizer_settings_arrive(make_conf, make_network, make_flat, fused):
    conf = make_conf("plain", {"optimizer.decay": "matrices"})
    flat = make_flat(make_network(conf), conf)
    opt = OptimizerConf(lr=0.7, momentum=0.3, nesterov=True, weight_decay=0.2, decay=DecayRule.matrices)
    sgd = build_optimizer(opt, flat, fused)
    decayed, rest = sgd.param_groups
    assert type(sgd) is torch.optim.SGD
    assert [(g["weight_decay"], g["momentum"], g["nesterov"], g["lr"]) for g in (decayed, rest)] == [
        (0.2, 0.3, True, 0.7),
        (0.0, 0.3, True, 0.7),
    ]
    assert decayed["params"][0].data_ptr() == flat.data.data_ptr()
    adamw = build_optimizer(OptimizerConf(OptimizerName.adamw, lr=0.1, betas=[0.5, 0.6], eps=1e-3), flat, fused)
    assert type(adamw) is torch.optim.AdamW
    assert [adamw.param_groups[0][k] for k in ("lr", "betas", "eps")] == [0.1, (0.5, 0.6), 1e-3]
    set_learning_rate(sgd, 0.05)
    assert [g["lr"] for g in sgd.param_groups] == [0.05, 0.05]
