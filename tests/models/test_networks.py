import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.errors import UserError
from plainres.models.families import build, num_branches
from plainres.models.networks import layer_sites
from plainres.options import Family
from plainres.schema import ModelConf


def meta_network(conf):
    return build(conf.model, conf.connection, conf.depth, (3, 4, 5), 7)


@pytest.mark.parametrize("connection", ["plain", "residual"])
@pytest.mark.parametrize(("family", "taps", "features"), [("mlp", 1, 60), ("cnn", 9, 3)])
@pytest.mark.parametrize(("depth", "m"), [(4, 2), (10, 2), (50, 2), (5, 3), (3, 1), (9, 1)])
def test_number_of_parameters(make_conf, connection, family, taps, features, depth, m):
    width = 5
    values = {"model.name": family, "model.width": width, "depth": depth, "model.branch_layers": m}
    network = meta_network(make_conf(connection, values))
    stem = taps * features * width
    inner = (depth - 2) * taps * width * width
    norms = (depth - 1) * 2 * width
    assert sum(p.numel() for p in network.parameters()) == stem + inner + norms + width * 7 + 7
    weighted = [p for n, p in network.named_parameters() if n.endswith("op.weight") or n == "head.weight"]
    assert len(weighted) == depth and len(network.blocks) == (depth - 2) // m


@pytest.mark.parametrize(("m", "depth", "blocks"), [(2, 10, 4), (2, 100, 49), (1, 3, 1), (3, 5, 1), (3, 50, 16)])
def test_depth_rule(m, depth, blocks):
    assert num_branches(ModelConf(branch_layers=m), depth) == blocks


@pytest.mark.parametrize(
    ("m", "depth", "nearest"),
    [
        (2, 9, "depth=8 or depth=10"),
        (2, 3, "depth=4"),
        (2, 2, "depth=4"),
        (2, -7, "depth=4"),
        (1, 2, "depth=3"),
        (1, 0, "depth=3"),
        (3, 10, "depth=8 or depth=11"),
        (3, 6, "depth=5 or depth=8"),
        (3, 4, "depth=5"),
    ],
)
def test_a_depth_that_cannot_be_built_names_the_nearest(m, depth, nearest):
    with pytest.raises(UserError) as caught:
        num_branches(ModelConf(name=Family.cnn, branch_layers=m), depth)
    message = str(caught.value)
    assert message.startswith(f"depth={depth}: cnn") and message.endswith(f"the nearest is {nearest}")
    for near in nearest.split(" or "):
        num_branches(ModelConf(branch_layers=m), int(near.removeprefix("depth=")))


def forward_by_hand(state, x, connection, family, blocks, m, training):
    """The network's formula in float64, from its state alone."""

    def layer(x, path):
        w = state[f"{path}.op.weight"]
        y = F.linear(x, w) if family == "mlp" else F.conv2d(x, w, padding=1)
        norm = {k: state[f"{path}.norm.{k}"] for k in ("running_mean", "running_var", "weight", "bias")}
        dims = (0, *range(2, y.dim()))
        shape = (1, -1, *[1] * (y.dim() - 2))
        mean = y.mean(dims) if training else norm["running_mean"]
        var = y.var(dims, correction=0) if training else norm["running_var"]
        y = (y - mean.view(shape)) / (var.view(shape) + 1e-5).sqrt()
        return y * norm["weight"].view(shape) + norm["bias"].view(shape)

    x = layer(x.flatten(1) if family == "mlp" else x, "stem").clamp(min=0)
    for i in range(blocks):
        f = x
        for j in range(m):
            f = layer(f, f"blocks.{i}.branch.{j}")
            f = f.clamp(min=0) if j < m - 1 else f
        x = (x + f if connection == "residual" else f).clamp(min=0)
    x = x if family == "mlp" else x.mean((2, 3))
    return F.linear(x, state["head.weight"], state["head.bias"])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("connection", ["plain", "residual"])
@pytest.mark.parametrize(("family", "m", "depth"), [("mlp", 2, 8), ("mlp", 1, 5), ("cnn", 2, 6), ("cnn", 3, 5)])
def test_forward_is_the_formula(make_conf, make_network, training, connection, family, m, depth):
    values = {"model.name": family, "model.branch_layers": m, "depth": depth, "model.width": 9}
    network = make_network(make_conf(connection, values), (2, 5, 5), 4)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            if "norm" in name or name == "head.bias":
                tensor.add_(torch.rand(tensor.shape, generator=draw))
    state = {n: t.detach().double() for n, t in network.state_dict().items()}
    x = torch.randn(16, 2, 5, 5, generator=draw)
    expected = forward_by_hand(state, x.double(), connection, family, (depth - 2) // m, m, training)
    found = network.train(training)(x)
    assert found.dtype == torch.float32 and found.shape == (16, 4)
    assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_layer_sites_in_forward_order(make_conf, make_network, connection):
    network = make_network(make_conf(connection))
    sites = layer_sites(network)
    inner = [f"blocks.{b}.branch.{i}.op.weight" for b in range(2) for i in range(2)]
    assert [s.name for s in sites] == ["stem.op.weight", *inner, "head.weight"]
    modules = dict(network.named_modules())
    assert sites[2].response is modules["blocks.0.branch.1.norm"]
    assert sites[1].activation is modules["blocks.0.branch.0.act"]
    assert sites[2].activation is modules["blocks.0.post"]
    assert sites[-1].activation is None and sites[-1].response is modules["head"]
    assert ["no norm" in s.response_label for s in sites] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("cnn", (1, 8, 8)),
        ("cnn", (3, 8, 8)),
        ("cnn", (1, 1, 40)),
        ("cifar_resnet", (1, 8, 8)),
        ("cifar_resnet", (3, 8, 8)),
    ],
)
def test_convolutions_work_channels_last_also_with_one_channel(make_preset, make_network, model, shape):
    network, layouts = make_network(make_preset("residual", model), shape), []

    def note(module, args, out):
        layouts.append([t.stride()[1] for t in (args[0], out)])

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    x = torch.randn(8, *shape)
    logits = network(x)
    assert layouts and all(pair == [1, 1] for pair in layouts)
    network.prepare = nn.Identity()
    layouts.clear()
    torch.testing.assert_close(network(x), logits, rtol=1e-4, atol=1e-5)
    assert layouts[-1] != [1, 1]
