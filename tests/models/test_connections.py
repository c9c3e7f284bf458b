"""Every preset's formula and gradient, in float64, against expressions written out by hand; step 0; train and eval."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from plainres.models.families import build
from plainres.options import Gate, Placement, ZeroInit
from plainres.schema import plain_values

PRESETS = sorted(p.stem for p in (Path(__file__).parents[2] / "conf" / "connection").glob("*.yaml"))
INDEX, BRANCHES, WIDTH = 2, 8, 3
# Each is written for this place: block 2 of 8, so l = 3 and L = 8. Smooth, so that float64 gradients are exact.
PLACE = {"depth": 2 * BRANCHES + 2, "model.width": WIDTH, "model.activation": "tanh"}
BARE = PLACE | {"model.norm": "none", "model.placement": "none"}
STOCHASTIC = ("dropout_shortcut", "stochastic_depth")


def test_there_are_presets_and_each_has_an_expression():
    assert len(PRESETS) >= 19 and set(PRESETS) == set(EXPRESSIONS)


@pytest.fixture
def make_block(make_preset):
    """Block 2 of 8 of a real network, in float64, every parameter drawn at random."""

    def make(connection, family, values, seed=0):
        conf = make_preset(connection, family, values)
        network = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3)
        assert len(network.blocks) == BRANCHES
        block = network.blocks[INDEX].to_empty(device="cpu").double()
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in block.parameters():
                p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) * 0.7)
            for name, buffer in block.named_buffers():
                buffer.copy_(torch.rand(buffer.shape, generator=draw, dtype=torch.float64) + name.endswith("var"))
        return block

    return make


class Hand:
    """The operations of a family, spelled out, on named parameters of a block."""

    def __init__(self, block, family):
        self.p = {n: t.detach().clone().requires_grad_() for n, t in block.named_parameters()}
        self.conv = family == "cnn"

    def map(self, x, name):
        w = self.p[f"{name}.weight"]
        if not self.conv:
            y = x @ w.T
        else:
            k = w.shape[-1] // 2
            padded = F.pad(x, (k, k, k, k))
            h, wide = x.shape[2:]
            y = sum(
                torch.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + wide], w[:, :, i, j])
                for i in range(w.shape[2])
                for j in range(w.shape[3])
            )
        bias = self.p.get(f"{name}.bias")
        return y if bias is None else y + self.per_channel(bias)

    def per_channel(self, v):
        return v.view(-1, 1, 1) if self.conv else v

    def layer_norm(self, x, name):
        dims = (1, 2, 3) if self.conv else (-1,)
        mean, var = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
        w, b = (self.per_channel(self.p[f"{name}.{k}"]) for k in ("weight", "bias"))
        return (x - mean) / (var + 1e-5).sqrt() * w + b

    def batch_norm(self, x, name):
        dims = (0, 2, 3) if self.conv else (0,)
        mean, var = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
        w, b = (self.per_channel(self.p[f"{name}.{k}"]) for k in ("weight", "bias"))
        return (x - mean) / (var + 1e-5).sqrt() * w + b

    def f(self, x):
        return self.map(torch.tanh(self.map(x, "branch.0.op")), "branch.1.op")

    def gate(self, x):
        return 1 / (1 + torch.exp(-self.map(x, "gate.op")))


def fixup(k, x):
    p = k.p
    inner = torch.tanh(k.map(x + p["branch.0.before_op.bias"], "branch.0.op") + p["branch.0.before_act.bias"])
    f = k.map(inner + p["branch.1.before_op.bias"], "branch.1.op")
    return torch.tanh(x + p["scale.alpha"] * f + p["scale.bias"])  # post-activation


EXPRESSIONS = {
    "plain": lambda k, x: k.f(x),
    "residual": lambda k, x: x + k.f(x),
    "scaled": lambda k, x: x + 0.1 * k.f(x),
    "depth_scaled": lambda k, x: x + k.f(x) / math.sqrt(8),
    "constant_scaling": lambda k, x: 0.5 * x + 0.5 * k.f(x),
    "skipinit": lambda k, x: x + k.p["scale.alpha"] * k.f(x),
    "rezero": lambda k, x: x + k.p["scale.alpha"] * k.f(x),
    "layerscale": lambda k, x: x + k.p["scale.alpha"] * k.f(x),
    "highway": lambda k, x: (1 - k.gate(x)) * x + k.gate(x) * k.f(x),
    "gated": lambda k, x: x + k.gate(x) * k.f(x),
    "projected": lambda k, x: k.map(x, "shortcut.op") + k.f(x),
    "dropout_shortcut": lambda k, x: x + k.f(x),  # evaluation; training below
    "stochastic_depth": lambda k, x: x + k.f(x),  # evaluation; training below
    "zero_init": lambda k, x: x + k.f(x),
    "fixup": fixup,
    "deepnorm": lambda k, x: k.layer_norm(8**0.25 * x + k.f(x), "post"),
    "layernorm_scaling": lambda k, x: x + k.f(k.layer_norm(x, "pre") / math.sqrt(3)),
    "depth_mup": lambda k, x: x + k.f(x) / math.sqrt(8),
    "concat": lambda k, x: k.map(torch.cat([x, k.f(x)], 1), "merge.op"),
}
NEEDS = {
    "deepnorm": PLACE,
    "layernorm_scaling": PLACE,
    "fixup": PLACE,
}


def inputs(family, examples=5):
    shape = (examples, WIDTH, 4, 4) if family == "cnn" else (examples, WIDTH)
    draw = torch.Generator().manual_seed(3)
    x, weights = (torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(2))
    return x, weights


def value_and_gradients(function, x, weights, parameters):
    x = x.clone().requires_grad_()
    y = function(x)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, *parameters])]


def assert_equal_to_hand(block, family, expression, training=False):
    block.train(training)
    x, weights = inputs(family)
    hand = Hand(block, family)
    found = value_and_gradients(block, x, weights, list(block.parameters()))
    expected = value_and_gradients(lambda t: expression(hand, t), x, weights, list(hand.p.values()))
    for name, a, b in zip(["y", "x", *hand.p], found, expected, strict=True):
        assert a.dtype == torch.float64
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11), name
        assert name == "y" or a.abs().max() > 0, f"{name} has no gradient, so nothing was compared"


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("connection", PRESETS)
def test_formula_and_gradient(make_block, connection, family):
    block = make_block(connection, family, NEEDS.get(connection, BARE))
    training = connection not in STOCHASTIC
    for mode in {training, False}:
        assert_equal_to_hand(block, family, EXPRESSIONS[connection], mode)


VARIANTS = {
    "shortcut_only": (
        "highway",
        {"connection.gate": "shortcut_only"},
        lambda k, x: (1 - k.gate(x)) * x + k.f(x),
    ),
    "one_over_L": ("depth_scaled", {"connection.alpha_power": 1.0}, lambda k, x: x + k.f(x) / 8),
    "any_power": ("depth_scaled", {"connection.alpha_power": 0.3, "connection.alpha": 2.0},
                  lambda k, x: x + 2 * 8**-0.3 * k.f(x)),
    "lambda_0_1": ("constant_scaling", {"connection.shortcut_scale": 0.0, "connection.alpha": 1.0},
                   lambda k, x: 0 * x + k.f(x)),
    "lambda_05_1": ("constant_scaling", {"connection.shortcut_scale": 0.5, "connection.scale": "none",
                                         "connection.alpha": 1.0}, lambda k, x: 0.5 * x + k.f(x)),
    "learned_times_lambda": ("skipinit", {"connection.shortcut": "scaled", "connection.shortcut_scale": 0.3},
                             lambda k, x: 0.3 * x + k.p["scale.alpha"] * k.f(x)),
    "projected_learned": ("projected", {"connection.scale": "per_channel"},
                          lambda k, x: k.map(x, "shortcut.op") + k.per_channel_scale() * k.f(x)),
    "gated_residual_dropped": ("gated", {"connection.drop": "constant", "connection.survival": 0.25,
                                         "connection.drop_scaling": "eval"},
                               lambda k, x: x + k.gate(x) * 0.25 * k.f(x)),
    "zero_init_scaled": ("zero_init", {"connection.scale": "fixed", "connection.alpha": 0.2},
                         lambda k, x: x + 0.2 * k.f(x)),
}  # fmt: skip
Hand.per_channel_scale = lambda self: self.p["scale.alpha"]


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("name", VARIANTS)
def test_parts_compose(make_block, name, family):
    connection, values, expression = VARIANTS[name]
    assert_equal_to_hand(make_block(connection, family, BARE | values), family, expression)


def test_a_per_channel_scale_multiplies_channels(make_block):
    block = make_block("layerscale", "cnn", BARE)
    assert block.scale.alpha.shape == (WIDTH, 1, 1)
    x, _ = inputs("cnn")
    f = block.branch(x)
    for c in range(WIDTH):
        assert torch.allclose(block(x)[:, c], x[:, c] + block.scale.alpha[c, 0, 0] * f[:, c], rtol=1e-12)


# Numbers that can be checked in the head: x = (1, 2), F(x) = Wx with W = ((0, 1), (2, 0)), so F = (2, 2).

BY_HAND = {
    "plain": [2, 2],
    "residual": [3, 4],
    "scaled": [1.2, 2.2],
    "depth_scaled": [1 + 2 / math.sqrt(8), 2 + 2 / math.sqrt(8)],
    "constant_scaling": [1.5, 2],
    "skipinit": [1 - 4, 2 - 4],  # α = −2
    "rezero": [1 - 4, 2 - 4],
    "layerscale": [1 - 4, 2 - 4],
    "highway": [1.25, 2],  # W_g = 0, b = ln(1/3): g = 1/4
    "gated": [1.5, 2.5],
    "projected": [2 + 2, 1 + 2],  # P swaps
    "dropout_shortcut": [3, 4],
    "stochastic_depth": [3, 4],
    "zero_init": [3, 4],
    "fixup": [0, 0.5],  # ReLU(x + αF + b) with α = −1, b = 1/2: (−0.5, 0.5)
    "deepnorm": None,  # with a norm: below
    "layernorm_scaling": None,
    "depth_mup": [1 + 2 / math.sqrt(8), 2 + 2 / math.sqrt(8)],
    "concat": [1, 2],  # W = (I, 0)
}


@pytest.mark.parametrize("connection", [c for c in PRESETS if BY_HAND[c] is not None])
def test_numbers_by_hand(make_preset, connection):
    values = {"depth": 10, "model.width": 2, "model.branch_layers": 1, "model.norm": "none"}
    values |= {"model.placement": "none"} if connection != "fixup" else {}
    conf = make_preset(connection, "mlp", values)
    block = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3).blocks[INDEX].to_empty(device="cpu").eval()
    numbers = {
        "branch.0.op.weight": [[0, 1], [2, 0]],
        "scale.alpha": -1 if connection == "fixup" else -2,
        "scale.bias": 0.5,
        "gate.op.weight": 0,
        "gate.op.bias": math.log(1 / 3),
        "shortcut.op.weight": [[0, 1], [1, 0]],
        "merge.op.weight": [[1, 0, 0, 0], [0, 1, 0, 0]],
        "branch.0.before_op.bias": 0,
    }
    with torch.no_grad():
        for name, p in block.named_parameters():
            p.copy_(torch.tensor(numbers[name], dtype=torch.float32).expand(p.shape))
    y = block(torch.tensor([[1.0, 2.0]]))[0].tolist()
    expected = BY_HAND[connection]
    assert y == pytest.approx(expected, rel=1e-6, abs=1e-6)


NORMED_BY_HAND = {
    # LN of two numbers is (−1, 1) when the second is larger. α = 8^¼: αx + F = (3.68, 5.36), then ⊙ (2, 3) + (1, 0).
    "deepnorm": ("post", [-1, 3]),
    # LN(x) = (−1, 1), then ⊙ (2, 3) + (1, 0) = (−1, 3), / √3; F swaps and doubles: (3, −2)/√3.
    "layernorm_scaling": ("pre", [1 + 3 / math.sqrt(3), 2 - 2 / math.sqrt(3)]),
}


@pytest.mark.parametrize("connection", NORMED_BY_HAND)
def test_numbers_by_hand_with_a_norm(make_preset, connection):
    name, expected = NORMED_BY_HAND[connection]
    conf = make_preset(connection, "mlp", {"depth": 10, "model.width": 2, "model.branch_layers": 1})
    block = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3).blocks[INDEX].to_empty(device="cpu")
    numbers = {"branch.0.op.weight": [[0, 1], [2, 0]], f"{name}.weight": [2, 3], f"{name}.bias": [1, 0]}
    with torch.no_grad():
        for key, p in block.named_parameters():
            p.copy_(torch.tensor(numbers[key], dtype=torch.float32))
    assert block(torch.tensor([[1.0, 2.0]]))[0].tolist() == pytest.approx(expected, rel=1e-4)  # LN adds 1e-5 to 1/4


# Placements: where norm and activation stand, for both arms.

NORM = {"batch": Hand.batch_norm, "layer": Hand.layer_norm}


def placed(placement, norm, k, x, h):
    """The block's output, where h is x in the residual arm and 0 in the plain one."""

    def n(t, name):
        return t if norm == "none" else NORM[norm](k, t, name)

    def maps(t):
        return k.map(torch.tanh(k.map(t, "branch.0.op")), "branch.1.op")

    if placement == "post_activation":
        inner = torch.tanh(n(k.map(x, "branch.0.op"), "branch.0.norm"))
        return torch.tanh(h + n(k.map(inner, "branch.1.op"), "branch.1.norm"))
    if placement == "pre_activation":
        inner = k.map(torch.tanh(n(x, "branch.0.norm")), "branch.0.op")
        return h + k.map(torch.tanh(n(inner, "branch.1.norm")), "branch.1.op")
    if placement == "pre_norm":
        return h + maps(n(x, "pre"))
    if placement == "post_norm":
        return n(h + maps(x), "post")
    if placement == "sandwich":
        return h + n(maps(n(x, "pre")), "out")
    return h + maps(x)


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_placement(make_block, connection, placement, norm, family):
    if norm == "none" and placement in ("pre_norm", "post_norm", "sandwich"):
        pytest.skip("refused: no meaning without a norm")
    block = make_block(connection, family, PLACE | {"model.placement": str(placement), "model.norm": norm})
    plain = connection == "plain"
    assert_equal_to_hand(
        block, family, lambda k, x: placed(placement, norm, k, x, 0 if plain else x), training=norm == "batch"
    )


