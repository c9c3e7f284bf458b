"""What a connection does in a probed step, against float64 loops on the same batch."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytest import approx

from plainres.models.branches import Attention
from plainres.models.families import build
from plainres.optim import build_optimizer
from plainres.probes.probe import Probe

PRESETS = sorted(p.stem for p in (Path(__file__).parents[2] / "conf" / "connection").glob("*.yaml"))
FAMILIES = ["mlp", "cnn", "cifar_resnet", "vit", "transformer"]
SHAPE, EXAMPLES, STEP = (1, 8, 8), 24, 5


class Probed:
    """A probed step: its row, and the blocks' inputs and outputs of a float64 copy of the network."""

    def __init__(self, network, flat, optimizer, step, seed, prepare=None, updates=2):
        draw = torch.Generator().manual_seed(0)
        x, y = torch.randn(EXAMPLES, *SHAPE, generator=draw), torch.randint(0, 3, (EXAMPLES,), generator=draw)
        self.network = network

        def backward(at):
            flat.zero_grad()
            network.begin_step(seed, at)
            F.cross_entropy(network(x), y).backward()

        for at in range(step - updates, step):
            backward(at)
            optimizer.step()
        if prepare is not None:
            with torch.no_grad():
                prepare(network)
        self.twin = copy.deepcopy(network).double().requires_grad_(False)
        self.twin.begin_step(seed, step)
        self.x, self.y = [], []
        for block in self.twin.blocks:
            block.register_forward_hook(self.keep)
        self.twin(x.double())
        probe = Probe(network, flat)
        network.begin_step(seed, step)
        probe.arm(EXAMPLES)
        flat.zero_grad()
        F.cross_entropy(network(x), y).backward()
        probe.after_backward()
        probe.before_update()
        optimizer.step()
        probe.after_update()
        self.layout, self.row = probe.layout, probe.collect().sent().row(step)

    def keep(self, block, args, out):
        self.x.append(args[0].detach())
        self.y.append(out.detach())

    def block(self, metric):
        return [None if v is None else float(v) for v in self.row["values"]["block"][metric]]

    def reasons(self, metric):
        return self.row["reasons"].get("block", {}).get(metric, {})


@pytest.fixture(scope="module")
def probed(make_preset, make_network, make_flat):
    def take(connection, family="mlp", values=None, step=STEP, **kwargs):
        conf = make_preset(connection, family, values)
        network = make_network(conf, SHAPE)
        flat = make_flat(network, conf)
        optimizer = build_optimizer(conf.optimizer, flat)
        return Probed(network, flat, optimizer, step, conf.seed, **kwargs)

    return take


def per_sample(tensor):
    return tensor.detach().flatten(1).square().sum(1).sqrt()


def branch_of(block, x):
    """F(x), before anything that the connection does."""
    f = x if block.pre is None else block.pre(x)
    f = f if block.pre_scale is None else block.pre_scale.alpha * f
    f = block.branch(f)
    return f if block.out is None else block.out(f)


# gate_mean


@pytest.mark.parametrize("family", ["mlp", "cnn", "transformer"])
@pytest.mark.parametrize("connection", ["highway", "gated"])
def test_gate_mean(probed, connection, family):
    found = probed(connection, family)
    expected = []
    for block, x in zip(found.twin.blocks, found.x, strict=True):
        w, b = block.gate.op.weight, block.gate.op.bias
        z = torch.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + b.view(-1, 1, 1) if family == "cnn" else x @ w.T + b
        expected.append(float((1 / (1 + torch.exp(-z))).mean()))
    assert found.block("gate_mean") == approx(expected, rel=1e-4) and found.reasons("gate_mean") == {}
    assert len(set(expected)) > 1


