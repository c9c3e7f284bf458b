"""What connections declare: rules by depth, factors on draws and learning rates, what is never decayed."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from plainres.flat import FlatParameters
from plainres.models.families import build, num_branches
from plainres.models.init import Draws
from plainres.models.rules import rules_of, undecayed
from plainres.optim import build_optimizer, learning_rate, set_learning_rate
from plainres.options import DecayRule

PRESETS = sorted(p.stem for p in (Path(__file__).parents[2] / "conf" / "connection").glob("*.yaml"))
FAMILIES = ["mlp", "cnn", "cifar_resnet", "vit", "transformer"]
SHAPE = (1, 8, 8)
REFUSED = {("fixup", "vit"), ("fixup", "transformer")}


def fits(connection, family):
    return (connection, family) not in REFUSED


def meta(conf):
    return build(conf.model, conf.connection, conf.depth, SHAPE, 3)


def draws_of(conf):
    network = meta(conf)
    return network, Draws(network, conf.model, rules_of(conf), conf.seed)


# L.


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        ("mlp", {"depth": 10}, 4),
        ("mlp", {"depth": 4}, 1),
        ("cnn", {"depth": 8, "model.branch_layers": 3}, 2),
        ("cifar_resnet", {"depth": 110}, 54),
        ("imagenet_resnet", {"depth": 34}, 16),
        ("vit", {"depth": 12}, 24),
        ("transformer", {"depth": 1}, 2),
    ],
)
def test_number_of_branches_joined_to_the_trunk(make_preset, family, values, expected):
    conf = make_preset("residual", family, values)
    assert num_branches(conf.model, conf.depth) == expected


def factor(make_preset, connection, family, depth, values=None):
    return meta(make_preset(connection, family, {"depth": depth} | (values or {}))).blocks[-1]


@pytest.mark.parametrize(("family", "depth", "branches"), [("mlp", 4, 1), ("mlp", 50, 24), ("transformer", 6, 12)])
def test_scales_by_depth(make_preset, family, depth, branches):
    for power in (0.5, 1.0, 0.25):
        block = factor(make_preset, "depth_scaled", family, depth, {"connection.alpha_power": power})
        assert block.scale.alpha == pytest.approx(branches**-power)
    assert factor(make_preset, "depth_mup", family, depth).scale.alpha == pytest.approx(1 / math.sqrt(branches))


DEEPNORM = [(1, 2**0.25, 8**-0.25), (6, 12**0.25, 48**-0.25), (18, 36**0.25, 144**-0.25), (100, 200**0.25, 800**-0.25)]


@pytest.mark.parametrize(("layers", "alpha", "beta"), DEEPNORM)
def test_deepnorm_of_an_encoder_of_n_layers(make_preset, layers, alpha, beta):
    conf = make_preset("deepnorm", "transformer", {"depth": layers})
    assert [b.shortcut.alpha for b in meta(conf).blocks] == pytest.approx([alpha] * 2 * layers)
    rules = rules_of(conf)
    assert rules.value_factor() == pytest.approx(beta)
    for name in ("blocks.0.branch.proj.weight", "blocks.1.branch.fc1.weight", "blocks.1.branch.fc2.weight"):
        assert rules.draw_factor(name, (6, 6)) == pytest.approx(beta)
    for name in ("blocks.0.branch.qkv.weight", "blocks.0.branch.proj.bias", "blocks.0.post.weight", "head.weight",
                 "stem.op.weight"):  # fmt: skip
        assert rules.draw_factor(name, (6, 6)) == 1


def test_deepnorm_of_one_block(make_preset):
    conf = make_preset("deepnorm", "mlp", {"depth": 4})
    assert meta(conf).blocks[0].shortcut.alpha == 1 and rules_of(conf).value_factor() == pytest.approx(4**-0.25)


def test_layernorm_scaling_counts_layers_from_1(make_preset):
    network = meta(make_preset("layernorm_scaling", "mlp", {"depth": 8}))
    assert [b.pre_scale.alpha for b in network.blocks] == pytest.approx([1, 2**-0.5, 3**-0.5])
    network = meta(make_preset("layernorm_scaling", "vit", {"depth": 3}))
    assert [b.pre_scale.alpha for b in network.blocks] == pytest.approx([1, 1, *[2**-0.5] * 2, *[3**-0.5] * 2])
    assert meta(make_preset("layernorm_scaling", "mlp", {"depth": 4})).blocks[0].pre_scale.alpha == 1


@pytest.mark.parametrize(("m", "depth", "branches"), [(2, 4, 1), (2, 50, 24), (3, 5, 1), (3, 50, 16), (4, 34, 8)])
def test_fixups_factor(make_preset, m, depth, branches):
    rules = rules_of(make_preset("fixup", "cnn", {"depth": depth, "model.branch_layers": m}))
    for i in range(m - 1):
        assert rules.draw_factor(f"blocks.0.branch.{i}.op.weight", (6, 6, 3, 3)) == pytest.approx(
            branches ** (-1 / (2 * m - 2))
        )
    assert rules.draw_factor(f"blocks.0.branch.{m - 1}.op.weight", (6, 6, 3, 3)) == 0
    assert rules.draw_factor("head.weight", (3, 6)) == 0
    assert rules.draw_factor("stem.op.weight", (6, 1, 3, 3)) == 1
    assert rules.draw_factor("blocks.0.scale.alpha", ()) == 1


def test_fixups_first_std(make_preset, make_network):
    network = make_network(make_preset("fixup", "cnn", {"model.width": 64, "depth": 10}), SHAPE)
    std = torch.stack([b.branch[0].op.weight.std() for b in network.blocks]).mean().item()
    assert std == pytest.approx(math.sqrt(2 / (9 * 64)) * 4**-0.5, rel=0.01)
    assert all(b.branch[1].op.weight.abs().max() == 0 for b in network.blocks)
    assert all(b.scale.alpha == 1 and b.scale.bias == 0 for b in network.blocks)


@pytest.mark.parametrize("width", [16, 32])
def test_fixups_std_is_by_fan_out_where_a_block_widens(make_preset, make_network, width):
    """√(2/(k²·C_out))·B^(−1/2), as in the authors' code: REFERENCE.md, constants."""
    network = make_network(make_preset("fixup", "cifar_resnet", {"model.width": width, "depth": 20}), SHAPE)
    for block, channels in zip(network.blocks, [width] * 3 + [2 * width] * 3 + [4 * width] * 3, strict=True):
        weight = block.branch[0].op.weight
        expected = math.sqrt(2 / (9 * channels)) * 9**-0.5
        assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel())), block.index