FINAL = {"pre_activation": ["BatchNorm", "ReLU"], "pre_norm": ["BatchNorm"], "sandwich": ["BatchNorm"]}


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("placement", list(Placement))
def test_a_final_norm_stands_where_the_form_needs_one(make_preset, placement, family):
    conf = make_preset("residual", family, {"model.placement": str(placement)})
    network = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3)
    assert [type(m).__name__ for m in network.final] == FINAL.get(placement, [])
    stem = [type(m).__name__ for m in network.stem.parts()]
    assert stem[1:] == ([] if placement == "pre_activation" else ["BatchNorm", "ReLU"])


# Step 0.


def trunk(family, width, examples=6):
    shape = {"mlp": (examples, width), "cnn": (examples, width, 4, 4)}.get(family, (examples, 5, width))
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


FAMILIES = ["mlp", "cnn", "vit", "transformer"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", ["skipinit", "rezero", "zero_init"])
def test_a_block_that_starts_as_the_identity(make_preset, make_network, connection, family):
    network = make_network(make_preset(connection, family))
    x = trunk(family, network.head.in_features)
    for block in network.blocks:
        y = block(x)
        assert torch.equal(y, x if block.post is None else block.post(x))


def test_zero_init_of_the_last_weight_and_its_control(make_preset, make_network):
    x = trunk("mlp", 6)
    last = make_preset("zero_init", "mlp", {"connection.zero_init": "last_weight"})
    assert torch.equal(make_network(last).blocks[1](x), torch.relu(x))
    assert make_network(last).blocks[1].branch[1].op.weight.abs().max() == 0
    control = make_preset("zero_init", "mlp", {"connection.zero_init": "none"})
    assert not torch.allclose(make_network(control).blocks[1](x), torch.relu(x), atol=0.1)


@pytest.mark.parametrize(
    ("depth", "start"), [(4, 0.1), (38, 0.1), (40, 1e-5), (50, 1e-5), (52, 1e-6), (74, 1e-6), (100, 1e-6)]
)
def test_layerscale_starts_by_depth_and_near_the_identity(make_preset, make_network, depth, start):
    block = make_network(make_preset("layerscale", "mlp", {"depth": depth})).blocks[0]
    assert torch.equal(block.scale.alpha, torch.full((6,), start))
    x = trunk("mlp", 6)
    assert torch.allclose(block(x), torch.relu(x + start * block.branch(x)))
    if start < 0.01:
        assert torch.allclose(block(x), torch.relu(x), atol=1e-4)


def test_layerscale_counts_layers_of_a_transformer_and_takes_a_given_start(make_preset, make_network):
    starts = {d: make_network(make_preset("layerscale", "transformer", {"depth": d})).blocks[0].scale.start
              for d in (18, 19, 24, 25, 36)}  # fmt: skip
    assert starts == {18: 0.1, 19: 1e-5, 24: 1e-5, 25: 1e-6, 36: 1e-6}
    given = make_network(make_preset("layerscale", "transformer", {"connection.alpha": 0.5}))
    assert given.blocks[3].scale.alpha.tolist() == [0.5] * 4


@pytest.mark.parametrize("family", ["mlp", "cnn", "cifar_resnet"])
def test_fixup_starts_with_branches_and_logits_at_0(make_preset, make_network, family):
    network = make_network(make_preset("fixup", family), (1, 8, 8))
    x = trunk("mlp" if family == "mlp" else "cnn", 6)
    for block in network.blocks:
        h = block.shortcut(x)  # at a stage boundary padded
        assert block.branch(x).abs().max() == 0 and h.abs().max() > 0
        x = block(x)
        assert torch.equal(x, torch.relu(h))
    assert network(torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))).abs().max() == 0


