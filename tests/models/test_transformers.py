"""vit against timm's VisionTransformer; attention, feed-forward and both families against loops written out."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from plainres.errors import UserError
from plainres.models.branches import Attention
from plainres.models.families import build

SHAPE, CLASSES = (3, 8, 12), 5


@pytest.fixture
def pair(make_preset, make_network):
    """Our vit and timm's, with the same random weights everywhere (biases and norms too)."""

    def make(scaled):
        values = {"model.width": 16, "model.heads": 4, "model.patch": 4, "model.mlp_ratio": 2.5, "depth": 3}
        given = {"connection.alpha": 0.1} if scaled else {}
        conf = make_preset("layerscale" if scaled else "residual", "vit", values | given)
        mine = make_network(conf, SHAPE, CLASSES)
        theirs = VisionTransformer(
            img_size=SHAPE[1:], patch_size=4, in_chans=3, num_classes=CLASSES, embed_dim=16, depth=3, num_heads=4,
            mlp_ratio=2.5, init_values=0.1 if scaled else None, norm_layer=partial(nn.LayerNorm, eps=1e-5),
        )  # fmt: skip
        return mine.eval(), theirs.eval(), names(3, scaled)

    return make


def names(layers, scaled):
    """Our parameter -> timm's."""
    found = {"stem.cls_token": "cls_token", "stem.pos_embed": "pos_embed"}

    def both(mine, theirs):
        found.update({f"{mine}.{leaf}": f"{theirs}.{leaf}" for leaf in ("weight", "bias")})

    both("stem.op", "patch_embed.proj")
    both("final.0", "norm")
    both("head", "head")
    for i in range(layers):
        for half, (norm, maps) in enumerate((("norm1", ("attn.qkv", "attn.proj")), ("norm2", ("mlp.fc1", "mlp.fc2")))):
            both(f"blocks.{2 * i + half}.pre", f"blocks.{i}.{norm}")
            for name in maps:
                both(f"blocks.{2 * i + half}.branch.{name.partition('.')[2]}", f"blocks.{i}.{name}")
            if scaled:
                found[f"blocks.{2 * i + half}.scale.alpha"] = f"blocks.{i}.ls{half + 1}.gamma"
    return found


@pytest.mark.parametrize("scaled", [False, True], ids=["pre-norm", "layerscale"])
def test_forward_and_gradients_equal_timms(pair, scaled):
    mine, theirs, renamed = pair(scaled)
    a, b = dict(mine.named_parameters()), dict(theirs.named_parameters())
    assert set(renamed) == set(a) and set(renamed.values()) == set(b)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, other in renamed.items():
            assert a[name].shape == b[other].shape, name
            value = torch.randn(a[name].shape, generator=draw) * 0.3
            a[name].copy_(value)
            b[other].copy_(value)
    x, y = torch.randn(6, *SHAPE, generator=draw), torch.randint(0, CLASSES, (6,), generator=draw)
    logits = mine(x), theirs(x)
    assert torch.allclose(*logits, rtol=1e-5, atol=1e-6)
    for out in logits:
        F.cross_entropy(out, y).backward()
    for name, other in renamed.items():
        expected = b[other].grad
        assert (a[name].grad - expected).norm() <= 2e-6 + 1e-5 * expected.norm(), name


def attention_by_hand(x, p, heads):
    """Sample by sample, head by head, query by query, in float64."""
    n, t, d = x.shape
    k = d // heads
    rows = []
    for i in range(n):
        qkv = x[i] @ p["qkv.weight"].T + p["qkv.bias"]
        mixed = torch.zeros(t, d, dtype=torch.float64)
        for h in range(heads):
            q, key, value = (qkv[:, part * d + h * k : part * d + (h + 1) * k] for part in range(3))
            for query in range(t):
                scores = torch.stack([q[query] @ key[other] / math.sqrt(k) for other in range(t)])
                weights = scores.exp() / scores.exp().sum()
                mixed[query, h * k : (h + 1) * k] = weights @ value
        rows.append(mixed @ p["proj.weight"].T + p["proj.bias"])
    return torch.stack(rows)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_by_hand(heads):
    attention = Attention(8, heads).double()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) * 0.5)
    x = torch.randn(3, 5, 8, generator=draw, dtype=torch.float64)
    assert torch.allclose(attention(x), attention_by_hand(x, dict(attention.named_parameters()), heads), rtol=1e-9)