def test_what_a_gated_block_adds_and_is_added_to(probed):
    bare = {"model.placement": "none", "model.norm": "none"}
    found = probed("highway", values=bare)
    h, f, ratio = [], [], []
    for block, x in zip(found.twin.blocks, found.x, strict=True):
        g = torch.sigmoid(x @ block.gate.op.weight.T + block.gate.op.bias)
        carried, added = per_sample((1 - g) * x), per_sample(g * branch_of(block, x))
        h.append(float(carried.mean()))
        f.append(float(added.mean()))
        kept = carried > 0
        ratio.append(float((added[kept] / carried[kept]).mean()))
    assert found.block("shortcut_norm") == approx(h, rel=1e-4)
    assert found.block("branch_norm") == approx(f, rel=1e-4)
    assert found.block("branch_ratio") == approx(ratio, rel=1e-4)
    assert found.block("shortcut_norm") != found.block("input_norm")


# scale_value


@pytest.mark.parametrize("family", ["mlp", "cnn", "vit"])
def test_scale_value_of_learned_scales(probed, family):
    def move(network):
        for i, block in enumerate(network.blocks):
            block.scale.alpha.copy_(torch.linspace(-1, 2, block.scale.alpha.numel()).view_as(block.scale.alpha) + i)

    for connection in ("skipinit", "layerscale"):
        found = probed(connection, family, prepare=move)
        alphas = [block.scale.alpha for block in found.twin.blocks]
        expected = [float(a.abs().mean() if a.dim() else a) for a in alphas]
        assert found.block("scale_value") == approx(expected, rel=1e-6)
        assert expected[0] == approx(
            -1 if connection == "skipinit" else np.abs(np.linspace(-1, 2, len(alphas[0]))).mean()
        )


def test_scale_value_is_read_before_the_update(probed):
    found = probed("skipinit", values={"optimizer.lr": 1.0})
    before = [float(b.scale.alpha) for b in found.twin.blocks]
    after = [float(b.scale.alpha.detach()) for b in found.network.blocks]
    assert found.block("scale_value") == approx(before, rel=1e-6) and before != approx(after, rel=1e-3)


def test_scale_value_of_fixed_scales(probed):
    assert probed("scaled").block("scale_value") == approx([0.1, 0.1])
    assert probed("depth_scaled").block("scale_value") == approx([2**-0.5] * 2)
    assert probed("depth_mup").block("scale_value") == approx([2**-0.5] * 2)
    assert probed("fixup").block("scale_value") == approx([1, 1], abs=0.1)
    assert "scale_value" not in probed("residual").row["values"]["block"]


@pytest.mark.parametrize(("step", "share"), [(2, 0.3), (5, 0.6), (8, 0.9), (9, 1.0), (30, 1.0)])
def test_scale_value_of_a_rising_scale_is_that_of_its_own_step(probed, step, share):
    found = probed("scaled", values={"connection.alpha_warmup": 10}, step=step)
    assert found.block("scale_value") == approx([0.1 * share] * 2)


# kept_fraction, and ratios on kept samples


@pytest.mark.parametrize("scaling", ["train", "eval"])
@pytest.mark.parametrize("family", ["mlp", "cnn", "transformer"])
def test_kept_fraction_and_ratios_on_kept_samples_only(probed, family, scaling):
    found = probed("stochastic_depth", family, {"connection.drop_scaling": scaling})
    fractions, means, low, high, left_out, cosines = [], [], [], [], [], []
    total = len(found.twin.blocks)
    for i, (block, x) in enumerate(zip(found.twin.blocks, found.x, strict=True)):
        f = branch_of(block, x)
        block.drop.begin_step(0, STEP)
        kept = per_sample(block.drop(torch.ones_like(f))) > 0
        survival = 1 - (i + 1) / total * 0.5
        added = f / survival if scaling == "train" else f
        use = kept & (per_sample(x) > 0)
        ratio = (per_sample(added)[use] / per_sample(x)[use]).numpy()
        fractions.append(float(kept.double().mean()))
        means.append(ratio.mean())
        low.append(np.quantile(ratio, 0.1))
        high.append(np.quantile(ratio, 0.9))
        left_out.append(int((~use).sum()))
        cosines.append(float(torch.cosine_similarity(x.flatten(1), f.detach().flatten(1))[use].mean()))
    assert 0 < sum(fractions) < total and sum(left_out) > 0
    assert found.block("kept_fraction") == approx(fractions, rel=1e-6)
    assert found.block("branch_ratio") == approx(means, rel=1e-3)
    assert found.block("branch_ratio_q10") == approx(low, rel=1e-3)
    assert found.block("branch_ratio_q90") == approx(high, rel=1e-3)
    assert found.block("branch_ratio_left_out") == left_out
    assert found.block("branch_cosine") == approx(cosines, rel=1e-2, abs=1e-4)