def test_fixups_factor_keeps_other_rules_of_init(make_preset):
    for init, expected in (("he", math.sqrt(6 / 12)), ("xavier", 1), ("orthogonal", 1)):
        rules = rules_of(make_preset("fixup", "cnn", {"depth": 10, "model.init": init}))
        assert rules.draw_factor("blocks.0.branch.0.op.weight", (12, 6, 3, 3)) == pytest.approx(0.5 * expected)
        assert ("where the width changes" in rules.declared()[0]) is (init == "he")


# Draws.


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", PRESETS)
def test_draws_are_those_of_the_partner_before_declared_factors(make_preset, connection, family):
    if not fits(connection, family):
        pytest.skip("validation refuses this combination, see test_validation.py")
    conf = make_preset(connection, family)
    partner = make_preset("plain", family, {
        f"model.{n}": getattr(conf.model, n) for n in ("placement", "norm", "boundary")
    })  # fmt: skip
    network, draws = draws_of(conf)
    other, partner_draws = draws_of(partner)
    mine, theirs = draws.hashes(), partner_draws.hashes()
    extra = set(network.connection_parameters())
    assert set(mine) - extra == set(theirs) and not other.connection_parameters()
    assert {n: h for n, h in mine.items() if n not in extra} == theirs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", PRESETS)
