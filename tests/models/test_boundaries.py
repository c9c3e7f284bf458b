"""Blocks at a stage boundary: what stands in for the identity, and gates there, against float64 by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from plainres.models.families import build
from plainres.models.shortcuts import Pad, Projection

BOUNDARIES = ["zero_pad", "pool", "projection"]


def test_zero_pad_by_hand():
    x = torch.arange(1.0, 17.0).view(1, 1, 4, 4)
    y = Pad(1, 2, pool=False)(x)
    assert y.tolist() == [[[[1.0, 3.0], [9.0, 11.0]], [[0.0, 0.0], [0.0, 0.0]]]]


def test_pool_pad_by_hand():
    x = torch.arange(1.0, 17.0).view(1, 1, 4, 4)
    y = Pad(1, 2, pool=True)(x)
    assert y.tolist() == [[[[3.5, 5.5], [11.5, 13.5]], [[0.0, 0.0], [0.0, 0.0]]]]
    odd = Pad(0, 2, pool=True)(torch.arange(1.0, 10.0).view(1, 1, 3, 3))  # means of the pixels that are there
    assert odd.tolist() == [[[[3.0, 4.5], [7.5, 9.0]]]]


@pytest.mark.parametrize("side", [8, 7, 9])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_shapes_meet_at_every_boundary_also_of_odd_sides(make_preset, make_network, boundary, side):
    conf = make_preset("residual", "cifar_resnet", {"model.boundary": boundary})
    assert make_network(conf, (1, side, side))(torch.randn(4, 1, side, side)).shape == (4, 3)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("connection", "factor"), [("residual", 1.0), ("constant_scaling", 0.5), ("scaled", 1.0)])
def test_a_block_at_a_boundary(make_preset, make_network, boundary, connection, factor):
    values = {"model.boundary": boundary, "model.placement": "none"}
    block = make_network(make_preset(connection, "cifar_resnet", values)).blocks[1].double()
    x = torch.randn(4, 6, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if boundary == "projection":
        projection = next(m for m in block.shortcut.modules() if isinstance(m, Projection))
        z = F.conv2d(x, projection.op.weight, stride=2)
        h = F.batch_norm(z, None, None, training=True)
    else:
        kept = x[:, :, ::2, ::2] if boundary == "zero_pad" else x.unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))
        h = torch.cat([kept, torch.zeros_like(kept)], 1)
    scale = {"residual": 1.0, "constant_scaling": 0.5, "scaled": 0.1}[connection]
    f = F.conv2d(F.conv2d(x, block.branch[0].op.weight, stride=2, padding=1).clamp(min=0),
                 block.branch[1].op.weight, padding=1)  # fmt: skip
    assert torch.allclose(block(x), factor * h + scale * f, rtol=1e-9, atol=1e-9)


def test_dropout_on_the_shortcut_acts_at_boundaries_too(make_preset, make_network):
    block = make_network(make_preset("dropout_shortcut", "cifar_resnet", {"model.placement": "none"})).blocks[1]
    x = torch.rand(4, 6, 8, 8, generator=torch.Generator().manual_seed(0)) + 1
    h = (block(x) - block.branch(x))[:, :6]
    assert 0.3 < (h.abs() < 1e-4).double().mean() < 0.7
    assert torch.allclose(block.eval().shortcut(x)[:, :6], x[:, :, ::2, ::2])


# Gates at a boundary: g is a strided 1x1 convolution of x, so it has the shape of the block's output.

FORMS = {
    "exclusive": lambda g, h, f: (1 - g) * h + g * f,
    "shortcut_only": lambda g, h, f: (1 - g) * h + f,
    "branch_only": lambda g, h, f: h + g * f,
}


def resized(x, boundary, weight):
    """The shortcut without its gate, pixel by pixel."""
    if boundary == "projection":
        return torch.einsum("nchw,oc->nohw", x[:, :, ::2, ::2], weight)
    kept = x[:, :, ::2, ::2] if boundary == "zero_pad" else x.unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))
    return torch.cat([kept, torch.zeros(len(x), weight.shape[0] - x.shape[1], *kept.shape[2:]).to(x)], 1)


def convolved(x, weight, stride):
    """A 3x3 convolution with padding 1, as a sum over its nine places."""
    padded, (height, wide) = F.pad(x, (1, 1, 1, 1)), x.shape[2:]
    places = [(i, j) for i in range(3) for j in range(3)]
    return sum(
        torch.einsum("nchw,oc->nohw", padded[:, :, i : i + height : stride, j : j + wide : stride], weight[:, :, i, j])
        for i, j in places
    )


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("form", FORMS)
def test_a_gate_at_a_boundary_by_hand_with_its_gradients(make_preset, form, boundary):
    values = {"connection.gate": form, "model.boundary": boundary, "model.norm": "none", "model.placement": "none",
              "model.activation": "tanh", "model.width": 3}  # fmt: skip
    conf = make_preset("highway", "cifar_resnet", values)
    block = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3).blocks[1].to_empty(device="cpu").double()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in block.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64))
    x, weights = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((2, 3, 4, 4), (2, 6, 2, 2)))
    hand = {name: p.detach().clone().requires_grad_() for name, p in block.named_parameters()}

    def expected(x):
        z = torch.einsum("nchw,oc->nohw", x[:, :, ::2, ::2], hand["gate.op.weight"][:, :, 0, 0])
        g = 1 / (1 + torch.exp(-z - hand["gate.op.bias"].view(-1, 1, 1)))
        projection = hand.get("shortcut.op.weight", torch.empty(6, 3, 1, 1))[:, :, 0, 0]
        inner = torch.tanh(convolved(x, hand["branch.0.op.weight"], 2))
        return FORMS[form](g, resized(x, boundary, projection), convolved(inner, hand["branch.1.op.weight"], 1))

    sides = []
    for function, parameters in ((block, list(block.parameters())), (expected, list(hand.values()))):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        sides.append([y.detach(), *torch.autograd.grad((y * weights).sum(), [leaf, *parameters])])
    for name, a, b in zip(["y", "x", *hand], *sides, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11) and a.abs().max() > 0, name


@pytest.mark.parametrize(("form", "first", "added"), [
    ("exclusive", 0.75 * 5 + 0.25 * 8, 0.25 * 8), ("shortcut_only", 0.75 * 5 + 8, 8), ("branch_only", 5 + 0.25 * 8, 2),
])  # fmt: skip
def test_a_gate_at_a_boundary_in_the_head(make_preset, form, first, added):
    """x = 5 everywhere, F(x) = 8, g = 1/4: on the channel that x has, and on the one that option A adds as zeros."""
    values = {"connection.gate": form, "model.norm": "none", "model.placement": "none", "model.width": 1}
    conf = make_preset("highway", "cifar_resnet", values)
    block = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3).blocks[1].to_empty(device="cpu")
    assert block.gate.op.stride == (2, 2)
    with torch.no_grad():
        for p in block.parameters():
            p.zero_()
        block.gate.op.bias.fill_(math.log(1 / 3))
        block.branch[0].op.weight[:, :, 1, 1] = 1.6  # the filters' centres: 5 x 1.6 = 8, and 8 x 1 = 8
        block.branch[1].op.weight[:, :, 1, 1] = torch.eye(2)
    y = block(torch.full((1, 1, 4, 4), 5.0))
    assert y.shape == (1, 2, 2, 2)
    assert torch.allclose(y[:, 0], torch.full((1, 2, 2), first)) and torch.allclose(
        y[:, 1], torch.full((1, 2, 2), float(added))
    )


@pytest.mark.parametrize("side", [8, 7, 9])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("connection", ["highway", "gated"])
def test_gates_meet_at_every_boundary_also_of_odd_sides(make_preset, make_network, connection, boundary, side):
    conf = make_preset(connection, "cifar_resnet", {"model.boundary": boundary})
    network = make_network(conf, (1, side, side))
    assert network(torch.randn(4, 1, side, side, generator=torch.Generator().manual_seed(0))).shape == (4, 3)
    extra = [n for n in network.connection_parameters() if "gate" not in n]
    assert bool(extra) is (boundary == "projection"), "options A and pool stay free of parameters under a gate"