@pytest.mark.parametrize("family", ["mlp", "cnn"])
def test_a_whole_fixup_network_by_hand_with_gradients(make_preset, make_network, family):
    """Scalar biases outside the blocks, too: between the stem's layer and its activation, and before the head."""
    network = make_network(make_preset("fixup", family, PLACE | {"depth": 4})).double()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64))
    k = Hand(network, family)
    block = Hand(network.blocks[0], family)
    block.p = {n.removeprefix("blocks.0."): p for n, p in k.p.items()}

    def expected(x):
        x = x if family == "cnn" else x.flatten(1)
        x = torch.tanh(k.map(x, "stem.op") + k.p["stem.before_act.bias"])
        y = fixup(block, x)
        pooled = y.mean((2, 3)) if family == "cnn" else y
        return (pooled + k.p["before_head.bias"]) @ k.p["head.weight"].T + k.p["head.bias"]

    x = torch.randn(5, 1, 4, 4, generator=draw, dtype=torch.float64)
    weights = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    found = value_and_gradients(network, x, weights, list(network.parameters()))
    by_hand = value_and_gradients(expected, x, weights, list(k.p.values()))
    for name, a, b in zip(["y", "x", *k.p], found, by_hand, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11) and a.abs().max() > 0, name


@pytest.mark.parametrize("family", ["mlp", "cnn", "cifar_resnet"])
def test_only_fixup_has_scalars_outside_the_blocks(make_preset, family):
    for connection in ("plain", "residual", "fixup"):
        conf = make_preset(connection, family, {"model.norm": "none"})
        network = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3)
        outside = [n for n in network.connection_parameters() if not n.startswith("blocks.")]
        assert outside == (["stem.before_act.bias", "before_head.bias"] if connection == "fixup" else [])


