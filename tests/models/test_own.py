"""Users' branches and shortcuts against formulas written out by hand, under every connection and placement."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plainres.evaluate import error_with_batch_statistics
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.rules import rules_of
from plainres.optim import build_optimizer
from plainres.options import Placement
from plainres.probes.probe import Probe
from plainres.seeding import evaluation_order

ROOT = Path(__file__).parents[2]
PRESETS = sorted(p.stem for p in (ROOT / "conf" / "connection").glob("*.yaml"))
EXAMPLE = (ROOT / "experiments" / "own-branch-glu" / "my_branches.py").read_text()
SHAPE = (1, 4, 4)
FAMILIES = {"mlp": "GatedLinear", "cnn": "DepthwiseConv", "transformer": "GatedLinear", "vit": "GatedLinear"}

CONSTANTS = """
import random
import numpy
import torch
from torch import nn

class Constants(nn.Module):
    def __init__(self, width, start=0.25):
        super().__init__()
        self.a = nn.Parameter(torch.full((width,), start))
        self.drawn = nn.Parameter(torch.rand(width) + numpy.random.rand() + random.random())
        self.norm = nn.BatchNorm1d(width)
        nn.init.constant_(self.norm.weight, 0.5)
        nn.init.constant_(self.norm.running_mean, 3.0)
        self.register_buffer("mask", torch.rand(width))

    def forward(self, x):
        return self.norm(self.a * x * self.drawn + self.mask)
