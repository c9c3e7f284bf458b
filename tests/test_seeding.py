import hashlib
import random

import numpy as np
import pytest
import torch

from plainres.data import load
from plainres.schema import DataConf
from plainres.seeding import epoch_order, evaluation_order, generator, set_determinism

PIN = "every stored run was trained on this order; update the pin only with a note under Numerics in CHANGELOG"


def draws(*name, seed=0):
    return torch.randn(8, generator=generator(seed, *name))


def test_a_stream_is_a_function_of_seed_and_name():
    first = draws("init", "stem.op.weight")
    torch.manual_seed(99)
    draws("something else")
    assert torch.equal(draws("init", "stem.op.weight"), first)
    others = [
        draws("init", "stem.op.weight", seed=1),
        draws("init", "head.weight"),
        draws("order", 0),
        draws("order", 1),
    ]
    assert len({tuple(t.tolist()) for t in [first, *others]}) == 5


def test_the_seed_of_a_stream_is_the_sha256_of_seed_and_name():
    number = int.from_bytes(hashlib.sha256(b"7/order/3").digest()[:8], "big") >> 1
    expected = torch.randperm(50, generator=torch.Generator().manual_seed(number))
    assert torch.equal(epoch_order(7, 3, 50), expected)


def test_a_stream_is_pinned():
    assert epoch_order(0, 0, 8).tolist() == [7, 5, 6, 0, 3, 4, 1, 2], PIN


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_an_epoch_is_a_permutation_of_its_own(epoch):
    order = epoch_order(3, epoch, 101)
    assert order.sort().values.tolist() == list(range(101))
    assert not torch.equal(order, epoch_order(3, epoch + 1, 101))
    assert not torch.equal(order, epoch_order(4, epoch, 101))


def test_evaluation_order_is_fixed_and_no_epoch():
    assert torch.equal(evaluation_order(40), evaluation_order(40))
    assert evaluation_order(40).sort().values.tolist() == list(range(40))
    assert evaluation_order(40).tolist() != list(range(40))
    assert not torch.equal(evaluation_order(40), epoch_order(0, 0, 40))


def test_determinism_is_reset_whatever_the_run_before_left_behind():
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    set_determinism(1, True, "cpu")
    assert torch.get_num_threads() == 1 and torch.get_default_dtype() is torch.float32
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.are_deterministic_algorithms_enabled()
    set_determinism(1, False, "cpu")
    assert not torch.are_deterministic_algorithms_enabled()


def test_convolutions_compute_in_float32_too():
    torch.backends.cudnn.allow_tf32 = True
    set_determinism(1, True, "cpu")
    assert not torch.backends.cudnn.allow_tf32, "run.json says precision float32: no TF32 in cuDNN's convolutions"


def global_states():
    name, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), (name, keys.tolist(), *rest), random.getstate()


def test_a_whole_run_moves_no_global_generator(monkeypatch, execute, make_conf):
    load(DataConf())  # imports of libraries may draw (rich does); loading itself may not
    monkeypatch.setattr("plainres.data.dataset._last", None)
    before = global_states()
    outcome, _ = execute(make_conf("residual", {"trainer.steps": 3, "schedule.warmup_steps": 1, "probe.every": 1}))
    assert outcome.status == "complete"
    assert global_states() == before
