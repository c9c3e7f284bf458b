"""Every preset around attention and feed-forward: formula and gradients in float64. Branches have their own tests."""

import math
from pathlib import Path

import pytest
import torch

from plainres.models.families import build

PRESETS = sorted(p.stem for p in (Path(__file__).parents[2] / "conf" / "connection").glob("*.yaml"))
LAYERS, WIDTH = 4, 4
INDEX = {"attention": 4, "feed_forward": 5}  # of 8 branches: both belong to layer 3


def norm(block, name, x):
    """Layer norm over features, written out."""
    centred = x - x.mean(-1, keepdim=True)
    part = getattr(block, name)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * part.weight + part.bias


def gate(block, x):
    return 1 / (1 + torch.exp(-(x @ block.gate.op.weight.T + block.gate.op.bias)))


def f(block, x):
    """The pre-norm branch."""
    return block.branch(norm(block, "pre", x))


EXPRESSIONS = {
    "plain": f,
    "residual": lambda b, x: x + f(b, x),
    "scaled": lambda b, x: x + 0.1 * f(b, x),
    "depth_scaled": lambda b, x: x + f(b, x) / math.sqrt(8),
    "constant_scaling": lambda b, x: 0.5 * x + 0.5 * f(b, x),
    "skipinit": lambda b, x: x + b.scale.alpha * f(b, x),
    "rezero": lambda b, x: x + b.scale.alpha * f(b, x),
    "layerscale": lambda b, x: x + b.scale.alpha * f(b, x),
    "highway": lambda b, x: (1 - gate(b, x)) * x + gate(b, x) * f(b, x),
    "gated": lambda b, x: x + gate(b, x) * f(b, x),
    "projected": lambda b, x: norm(b.shortcut, "norm", x @ b.shortcut.op.weight.T) + f(b, x),
    "dropout_shortcut": lambda b, x: x + f(b, x),  # evaluation; training in test_stochastic_depth.py
    "stochastic_depth": lambda b, x: x + f(b, x),  # evaluation; training in test_stochastic_depth.py
    "zero_init": lambda b, x: x + f(b, x),
    "deepnorm": lambda b, x: norm(b, "post", 8**0.25 * x + b.branch(x)),
    "layernorm_scaling": lambda b, x: x + b.branch(norm(b, "pre", x) / math.sqrt(3)),
    "depth_mup": lambda b, x: x + f(b, x) / math.sqrt(8),
    "concat": lambda b, x: torch.cat([x, f(b, x)], -1) @ b.merge.op.weight.T,
}


def test_every_preset_has_an_expression():
    assert set(EXPRESSIONS) == set(PRESETS) - {"fixup"}, "Fixup has no tokens: refused"


@pytest.mark.parametrize("branch", INDEX)
@pytest.mark.parametrize("family", ["vit", "transformer"])
@pytest.mark.parametrize("connection", EXPRESSIONS)
def test_formula_and_gradient(make_preset, connection, family, branch):
    conf = make_preset(connection, family, {"depth": LAYERS, "model.width": WIDTH})
    network = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3)
    block = network.blocks[INDEX[branch]].to_empty(device="cpu").double().eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in block.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) * 0.7)
    x, weights = (torch.randn(3, 5, WIDTH, generator=draw, dtype=torch.float64) for _ in range(2))
    leaves = [x.requires_grad_(), *block.parameters()]
    ys = block(x), EXPRESSIONS[connection](block, x)
    sides = [[y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)] for y in ys]
    for name, a, b in zip(["y", "x", *dict(block.named_parameters())], *sides, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11), name
        assert a.abs().max() > 0, f"{name} has no gradient, so nothing was compared"