def test_values_are_the_partners_times_the_declared_factor(make_preset, make_network, connection, family):
    if not fits(connection, family):
        pytest.skip("validation refuses this combination, see test_validation.py")
    conf = make_preset(connection, family)
    values = {f"model.{n}": getattr(conf.model, n) for n in ("placement", "norm", "boundary")}
    mine = dict(make_network(conf, SHAPE).named_parameters())
    theirs = dict(make_network(make_preset("plain", family, values), SHAPE).named_parameters())
    rules, changed = rules_of(conf), []
    for name, value in theirs.items():
        expected = value * rules.draw_factor(name, value.shape)
        if name.endswith("qkv.weight") and connection == "deepnorm":
            third = len(value) // 3
            expected = torch.cat([value[: 2 * third], value[2 * third :] * rules.value_factor()])
        assert torch.equal(mine[name], expected), name
        changed += [name] if not torch.equal(expected, value) else []
    assert bool(changed) is (connection in ("zero_init", "fixup", "deepnorm"))


def test_rows_of_values_under_deepnorm(make_preset, make_network):
    mine, plain = (
        make_network(make_preset(c, "vit", {"model.placement": "post_norm"}), SHAPE).blocks[2].branch.qkv.weight
        for c in ("deepnorm", "plain")
    )
    beta = (4 * 4) ** -0.25
    assert torch.equal(mine[:8], plain[:8]) and torch.equal(mine[8:], plain[8:] * beta)
    assert plain.shape == (12, 4)
    assert not torch.equal(plain[:4], plain[4:8])


def test_query_key_and_value_are_each_drawn_as_one_map(make_preset, make_network):
    conf = make_preset("plain", "vit", {"model.width": 64, "model.heads": 4})
    weight = make_network(conf, SHAPE).blocks[0].branch.qkv.weight
    for part in weight.split(64):
        assert part.std().item() == pytest.approx(math.sqrt(2 / 128), rel=0.05)


# Learning rates and decay.


def groups_by_name(network, flat, optimizer):
    found = {}
    for group in optimizer.param_groups:
        (tensor,) = group["params"]
        start = (tensor.data_ptr() - flat.data.data_ptr()) // 4
        for name, p in network.named_parameters():
            if start <= (p.data_ptr() - flat.data.data_ptr()) // 4 < start + tensor.numel():
                assert name not in found
                found[name] = group
    assert set(found) == {n for n, _ in network.named_parameters()}
    return found


def optimized(make_network, make_flat, conf):
    network = make_network(conf, SHAPE)
    flat = make_flat(network, conf)
    optimizer = build_optimizer(conf.optimizer, flat)
    set_learning_rate(optimizer, 0.5)
    return network, groups_by_name(network, flat, optimizer)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_fixups_scalars_learn_at_a_tenth(make_preset, make_network, make_flat, name):
    conf = make_preset("fixup", "cnn", {"optimizer.name": name})
    _, groups = optimized(make_network, make_flat, conf)
    slow = {n for n, g in groups.items() if g["lr"] == pytest.approx(0.05)}
    ends = (".scale.alpha", ".scale.bias", ".before_op.bias", ".before_act.bias", "before_head.bias")
    assert slow == {n for n in groups if n.endswith(ends)} and len(slow) == 2 * (2 + 3) + 2
    assert all(g["lr"] == 0.5 for n, g in groups.items() if n not in slow)


