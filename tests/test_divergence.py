import math

import pytest
import torch
import torch.nn.functional as F

from plainres.divergence import DeferredGuard, ImmediateGuard, name_first_non_finite
from plainres.optim import build_optimizer

INF, NAN = torch.tensor(math.inf), torch.tensor(math.nan)
ONE = torch.tensor(1.0)


@pytest.mark.parametrize(("loss", "norm", "bad"), [(ONE, ONE, None), (NAN, ONE, 3), (ONE, INF, 3), (INF, NAN, 3)])
def test_immediate_guard(loss, norm, bad):
    guard = ImmediateGuard()
    assert guard.check(3, loss, norm) == bad and guard.flush() is None


@pytest.fixture
def parts(make_conf, make_network, make_flat):
    def make(connection="plain", values=None, fused=True):
        conf = make_conf(connection, values)
        network = make_network(conf)
        flat = make_flat(network, conf)
        return network, flat, build_optimizer(conf.optimizer, flat, fused=fused)

    return make


@pytest.mark.parametrize("first", [0, 40])
def test_deferred_guard_counts_from_where_it_started(parts, first):
    guard = DeferredGuard(parts()[2], "cpu")
    guard.start(first)
    assert guard.flush() is None
    for step, loss in enumerate([ONE, ONE, INF, ONE], start=first):
        assert guard.check(step, loss, ONE) is None
    assert guard.flush() == guard.flush() == first + 2


@pytest.mark.parametrize("loss", [NAN, INF, -INF])
def test_deferred_guard_sees_loss_and_gradient(parts, loss):
    for pair in ((loss, ONE), (ONE, loss)):
        guard = DeferredGuard(parts()[2], "cpu")
        guard.check(0, *pair)
        assert guard.flush() == 0


def train(parts, guard, data, steps, poison_at):
    """Steps on alternating batches; from ``poison_at`` on the input is not finite."""
    network, flat, optimizer = parts
    for step in range(steps):
        x, y = data.train.images[step::3], data.train.y_N[step::3]
        flat.zero_grad()
        loss = F.cross_entropy(network(x * math.inf if step == poison_at else x), y)
        loss.backward()
        if guard.check(step, loss, torch.linalg.vector_norm(flat.grad)) is not None:
            return step
        optimizer.step()
    return guard.flush()


@pytest.mark.parametrize("values", [{}, {"optimizer.name": "adamw", "optimizer.lr": 1e-3}], ids=["sgd", "adamw"])
@pytest.mark.parametrize("poison_at", [0, 2])
def test_both_guards_find_the_same_step_and_keep_the_same_weights(parts, tiny_data, values, poison_at):
    at_once, deferred = parts("residual", values), parts("residual", values)
    assert train(at_once, ImmediateGuard(), tiny_data, 6, poison_at) == poison_at
    assert train(deferred, DeferredGuard(deferred[2], "cpu"), tiny_data, 6, poison_at) == poison_at
    assert torch.isfinite(deferred[1].data).all()
    assert torch.equal(at_once[1].data, deferred[1].data)


def first_bad(parts, data, change, step=5):
    network, flat, _ = parts
    with torch.no_grad():
        change(network)
    return name_first_non_finite(network, flat, [(data.train.images, data.train.y_N)], step)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("stem.op.weight", "stem.op"),
        ("blocks.1.branch.0.norm.weight", "blocks.1.branch.0.norm"),
        ("head.bias", "head"),
    ],
)
@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_the_first_layer_whose_output_is_not_finite_is_named(parts, tiny_data, connection, name, layer):
    found = first_bad(parts(connection), tiny_data, lambda n: dict(n.named_parameters())[name].fill_(math.nan))
    assert (found.step, found.where, found.layer) == (5, "forward", layer)


def test_an_addition_that_overflows_is_named(parts, tiny_data):
    def change(network):
        network.stem.norm.bias.fill_(3e38)
        network.blocks[0].branch[0].op.weight.zero_()
        network.blocks[0].branch[1].norm.bias.fill_(3e38)

    found = first_bad(parts("residual"), tiny_data, change)
    assert (found.where, found.layer) == ("forward", "blocks.0.merge")


def test_a_loss_that_overflows_is_named(parts, tiny_data):
    def change(network):
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([3e38, -3e38, 0.0]))

    found = first_bad(parts(), tiny_data, change)
    assert (found.where, found.layer) == ("loss", "loss")


@pytest.mark.parametrize("poisoned", [["stem.op.weight", "blocks.0.branch.1.op.weight"], ["head.weight", "head.bias"]])
def test_else_a_parameter_in_backward_order(parts, tiny_data, poisoned):
    network, flat, _ = parts()
    named = dict(network.named_parameters())
    for name in poisoned:
        named[name].register_hook(lambda grad: grad * math.inf)
    found = name_first_non_finite(network, flat, [(tiny_data.train.images, tiny_data.train.y_N)], 5)
    assert (found.where, found.layer) == ("backward", poisoned[-1])


def test_a_global_norm_that_overflows_is_named(parts, tiny_data):
    network, flat, _ = parts()
    network.head.bias.register_hook(lambda grad: grad * 1e30)
    found = name_first_non_finite(network, flat, [(tiny_data.train.images, tiny_data.train.y_N)], 5)
    assert torch.isfinite(flat.grad).all() and not torch.isfinite(torch.linalg.vector_norm(flat.grad))
    assert (found.where, found.layer) == ("backward", "global gradient norm (overflow)")


def test_naming_leaves_no_hooks(parts, tiny_data):
    network, flat, _ = parts()
    name_first_non_finite(network, flat, [(tiny_data.train.images, tiny_data.train.y_N)], 5)
    assert not any(m._forward_hooks for m in network.modules())
