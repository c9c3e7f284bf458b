"""The shape contract: a mismatch is named before any training, and nothing is broadcast in silence."""

import pytest
import torch
from torch import nn

import plainres.signature as module
from plainres.audit import audit
from plainres.errors import UserError
from plainres.models.families import build
from plainres.models.shapes import ShapesOnly, check_additions, shortcuts_that_fit


def network_with(make_preset, family, index, change, connection="residual"):
    conf = make_preset(connection, family)
    network = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3)
    with torch.device("meta"):
        change(network.blocks[index])
    return network


@pytest.mark.parametrize("family", ["mlp", "cnn", "cifar_resnet", "vit", "transformer"])
@pytest.mark.parametrize("connection", ["plain", "residual", "highway", "concat", "projected"])
def test_every_family_keeps_the_contract(make_preset, family, connection):
    conf = make_preset(connection, family)
    network = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3)
    check_additions(network, 4, (1, 8, 8))
    assert not any(m._forward_pre_hooks for m in network.modules())


def memory(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4, 2)])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("training", [True, False])
def test_shapes_are_those_that_torch_finds(shape, order, training):
    if len(shape) == 2 and order is torch.channels_last:
        pytest.skip("an order of images")
    x = torch.empty(shape, device="meta").to(memory_format=order)
    w, b, mean, var = (torch.empty(3, device="meta") for _ in range(4))

    def found():
        normed = torch.ops.aten.native_batch_norm.default(x, w, b, mean, var, training, 0.1, 1e-5)
        return [memory(tensor) for tensor in (*normed, torch.relu(x), torch.nn.functional.relu(normed[0]), x + x)]

    with torch.no_grad():
        theirs = found()
        with ShapesOnly():
            assert found() == theirs


def test_a_branch_of_width_1_is_not_broadcast(make_preset):
    def narrow(block):
        block.branch = nn.Linear(6, 1)

    network = network_with(make_preset, "mlp", 1, narrow)
    with pytest.raises(UserError) as caught:
        check_additions(network, 4, (1, 8, 8))
    assert str(caught.value) == (
        "block 1: the shortcut gives 6 and the branch 1, which cannot be joined; what fits is a projection 6 → 1"
    )
    assert not any(m._forward_pre_hooks for m in network.modules())


def test_a_strided_branch_names_what_fits(make_preset):
    def strided(block):
        block.branch = nn.Conv2d(6, 12, 3, stride=2, padding=1)

    for connection in ("residual", "concat"):
        with pytest.raises(UserError) as caught:
            check_additions(network_with(make_preset, "cnn", 0, strided, connection), 4, (1, 8, 8))
        assert str(caught.value) == (
            "block 0: the shortcut gives 6x8x8 and the branch 12x4x4, which cannot be joined; what fits is "
            "zero_pad or pool with 6 more channels or a projection 6 → 12 with stride 2"
        )


@pytest.mark.parametrize(("h", "f", "words"), [
    ((6, 8, 8), (3, 8, 8), "what fits is a projection 6 → 3"),  # option A cannot lose channels
    ((6, 7, 7), (6, 4, 4), "what fits is zero_pad or pool with 0 more channels or a projection 6 → 6 with stride 2"),
    ((6, 8, 8), (6, 5, 4), "none fits: the branch must keep the sides, or divide them by one stride"),
    ((6, 4, 4), (6, 8, 8), "none fits: the branch must keep the sides, or divide them by one stride"),
    ((5, 16), (5, 8), "what fits is a projection 16 → 8"),
    ((5, 16), (4, 16), "none fits: the branch must keep the sides, or divide them by one stride"),
    ((6, 8, 8), (384,), "none fits: the branch must keep the number of dimensions"),
])  # fmt: skip
def test_what_fits(h, f, words):
    assert shortcuts_that_fit(h, f) == words


def test_the_audit_refuses_before_training(monkeypatch, make_preset, tiny_data):
    def narrow(*args):
        network = build(*args)
        with torch.device("meta"):
            network.blocks[0].branch = nn.Linear(6, 1)
        return network

    monkeypatch.setattr(module, "build", narrow)
    monkeypatch.setattr(module, "_recorded", {})
    with pytest.raises(UserError, match=r"^block 0: the shortcut gives 6 and the branch 1"):
        audit(make_preset("residual", "mlp", {"trainer.batch": 8}), tiny_data)