SLOWED = {  # what stands in block 0 and learns at lr/√L, and what does not: weights and vectors of the branch alike
    ("mlp", "post_activation"): (["branch.0.op.weight", "branch.0.norm.weight", "branch.0.norm.bias",
                                  "branch.1.op.weight", "branch.1.norm.weight", "branch.1.norm.bias"], []),
    ("cnn", "sandwich"): (["pre.weight", "pre.bias", "branch.0.op.weight", "branch.1.op.weight",
                           "out.weight", "out.bias"], []),
    ("transformer", "pre_norm"): (["pre.weight", "pre.bias", "branch.qkv.weight", "branch.qkv.bias",
                                   "branch.proj.weight", "branch.proj.bias"], []),
    ("vit", "post_norm"): (["branch.qkv.weight", "branch.qkv.bias", "branch.proj.weight", "branch.proj.bias"],
                           ["post.weight", "post.bias"]),  # the trunk's own norm
}  # fmt: skip


@pytest.mark.parametrize(("family", "placement"), SLOWED)
def test_depth_mup_slows_all_of_a_branch_under_adamw_only(make_preset, make_network, make_flat, family, placement):
    values = {"depth": 8, "model.placement": placement}
    conf = make_preset("depth_mup", family, values | {"optimizer.name": "adamw"})
    branches = num_branches(conf.model, conf.depth)
    _, groups = optimized(make_network, make_flat, conf)
    slowed, others = SLOWED[family, placement]
    assert {n for n in groups if n.startswith("blocks.0.")} == {f"blocks.0.{n}" for n in [*slowed, *others]}
    for name, group in groups.items():
        inside = name.startswith("blocks.") and ".post." not in name
        assert group["lr"] == pytest.approx(0.5 / math.sqrt(branches) if inside else 0.5), name
    assert all(groups[f"blocks.0.{n}"]["lr"] < 0.5 for n in slowed) and groups["head.weight"]["lr"] == 0.5
    _, groups = optimized(make_network, make_flat, make_preset("depth_mup", family, values))
    assert {g["lr"] for g in groups.values()} == {0.5}


def test_depth_mup_leaves_projections_at_a_boundary_alone(make_preset, make_network, make_flat):
    values = {"model.boundary": "projection", "optimizer.name": "adamw"}
    _, groups = optimized(make_network, make_flat, make_preset("depth_mup", "cifar_resnet", values))
    assert {g["lr"] for n, g in groups.items() if ".shortcut." in n} == {0.5}, "they are the trunk, not a branch"


@pytest.mark.parametrize("decay", list(DecayRule))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", ["skipinit", "rezero", "layerscale", "highway", "gated", "fixup"])
def test_scales_and_gates_are_never_decayed(make_preset, make_network, make_flat, connection, family, decay):
    if not fits(connection, family):
        pytest.skip("validation refuses this combination, see test_validation.py")
    conf = make_preset(connection, family, {"optimizer.decay": str(decay)})
    network, groups = optimized(make_network, make_flat, conf)
    extra = undecayed(network)
    parts = (
        "scale.alpha",
        "scale.bias",
        "gate.op.weight",
        "gate.op.bias",
        "before_op.bias",
        "before_act.bias",
        "before_head.bias",
    )
    assert extra == {n for n in groups if n.endswith(parts)} and extra
    for name, group in groups.items():
        matrix = dict(network.named_parameters())[name].dim() > 1
        decayed = name not in extra and (decay is DecayRule.all or matrix)
        assert group["weight_decay"] == (conf.optimizer.weight_decay if decayed else 0), name


def test_projections_and_the_way_back_from_concat_are_decayed_as_other_weights(make_preset, make_network, make_flat):
    for connection, ends in (("projected", "shortcut.op.weight"), ("concat", "merge.op.weight")):
        network, groups = optimized(make_network, make_flat, make_preset(connection))
        assert undecayed(network) == frozenset()
        assert {g["weight_decay"] for n, g in groups.items() if n.endswith(ends)} == {1e-4}