def test_a_branch_dropped_on_the_whole_batch_has_no_ratio_and_says_why(probed):
    values = {"connection.drop": "constant", "connection.survival": 0.01, "connection.drop_unit": "batch"}
    found = probed("stochastic_depth", values=values)
    assert found.block("kept_fraction") == [0, 0] and found.block("branch_norm") == [0, 0]
    assert found.block("branch_ratio") == [None, None] and found.block("branch_ratio_left_out") == [EXAMPLES] * 2
    assert all(found.reasons("branch_ratio").values()) and len(found.reasons("branch_cosine")) == 2
    assert min(found.block("shortcut_norm")) > 0, "the shortcut's norm is that of all samples"


# attention_entropy


@pytest.mark.parametrize("family", ["vit", "transformer"])
def test_attention_entropy(probed, family):
    found = probed("residual", family, {"model.width": 8, "model.heads": 4})
    expected = []
    for block, x in zip(found.twin.blocks, found.x, strict=True):
        if not isinstance(block.branch, Attention):
            expected.append(None)
            continue
        qkv = F.linear(block.pre(x), block.branch.qkv.weight, block.branch.qkv.bias)
        entropies = []
        for sample in qkv:
            for head in range(4):
                q, k = (sample[:, part * 8 + head * 2 : part * 8 + head * 2 + 2] for part in (0, 1))
                for query in q:
                    p = torch.softmax(k @ query / math.sqrt(2), 0)
                    entropies.append(float(-(p * p.log()).sum()))
        expected.append(np.mean(entropies))
    found_values = found.block("attention_entropy")
    assert found_values[1] is None and found_values[3] is None
    assert found_values[0::2] == approx(expected[0::2], rel=1e-5)
    assert found.reasons("attention_entropy") == dict.fromkeys("13", "this block has none")


def test_uniform_attention_has_entropy_ln_t(probed):
    def flat(network):
        for block in network.blocks[0::2]:
            block.branch.qkv.weight.zero_()
            block.branch.qkv.bias.zero_()

    found = probed("residual", "transformer", prepare=flat)
    assert found.block("attention_entropy")[0::2] == approx([math.log(8)] * 2, rel=1e-6)


def test_per_branch_rows_of_a_transformer(probed):
    found = probed("residual", "vit")
    assert found.layout["block"] == [f"blocks.{i}" for i in range(4)]
    assert all(len(v) == 4 for v in found.row["values"]["block"].values())
    assert set(found.layout) == {"layer", "norm_scale", "norm_shift", "bias", "embedding", "block"}
    assert found.layout["embedding"] == ["stem.cls_token", "stem.pos_embed"]
    inner = [f"blocks.{2 * i + j}.branch.{n}.weight" for i in range(2)
             for j, n in ((0, "qkv"), (0, "proj"), (1, "fc1"), (1, "fc2"))]  # fmt: skip
    assert found.layout["layer"] == ["stem.op.weight", *inner, "head.weight"]


# concat, other shortcuts, zero init


def test_concat_has_no_addition_and_says_why(probed):
    found = probed("concat")
    for metric in ("branch_ratio", "branch_ratio_q10", "branch_ratio_q90", "branch_ratio_left_out", "branch_cosine",
                   "shortcut_norm"):  # fmt: skip
        assert found.block(metric) == [None, None]
        assert found.reasons(metric) == dict.fromkeys("01", "no addition: branch and trunk are concatenated")
    ratios = []
    for block, x in zip(found.twin.blocks, found.x, strict=True):
        use = per_sample(x) > 0
        ratios.append(float((per_sample(branch_of(block, x))[use] / per_sample(x)[use]).mean()))
    assert found.block("branch_over_input") == approx(ratios, rel=1e-3)