"""


@pytest.fixture
def own(own_module):
    """A branch whose every kind of number is its own."""
    own_module("constants", CONSTANTS)


def glu(x, p, path="blocks.0.branch.inner"):
    value = x @ p[f"{path}.value.weight"].T + p[f"{path}.value.bias"]
    gate = x @ p[f"{path}.gate.weight"].T + p[f"{path}.gate.bias"]
    return (value / (1 + torch.exp(-gate))) @ p[f"{path}.out.weight"].T


def depthwise(x, p, path="blocks.0.branch.inner"):
    """Loops over the 3x3 taps; batch statistics of this batch."""
    w, padded = p[f"{path}.depthwise.weight"], F.pad(x, (1, 1, 1, 1))
    h, wide = x.shape[2:]
    y = sum(padded[:, :, i : i + h, j : j + wide] * w[:, 0, i, j].view(-1, 1, 1) for i in range(3) for j in range(3))
    mean, var = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), correction=0, keepdim=True)
    scale, shift = (p[f"{path}.norm.{n}"].view(-1, 1, 1) for n in ("weight", "bias"))
    y = ((y - mean) / torch.sqrt(var + 1e-5) * scale + shift).clamp(min=0)
    return torch.einsum("nchw,oc->nohw", y, p[f"{path}.pointwise.weight"][:, :, 0, 0])


def input_of_family(family, count=5):
    shape = {"mlp": (6,), "cnn": (6, 4, 4)}.get(family, (3, 4))
    return torch.randn((count, *shape), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_residual_block_is_post_of_trunk_and_branch(make_own, make_network, family, placement):
    conf = make_own("residual", family, {"model.placement": placement})
    if conf is None:
        assert family in ("vit", "transformer") and placement.endswith("activation")
        return
    index = 1 if family in ("vit", "transformer") else 0
    network = make_network(conf)
    p = {n.replace(f"blocks.{index}", "blocks.0"): t.detach() for n, t in network.named_parameters()}
    x = input_of_family(family)
    dims = {2: (0,), 4: (0, 2, 3)}.get(x.dim(), (2,))

    def norm(v):  # fresh: scale 1, shift 0; of mlp and cnn over the batch, of tokens over features
        return (v - v.mean(dims, keepdim=True)) / torch.sqrt(v.var(dims, correction=0, keepdim=True) + 1e-5)

    branch = depthwise if family == "cnn" else glu
    before = norm(x) if placement in (Placement.pre_norm, Placement.sandwich) else x
    f = branch(before, p)
    f = norm(f) if placement is Placement.sandwich else f
    expected = x + f
    if placement is Placement.post_activation:
        expected = expected.clamp(min=0)
    if placement is Placement.post_norm:
        expected = norm(expected)
    block = network.blocks[index]
    assert torch.allclose(block(x), expected, rtol=1e-4, atol=1e-5)
    assert block.chain()[2].inner.training


@pytest.mark.parametrize("connection", PRESETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_connection_trains_a_step_and_fills_every_row(
    make_own, make_network, make_flat, tiny_data, family, connection
):
    conf = make_own(connection, family, {"connection.zero_init": "last_weight"} if connection == "zero_init" else {})
    if conf is None:
        assert connection == "fixup"
        return
    network = make_network(conf)
    flat = make_flat(network, conf)
    optimizer = build_optimizer(conf.optimizer, flat)
    probe = Probe(network, flat)
    x, y = tiny_data.train.images[:8], tiny_data.train.y_N[:8]
    network.begin_step(conf.seed, 0)
    probe.arm(len(y))
    flat.zero_grad()
    F.cross_entropy(network(x), y).backward()
    probe.after_backward()
    probe.before_update()
    optimizer.step()
    probe.after_update()
    row = probe.collect().sent().row(0)
    assert torch.isfinite(flat.grad).all() and torch.isfinite(flat.data).all()
    assert set(probe.layout) <= set(row["values"]) | {"block"}
    for scope, metrics in row["values"].items():
        for metric, values in metrics.items():
            reasons = row["reasons"].get(scope, {}).get(metric, {})
            assert all(v is not None or str(i) in reasons for i, v in enumerate(values)), (scope, metric)
    mine = [n for n in probe.layout["layer"] if ".inner." in n]
    weights = {"mlp": 3, "cnn": 2}.get(family, 3)
    assert len(mine) == 2 * weights  # two own branches in each of these networks
    where = [probe.layout["layer"].index(n) for n in mine]
    assert all(row["values"]["layer"]["response_std"][i] is not None for i in where)
    assert {"grad_norm", "weight_norm", "update_ratio"} <= set(row["values"]["layer"])
    assert len(row["values"]["block"]["branch_norm"]) == len(network.blocks)


def numbers(conf):
    network = build(conf.model, conf.connection, conf.depth, SHAPE, 3)
    Draws(network, conf.model, rules_of(conf), conf.seed).materialise("cpu")
    return dict(network.named_parameters()) | dict(network.named_buffers())


def test_both_arms_begin_with_the_users_numbers(own, make_conf):
    given = {"model.branch": "constants:Constants", "model.placement": "none"}
    arms = [numbers(make_conf(c, given)) for c in ("plain", "residual")]
    other = numbers(make_conf("plain", given | {"seed": 1}))
    kept = numbers(make_conf("plain", given | {"model.branch_settings": {"start": -2.0}}))
    mine = [n for n in arms[0] if ".inner." in n]
    assert len(mine) == 2 * 8
    for block in range(2):
        path = f"blocks.{block}.branch.inner"
        assert all(torch.equal(arms[0][n], arms[1][n]) for n in mine)
        assert (arms[0][f"{path}.a"] == 0.25).all() and (kept[f"{path}.a"] == -2.0).all()
        assert (arms[0][f"{path}.norm.weight"] == 0.5).all() and (arms[0][f"{path}.norm.running_mean"] == 3.0).all()
        assert not torch.equal(arms[0][f"{path}.drawn"], other[f"{path}.drawn"])
        assert not torch.equal(arms[0][f"{path}.mask"], other[f"{path}.mask"])
    assert not torch.equal(arms[0]["blocks.0.branch.inner.drawn"], arms[0]["blocks.1.branch.inner.drawn"])


def test_building_moves_no_global_generator(own, make_conf):
    def states():
        return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()

    before = states()
    numbers(make_conf("residual", {"model.branch": "constants:Constants", "model.placement": "none"}))
    assert states() == before


@pytest.mark.parametrize("family", FAMILIES)
def test_zero_init_makes_the_branch_zero(make_own, make_network, family):
    network = make_network(make_own("zero_init", family, {"connection.zero_init": "last_weight"}))
    assert not network.blocks[1].branch(input_of_family(family)).any()


def test_foreign_batch_norm_uses_each_batchs_statistics(make_own, make_network, tiny_data):
    network = make_network(make_own("residual", "cnn"))
    norms = [b.branch.inner.norm for b in network.blocks]
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.3)
        for norm in norms:
            norm.running_mean.fill_(5.0)
            norm.num_batches_tracked.fill_(11)
    network.blocks[0].branch.eval()  # a mode that has to come back
    modes = [m.training for m in network.modules()]
    found = error_with_batch_statistics(network, tiny_data.train, 20)
    assert [m.training for m in network.modules()] == modes
    for norm in norms:
        assert (norm.running_mean == 5.0).all() and (norm.running_var == 1.0).all() and norm.num_batches_tracked == 11
    assert found == pytest.approx(error_by_hand(network, tiny_data.train, 20), abs=1e-6)


def error_by_hand(network, split, batch):
    """Every norm over its batch of 20 (the last one: 30), every operation spelled out."""
    p = {n: t.detach() for n, t in network.named_parameters()}
    order = evaluation_order(len(split))
    wrong = 0
    for part in (order[:batch], order[batch:]):
        x = F.conv2d(split.images[part], p["stem.op.weight"], padding=1)
        x = F.batch_norm(x, None, None, p["stem.norm.weight"], p["stem.norm.bias"], training=True).clamp(min=0)
        for b in range(len(network.blocks)):
            x = (x + depthwise(x, p, f"blocks.{b}.branch.inner")).clamp(min=0)
        logits = x.mean((2, 3)) @ p["head.weight"].T + p["head.bias"]
        wrong += (logits.argmax(1) != split.y_N[part]).sum().item()
    return wrong / len(split)


def test_rules_for_our_layers_leave_the_users_alone(own_example, own_module, make_preset):
    # zero_init of a sandwich zeroes the norm after the branch. It is called out, as a layer of the user's is.
    given = {"model.branch": "my_branches:GatedLinear", "model.placement": "sandwich"}
    start = numbers(make_preset("zero_init", "mlp", given))
    assert not start["blocks.0.out.weight"].any() and start["blocks.0.branch.inner.out.weight"].all()


def test_deepnorm_multiplies_every_matrix_of_the_users_branch(own_module, make_preset):
    own_module("joint", EXAMPLE.replace("self.value", "self.qkv").replace("GatedLinear", "Joint"))
    given = {"model.branch": "joint:Joint", "model.placement": "post_norm", "model.norm": "layer", "depth": 2}
    arms = [numbers(make_preset(c, "transformer", given)) for c in ("plain", "deepnorm")]
    path = "blocks.1.branch.inner"
    for leaf in ("qkv.weight", "gate.weight", "out.weight"):  # β = (8M)^(−1/4) with M = 2 layers
        assert torch.allclose(arms[1][f"{path}.{leaf}"], arms[0][f"{path}.{leaf}"] / 2)
    assert torch.equal(arms[1][f"{path}.qkv.bias"], arms[0][f"{path}.qkv.bias"])
    qkv = "blocks.0.branch.qkv.weight"  # of our attention: the value rows alone
    assert torch.equal(arms[1][qkv][:8], arms[0][qkv][:8]) and torch.allclose(arms[1][qkv][8:], arms[0][qkv][8:] / 2)
