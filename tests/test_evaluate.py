import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plainres import evaluate as module
from plainres.data.split import Split
from plainres.evaluate import error_and_loss, error_with_batch_statistics, evaluate
from plainres.models.layer import BatchNorm
from plainres.seeding import evaluation_order


@pytest.fixture(params=["plain", "residual"])
def network(request, make_conf, make_network, tiny_data):
    """A network whose running statistics are not those of a fresh one, and far from those of a batch."""
    found = make_network(make_conf(request.param))
    with torch.no_grad():
        for _ in range(3):
            found(tiny_data.train.images * 2 + 1)
    return found


def loop(network, x_NCHW, y_N):
    """Example by example in float64."""
    double = copy.deepcopy(network).double().eval()
    wrong, loss = 0, 0.0
    with torch.no_grad():
        for x, y in zip(x_NCHW.double(), y_N, strict=True):
            logits = double(x[None])[0]
            wrong += int(logits.argmax() != y)
            loss += float(torch.logsumexp(logits, 0) - logits[y])
    return wrong / len(y_N), loss / len(y_N)


def test_error_and_loss_equal_a_plain_float64_loop(network, tiny_data):
    found = evaluate(network, tiny_data)
    train = loop(network, tiny_data.train.images, tiny_data.train.y_N)
    val = loop(network, tiny_data.val.images, tiny_data.val.y_N)
    assert (found["train_error"], found["val_error"]) == (train[0], val[0])
    assert found["train_loss"] == pytest.approx(train[1], rel=1e-5)
    assert found["val_loss"] == pytest.approx(val[1], rel=1e-5)
    assert 0 < found["train_error"] < 1


@pytest.mark.parametrize("chunk", [1, 7, 49, 50])
def test_the_size_of_a_chunk_does_not_matter(monkeypatch, network, tiny_data, chunk):
    whole = error_and_loss(network, tiny_data.train)
    monkeypatch.setattr(module, "MAX_CHUNK", chunk)
    error, loss = error_and_loss(network, tiny_data.train)
    assert error == whole[0] and loss == pytest.approx(whole[1], rel=1e-6)


class HandNorm(torch.nn.Module):
    """Batch statistics, whatever the mode."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)


def replace_norms(network):
    network = copy.deepcopy(network).double()
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, BatchNorm):
                setattr(parent, name, HandNorm(child))
    return network


@pytest.mark.parametrize(
    ("batch", "sizes"), [(20, [20, 30]), (25, [25, 25]), (50, [50]), (8, [8] * 5 + [10]), (33, [50])]
)
def test_error_with_batch_statistics_equals_a_loop_by_hand(network, tiny_data, batch, sizes):
    hand, order, wrong = replace_norms(network), evaluation_order(50), 0
    for index in order.split(sizes):
        logits = hand(tiny_data.train.images[index].double())
        wrong += int((logits.argmax(1) != tiny_data.train.y_N[index]).sum())
    found = error_with_batch_statistics(network, tiny_data.train, batch)
    assert found == wrong / 50


def test_statistics_of_the_batch_and_running_ones_are_told_apart(network, tiny_data):
    for norm in (m for m in network.modules() if isinstance(m, BatchNorm)):
        norm.running_mean.fill_(100.0)
        norm.running_var.fill_(1e-4)
    train = tiny_data.train
    assert error_with_batch_statistics(network, train, 25) != error_and_loss(network, train)[0]


def bits(network):
    return [t.clone() for t in [*network.parameters(), *network.buffers(), *[p.grad for p in network.parameters()]]]


@pytest.mark.parametrize("training", [True, False])
def test_an_evaluation_writes_nothing_to_the_model(make_conf, make_flat, network, tiny_data, training):
    flat = make_flat(network, make_conf())
    F.cross_entropy(network(tiny_data.train.images), tiny_data.train.y_N).backward()
    network.train(training)
    network.stem.norm.eval()
    modes = [m.training for m in network.modules()]
    before, gradients = bits(network), flat.grad.clone()
    generators = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    evaluate(network, tiny_data)
    error_with_batch_statistics(network, tiny_data.train, 20)
    assert all(torch.equal(a, b) for a, b in zip(bits(network), before, strict=True))
    assert torch.equal(flat.grad, gradients)
    assert [m.training for m in network.modules()] == modes
    assert not any(m.batch_statistics for m in network.modules() if isinstance(m, BatchNorm))
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == generators[1:]


def test_a_failing_evaluation_leaves_the_mode_as_it_was(network, tiny_data):
    with pytest.raises(RuntimeError):
        error_with_batch_statistics(network, Split(torch.zeros(50, 1, 5, 5), tiny_data.train.y_N), 20)
    assert all(m.training for m in network.modules())
    assert not any(m.batch_statistics for m in network.modules() if isinstance(m, BatchNorm))