def encoder_by_hand(state, x, family, placement, plain, layers, heads, patch=2):
    """The whole network in float64, from its state alone."""

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x, name):
        if f"{name}.weight" not in state:
            return x
        mean, var = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
        return (x - mean) / (var + 1e-5).sqrt() * state[f"{name}.weight"] + state[f"{name}.bias"]

    n, c, h, w = x.shape
    if family == "vit":
        patches = [
            x[:, :, i : i + patch, j : j + patch].reshape(n, -1) for i in range(0, h, patch) for j in range(0, w, patch)
        ]
        weight = state["stem.op.weight"].flatten(1)
        tokens = [p @ weight.T + state["stem.op.bias"] for p in patches]
        t = torch.stack([state["stem.cls_token"][0, 0].expand(n, -1), *tokens], 1)
    else:
        t = torch.stack([linear(x[:, :, row].reshape(n, c * w), "stem.op") for row in range(h)], 1)
    t = t + state["stem.pos_embed"]
    for b in range(2 * layers):
        at = f"blocks.{b}"
        inner = norm(t, f"{at}.pre")
        if b % 2:
            f = linear(F.gelu(linear(inner, f"{at}.branch.fc1")), f"{at}.branch.fc2")
        else:
            p = {k.removeprefix(f"{at}.branch."): v for k, v in state.items() if k.startswith(f"{at}.branch.")}
            f = attention_by_hand(inner, p, heads)
        f = norm(f, f"{at}.out")
        t = norm(f if plain else t + f, f"{at}.post")
    t = norm(t, "final.0")
    return linear(t[:, 0] if family == "vit" else t.mean(1), "head")


EXPECTED_NORMS = {"pre_norm": ["pre"], "post_norm": ["post"], "sandwich": ["out", "pre"], "none": []}


@pytest.mark.parametrize("placement", ["pre_norm", "post_norm", "sandwich", "none"])
@pytest.mark.parametrize("connection", ["plain", "residual"])
@pytest.mark.parametrize("family", ["vit", "transformer"])
def test_forward_is_the_formula(make_preset, make_network, family, connection, placement):
    norm = {"model.norm": "none"} if placement == "none" else {}
    conf = make_preset(connection, family, norm | {"model.placement": placement, "model.width": 8, "depth": 2})
    network = make_network(conf, (2, 4, 6), 3)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn(p.shape, generator=draw) * 0.2)
    state = {n: t.detach().double() for n, t in network.state_dict().items()}
    found = sorted({n.split(".")[2] for n in state if n.startswith("blocks.0") and n.count(".") == 3})
    assert found == EXPECTED_NORMS[placement]
    assert ("final.0.weight" in state) is (placement in ("pre_norm", "sandwich"))
    x = torch.randn(3, 2, 4, 6, generator=draw)
    expected = encoder_by_hand(state, x.double(), family, placement, connection == "plain", 2, 2)
    assert torch.allclose(network(x).double(), expected, rtol=1e-3, atol=1e-4)


def test_blocks_alternate_between_attention_and_feed_forward(make_preset):
    conf = make_preset("residual", "transformer", {"depth": 3})
    network = build(conf.model, conf.connection, 3, (1, 4, 4), 3)
    assert [type(b.branch).__name__ for b in network.blocks] == ["Attention", "FeedForward"] * 3
    assert network.blocks[1].branch.fc1.out_features == 6  # mlp_ratio 1.5 of width 4


def test_rezero_shares_one_scalar_between_the_two_branches_of_a_layer(make_preset, make_network):
    network = make_network(make_preset("rezero", "transformer", {"depth": 2}))
    a, b, c, d = (block.scale for block in network.blocks)
    assert a is b and c is d and a is not c
    assert network.connection_parameters() == ["blocks.0.scale.alpha", "blocks.2.scale.alpha"]
    separate = make_network(make_preset("skipinit", "transformer", {"depth": 2}))
    assert len(separate.connection_parameters()) == 4
    with torch.no_grad():
        a.alpha.fill_(0.5)
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    for block in network.blocks[:2]:
        f = block.branch(block.pre(x))
        assert torch.allclose(block(x), x + 0.5 * f)


@pytest.mark.parametrize("patch", [3, 5])
def test_a_patch_that_does_not_divide_the_image_is_refused(make_preset, patch):
    conf = make_preset("residual", "vit", {"model.patch": patch})
    with pytest.raises(UserError, match=rf"^model\.patch={patch}: must divide the image's sides, 4 and 8") as caught:
        build(conf.model, conf.connection, 1, (1, 4, 8), 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["vit", "transformer"])
def test_a_transformer_has_at_least_one_layer(make_preset, family):
    conf = make_preset("residual", family)
    with pytest.raises(UserError, match=rf"^depth=0: a {family} has at least 1 layer; the nearest is depth=1$"):
        build(conf.model, conf.connection, 0, (1, 4, 4), 3)