@pytest.mark.parametrize("family", ["mlp", "cnn"])
def test_shortcut_norm_where_the_shortcut_is_not_the_identity(probed, family):
    for connection in ("projected", "constant_scaling", "dropout_shortcut"):
        found = probed(connection, family)
        expected, cosines = [], []
        for block, x in zip(found.twin.blocks, found.x, strict=True):
            h = block.shortcut(x).detach()
            f = branch_of(block, x).detach() * (0.5 if connection == "constant_scaling" else 1)
            expected.append(float(per_sample(h).mean()))
            use = (per_sample(h) > 0) & (per_sample(f) > 0)
            cosines.append(float(torch.cosine_similarity(h.flatten(1), f.flatten(1))[use].mean()))
        assert found.block("shortcut_norm") == approx(expected, rel=1e-3)
        assert found.block("shortcut_norm") != approx(found.block("input_norm"), rel=0.05)
        assert found.block("branch_cosine") == approx(cosines, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("boundary", ["zero_pad", "pool", "projection"])
def test_shortcut_norm_at_a_stage_boundary(probed, boundary):
    found = probed("residual", "cifar_resnet", {"model.boundary": boundary})
    expected = [float(per_sample(b.shortcut(x)).mean()) for b, x in zip(found.twin.blocks, found.x, strict=True)]
    assert found.block("shortcut_norm") == approx(expected, rel=1e-3)
    assert found.block("shortcut_norm")[0] == found.block("input_norm")[0]


def test_layernorm_scaling_is_seen_in_the_branch(probed):
    found = probed("layernorm_scaling")
    expected = [float(per_sample(branch_of(b, x)).mean()) for b, x in zip(found.twin.blocks, found.x, strict=True)]
    assert found.block("branch_norm") == approx(expected, rel=1e-4)


@pytest.mark.parametrize("connection", ["skipinit", "rezero", "zero_init"])
def test_zero_init_in_the_first_step(probed, connection):
    found = probed(connection, updates=0)
    assert found.block("branch_norm") == [0, 0] and found.block("branch_ratio") == [0, 0]
    assert found.block("branch_cosine") == [None, None]
    assert found.reasons("branch_cosine") == dict.fromkeys("01", "branch or shortcut is 0 on every sample")
    scope = "norm_scale" if connection == "zero_init" else "connection"
    names = found.layout[scope]
    zero = [i for i, n in enumerate(names) if n.endswith(("scale.alpha", "branch.1.norm.weight"))]
    assert len(zero) == 2
    assert [found.row["values"][scope]["update_ratio"][i] for i in zero] == [None, None]
    assert {found.row["reasons"][scope]["update_ratio"][str(i)] for i in zero} == {"‖W(t)‖ = 0"}
    inner = [i for i, n in enumerate(found.layout["layer"]) if ".branch." in n]
    assert [float(found.row["values"]["layer"]["grad_norm"][i]) for i in inner] == [0.0] * 4


def test_fixup_in_the_first_step(probed):
    found = probed("fixup", updates=0)
    last = [i for i, n in enumerate(found.layout["layer"]) if n.endswith("branch.1.op.weight") or n == "head.weight"]
    assert len(last) == 3
    assert all(found.row["values"]["layer"]["update_ratio"][i] is None for i in last)
    assert found.block("block_gain") == [None, None], "no gradient passes a head that is 0"
    assert set(found.reasons("block_gain").values()) == {"no gradient at the block's output"}


# Every preset, every family.

WHY = {
    "update_ratio": {"‖W(t)‖ = 0"},
    "dead_fraction": {"no activation follows this layer"},
    "attention_entropy": {"this block has none"},
    "scale_value": set(),
    "block_gain": {"no gradient at the block's output"},
    "branch_cosine": {"branch or shortcut is 0 on every sample"},
}
NO_ADDITION = {"plain": "no addition: not a residual ratio",
               "concat": "no addition: branch and trunk are concatenated"}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", PRESETS)
@pytest.mark.parametrize("updates", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_probed_step_gives_a_complete_row(probed, connection, family, updates):
    if connection == "fixup" and family in ("vit", "transformer"):
        pytest.skip("validation refuses this combination, see test_validation.py")
    found = probed(connection, family, updates=updates)
    values = found.row["values"]
    assert set(values) == set(found.layout)
    parameters = [n for scope, names in found.layout.items() if scope != "block" for n in names]
    assert sorted(parameters) == sorted(n for n, _ in found.network.named_parameters())
    assert found.layout.get("connection", []) == found.network.connection_parameters()
    for scope, metrics in values.items():
        for metric, numbers in metrics.items():
            assert len(numbers) == len(found.layout[scope]), (scope, metric)
            why = found.row["reasons"].get(scope, {}).get(metric, {})
            missing = {str(i) for i, v in enumerate(numbers) if v is None}
            assert missing == set(why), (scope, metric)
            assert all(math.isfinite(v) for v in numbers if v is not None), (scope, metric)
            allowed = WHY.get(metric, set()) | {NO_ADDITION.get(connection, "")}
            assert set(why.values()) <= allowed, (scope, metric, why)
    always = {"input_norm", "branch_norm", "output_norm", "forward_gain", "block_gain", "shortcut_norm"}
    assert always <= set(values["block"])
    wanted = {
        "gate_mean": connection in ("highway", "gated"),
        "scale_value": connection in ("scaled", "depth_scaled", "constant_scaling", "skipinit", "rezero", "layerscale",
                                      "fixup", "depth_mup"),
        "kept_fraction": connection == "stochastic_depth",
        "attention_entropy": family in ("vit", "transformer"),
    }  # fmt: skip
    assert {m for m in wanted if m in values["block"]} == {m for m, there in wanted.items() if there}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", PRESETS)
def test_looking_changes_no_bit(make_preset, make_network, make_flat, connection, family):
    if connection == "fixup" and family in ("vit", "transformer"):
        pytest.skip("validation refuses this combination, see test_validation.py")
    conf = make_preset(connection, family)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(EXAMPLES, *SHAPE, generator=draw), torch.randint(0, 3, (EXAMPLES,), generator=draw)
    ends = []
    for probing in (True, False):
        network = make_network(conf, SHAPE)
        flat = make_flat(network, conf)
        optimizer = build_optimizer(conf.optimizer, flat)
        probe = Probe(network, flat)
        for step in range(3):
            network.begin_step(conf.seed, step)
            if probing:
                probe.arm(EXAMPLES)
            flat.zero_grad()
            F.cross_entropy(network(x), y).backward()
            if probing:
                probe.after_backward()
                probe.before_update()
            optimizer.step()
            if probing:
                probe.after_update()
                probe.collect().sent().row(step)
        ends.append([flat.data.clone(), *[b.clone() for b in network.buffers()]])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert not torch.equal(ends[0][0], make_flat(make_network(conf, SHAPE), conf).data)


def test_no_hook_is_left_behind(probed):
    for connection, family in (("highway", "mlp"), ("stochastic_depth", "transformer")):
        network = probed(connection, family).network
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
        assert not any(m.watch for m in network.modules() if isinstance(m, Attention))


def test_connection_parameters_are_a_scope_in_forward_order(make_preset):
    conf = make_preset("fixup", "mlp")
    network = build(conf.model, conf.connection, conf.depth, SHAPE, 3)
    names = network.connection_parameters()
    assert names[0] == "stem.before_act.bias" and names[-1] == "before_head.bias"
    assert names[1:6] == ["blocks.0.branch.0.before_op.bias", "blocks.0.branch.0.before_act.bias",
                         "blocks.0.branch.1.before_op.bias", "blocks.0.scale.alpha", "blocks.0.scale.bias"]  # fmt: skip