def test_a_highway_with_a_negative_bias_mostly_carries(make_preset, make_network):
    x = trunk("mlp", 6, 200)
    values = {"model.placement": "none"}
    block = make_network(make_preset("highway", "mlp", values)).blocks[0]
    assert block.gate.op.bias.tolist() == [-3.0] * 6
    assert block.gate(x).mean() < 0.2
    y, f = block(x), block.branch(x)
    assert (y - x).norm() < 0.3 * (y - f).norm()
    closed = make_network(make_preset("highway", "mlp", values | {"connection.gate_bias": -40.0})).blocks[0]
    assert torch.allclose(closed(x), x, atol=1e-6)
    open_ = make_network(make_preset("highway", "mlp", values | {"connection.gate_bias": 40.0})).blocks[0]
    assert torch.allclose(open_(x), open_.branch(x), atol=1e-5)


def test_the_gated_block_starts_with_half_the_update(make_preset, make_network):
    block = make_network(make_preset("gated", "mlp")).blocks[0]
    assert block.gate.op.bias.tolist() == [0.0] * 6 and block.carry is None and block.keep is not None


# Training and evaluation.


@pytest.mark.parametrize("family", [*FAMILIES, "cifar_resnet"])
@pytest.mark.parametrize("connection", [c for c in PRESETS if c not in STOCHASTIC])
def test_without_batch_norm_training_and_evaluation_are_equal(make_preset, make_network, connection, family):
    if connection == "fixup" and family in ("vit", "transformer"):
        pytest.skip("validation refuses this combination, see test_validation.py")
    norm = {} if connection == "fixup" else {"model.norm": "layer"}
    network = make_network(make_preset(connection, family, norm), (1, 8, 8))
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    network.begin_step(0, 3)
    assert torch.equal(network.train()(x), network.eval()(x))