def test_regions_cover_the_buffer_once(make_preset, make_network, make_flat):
    for connection in ("fixup", "layerscale", "depth_mup"):
        values = {"optimizer.name": "adamw", "optimizer.decay": "matrices"}
        conf = make_preset(connection, "cnn", values)
        network = make_network(conf, SHAPE)
        flat = make_flat(network, conf)
        assert flat.regions[0].start == 0 and flat.regions[-1].stop == flat.data.numel()
        assert all(a.stop == b.start for a, b in zip(flat.regions, flat.regions[1:], strict=False))
        assert len({(r.decayed, r.lr_factor) for r in flat.regions}) == len(flat.regions)
        assert sorted(flat.names) == sorted(n for n, _ in network.named_parameters())


@pytest.mark.parametrize("optimizer", [{}, {"optimizer.nesterov": True}, {"optimizer.name": "adamw"}])
@pytest.mark.parametrize(("connection", "family"), [("fixup", "mlp"), ("depth_mup", "mlp"), ("rezero", "transformer")])
def test_updates_are_torchs_own_with_one_group_a_parameter(
    make_preset, make_network, make_flat, connection, family, optimizer
):
    values = optimizer | {"optimizer.weight_decay": 0.1, "optimizer.lr": 0.01}
    conf = make_preset(connection, family, values)
    network, separate = make_network(conf, SHAPE), make_network(conf, SHAPE)
    flat = make_flat(network, conf)
    mine, rules, held = build_optimizer(conf.optimizer, flat), rules_of(conf), undecayed(separate)
    groups = [
        {"params": [p], "factor": rules.lr_factor(n), "weight_decay": 0.0 if n in held else 0.1}
        for n, p in separate.named_parameters()
    ]
    opt = conf.optimizer
    theirs = (
        torch.optim.SGD(groups, 0.01, momentum=0.9, nesterov=opt.nesterov, foreach=False)
        if opt.name == "sgd"
        else torch.optim.AdamW(groups, 0.01, betas=(0.9, 0.999), foreach=False)
    )
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, *SHAPE, generator=draw), torch.randint(0, 3, (10,), generator=draw)
    for step in range(6):
        lr = learning_rate(conf.schedule, 0.01, step, 12)
        set_learning_rate(mine, lr)
        for group in theirs.param_groups:
            group["lr"] = lr * group["factor"]
        flat.zero_grad()
        theirs.zero_grad()
        for model in (network, separate):
            F.cross_entropy(model(x), y).backward()
        mine.step()
        theirs.step()
        for (name, p), q in zip(network.named_parameters(), separate.named_parameters(), strict=True):
            assert torch.equal(p, q[1]), name
    assert not torch.equal(network.head.weight, make_network(conf, SHAPE).head.weight)


def test_what_is_declared_is_said(make_preset):
    said = {c: rules_of(make_preset(c, values={"depth": 10})).declared() for c in PRESETS}
    assert {c for c, words in said.items() if words} == {"zero_init", "fixup", "deepnorm", "depth_mup"}
    assert said["fixup"] == [
        "fixup: branch draws × 0.5 (× √(fan_in/fan_out) where the width changes), "
        "last weight of each branch and head × 0, scalars at lr × 0.1"
    ]
    assert said["deepnorm"] == ["deepnorm: branch draws × 0.5 (in attention those of value and output)"]
    assert said["zero_init"] == ["zero_init: the scale of the last norm of every branch starts at 0"]
    weight = rules_of(make_preset("zero_init", values={"connection.zero_init": "last_weight"})).declared()
    assert weight == ["zero_init: the last weight of every branch starts at 0"]
    assert said["depth_mup"] == ["depth_mup: with sgd no learning rate of its own"]
    adamw = rules_of(make_preset("depth_mup", values={"depth": 10, "optimizer.name": "adamw"})).declared()
    assert adamw == ["depth_mup: branches at lr × 0.5"]


def test_one_region_without_rules(make_network, make_conf):
    flat = FlatParameters(make_network(make_conf()), DecayRule.all)
    assert [(r.decayed, r.lr_factor) for r in flat.regions] == [(True, 1.0)]