def test_a_projections_batch_norm_uses_running_statistics_in_evaluation(make_preset, make_network):
    block = make_network(make_preset("projected", "mlp", {"model.placement": "none"})).blocks[0].double()
    x = trunk("mlp", 6, 200).double()
    z, f = x @ block.shortcut.op.weight.T, block.branch(x)
    mean, var = z.mean(0), z.var(0, correction=0)
    assert torch.allclose(block(x), (z - mean) / (var + 1e-5).sqrt() + f)
    running = 0.1 * mean, 0.9 + 0.1 * z.var(0)  # after one batch, from 0 and 1; the variance without bias
    assert torch.allclose(block.eval()(x), (z - running[0]) / (running[1] + 1e-5).sqrt() + f)


@pytest.mark.parametrize("connection", STOCHASTIC)
def test_stochastic_parts_differ_in_training_only(make_preset, make_network, connection):
    network = make_network(make_preset(connection, "mlp", {"model.norm": "layer"}))
    residual = make_network(make_preset("residual", "mlp", {"model.norm": "layer"}))
    x = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    network.begin_step(0, 1)
    assert not torch.equal(network.train()(x), network.eval()(x))
    assert torch.equal(network.eval()(x), residual.eval()(x))


def test_every_gate_form_is_tested():
    assert set(Gate) == {"none", "exclusive", "shortcut_only", "branch_only"}
    assert set(ZeroInit) == {"none", "norm_scale", "last_weight"}


def test_presets_say_what_they_are(make_preset):
    for name in PRESETS:
        values = plain_values(make_preset(name).connection)
        assert values["name"] == name
        assert (values["shortcut"] == "none") is (name == "plain")
