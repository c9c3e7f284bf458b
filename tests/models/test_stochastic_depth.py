"""Stochastic depth and dropout on the shortcut: what is dropped, how often, and what evaluation does instead."""

import math

import pytest
import torch
from timm.layers import DropPath
from timm.models.vision_transformer import VisionTransformer

from plainres.models.connect import Place, connect
from plainres.models.layer import linear_kit
from plainres.models.scales import StochasticDepth, survival_of
from plainres.models.shortcuts import DropoutShortcut
from plainres.options import Activation, Boundary, Drop, DropScaling, DropUnit, Norm, Shortcut
from plainres.schema import ConnectionConf

F_ND = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) + 3  # no element is 0


def part(survival=0.7, unit="sample", scaling="train", index=2):
    return StochasticDepth(survival, DropUnit(unit), DropScaling(scaling), index)


def at(drop, step, seed=0, f=F_ND):
    drop.begin_step(seed, step)
    return drop(f)


@pytest.mark.parametrize("shape", [(6, 4), (6, 5, 4), (6, 3, 2, 2)])
@pytest.mark.parametrize("unit", ["sample", "batch"])
@pytest.mark.parametrize("scaling", ["train", "eval"])
def test_a_sample_is_kept_whole_or_dropped_whole(shape, unit, scaling):
    f = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 9
    drop, kinds = part(0.7, unit, scaling), set()
    for step in range(30):
        y = at(drop, step, f=f)
        factors = (y / f).flatten(1)
        assert (factors == factors[:, :1]).all() or torch.allclose(factors, factors[:, :1].expand_as(factors))
        kept = factors[:, 0] != 0
        expected = torch.where(kept, torch.tensor(1 / 0.7 if scaling == "train" else 1.0), torch.tensor(0.0))
        assert torch.allclose(factors[:, 0], expected)
        assert torch.equal(drop.kept_N.bool(), kept) and drop.kept_N.shape == (6,)
        kinds |= {tuple(kept.tolist())}
    assert (kinds == {(True,) * 6, (False,) * 6}) if unit == "batch" else len(kinds) > 10


@pytest.mark.parametrize("survival", [0.25, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("scaling", ["train", "eval"])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_the_expectation_over_all_masks_is_the_evaluation(survival, scaling, unit):
    """For one sample there are two masks; both are found, and weighted by their chances."""
    drop, found = part(survival, unit, scaling), {}
    for step in range(60):
        y = at(drop, step, f=F_ND[:1])
        found[bool(drop.kept_N.item())] = y.double()
    assert set(found) == ({True} if survival == 1 else {True, False})
    expectation = survival * found[True] + (1 - survival) * found.get(False, torch.zeros(1, 4, dtype=torch.float64))
    drop.eval()
    assert torch.allclose(drop(F_ND[:1]).double(), expectation, rtol=1e-6)


@pytest.mark.parametrize("scaling", ["train", "eval"])
@pytest.mark.parametrize(("survival", "index"), [(0.5, 0), (0.9, 7)])
def test_the_mean_over_many_steps_is_the_evaluation(survival, index, scaling):
    drop, count = part(survival, "sample", scaling, index), 0
    total = torch.zeros(64, 1, dtype=torch.float64)
    ones = torch.ones(64, 1)
    for step in range(200):
        total += at(drop, step, f=ones).double()
        count += int(drop.kept_N.sum())
    n = 64 * 200
    assert abs(count / n - survival) < 5 * math.sqrt(survival * (1 - survival) / n)
    evaluated = drop.eval()(ones).mean().item()
    value = 1 / survival if scaling == "train" else 1.0
    assert abs(total.mean().item() / 200 - evaluated) < 5 * value * math.sqrt(survival * (1 - survival) / n)


def test_evaluation_is_deterministic_and_draws_nothing():
    for scaling, factor in (("train", 1.0), ("eval", 0.7)):
        drop = part(scaling=scaling).eval()
        assert torch.equal(at(drop, 1), factor * F_ND) and torch.equal(at(drop, 2), factor * F_ND)
        assert drop.kept_N is None


def test_a_mask_is_a_function_of_seed_step_and_block_only():
    ones = torch.ones(64, 2)

    def mask(seed=0, step=5, index=2, f=ones):
        drop = part(index=index)
        at(drop, step, seed, f)
        return drop.kept_N.tolist()

    assert mask() == mask() == mask(f=torch.rand(64, 7, 2) + 3)
    assert len({tuple(m) for m in (mask(), mask(seed=1), mask(step=6), mask(index=3))}) == 4
    state = torch.get_rng_state()
    mask()
    assert torch.equal(torch.get_rng_state(), state), "torch's global generator is never used"
    drop = part()  # a recomputed forward pass sees the same
    assert torch.equal(at(drop, 5), drop(F_ND)) and torch.equal(drop(F_ND), drop(F_ND))


def test_linear_survival_falls_from_near_1_to_the_last():
    assert [survival_of(i, 4, 0.5, True) for i in range(4)] == [0.875, 0.75, 0.625, 0.5]
    assert [survival_of(i, 4, 0.5, False) for i in range(4)] == [0.5] * 4
    assert survival_of(0, 1, 0.3, True) == pytest.approx(0.3) and survival_of(0, 1, 0.3, False) == 0.3
    assert survival_of(53, 54, 0.5, True) == 0.5  # ResNet-110


def test_timms_rule_is_another_one_as_the_page_says(make_preset, make_network):
    """l/(L−1) over layers from 0, the same for both branches of a layer: the first is never dropped."""
    theirs = VisionTransformer(embed_dim=4, depth=3, num_heads=2, img_size=8, patch_size=4, drop_path_rate=0.5)
    rates = [getattr(part, "drop_prob", 0.0) for b in theirs.blocks for part in (b.drop_path1, b.drop_path2)]
    assert rates == pytest.approx([0, 0, 0.25, 0.25, 0.5, 0.5])
    mine = make_network(make_preset("stochastic_depth", "vit", {"depth": 3}))
    assert [1 - b.drop.survival for b in mine.blocks] == pytest.approx([0.5 * l / 6 for l in range(1, 7)])  # noqa: E741


def test_a_network_gives_every_block_its_survival(make_preset, make_network):
    network = make_network(make_preset("stochastic_depth", "mlp", {"depth": 10}))
    assert [b.drop.survival for b in network.blocks] == [0.875, 0.75, 0.625, 0.5]
    tokens = make_network(make_preset("stochastic_depth", "transformer", {"depth": 2}))
    assert [b.drop.survival for b in tokens.blocks] == [0.875, 0.75, 0.625, 0.5]
    alone = make_network(make_preset("stochastic_depth", "mlp", {"depth": 4}))
    assert [b.drop.survival for b in alone.blocks] == [0.5]


@pytest.mark.parametrize("scaling", ["train", "eval"])
def test_a_dropped_sample_passes_a_block_untouched_and_its_branch_learns_nothing(make_preset, make_network, scaling):
    values = {"model.placement": "none", "model.norm": "none", "connection.drop_scaling": scaling}
    block = make_network(make_preset("stochastic_depth", "mlp", values | {"depth": 4})).blocks[0]
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    block.drop.begin_step(0, 0)
    y = block(x)
    kept = block.drop.kept_N.bool()
    assert 0 < kept.sum() < 20
    assert torch.equal(y[~kept], x[~kept])
    expected = x + block.branch(x) * (2.0 if scaling == "train" else 1.0)
    assert torch.allclose(y[kept], expected[kept], rtol=1e-5)
    weight = block.branch[1].op.weight
    (nothing,) = torch.autograd.grad(y[~kept].sum(), weight, retain_graph=True)
    (something,) = torch.autograd.grad(y[kept].sum(), weight)
    assert nothing.abs().max() == 0 and something.abs().max() > 0


# timm's DropPath.


@pytest.mark.parametrize("survival", [0.5, 0.8])
@pytest.mark.parametrize("shape", [(400, 3), (400, 2, 3), (400, 2, 2, 2)])
def test_statistics_equal_timms_drop_path(survival, shape):
    theirs, mine = DropPath(1 - survival).train(), part(survival)
    f = torch.ones(shape)
    samples = {"mine": [], "theirs": []}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(20):
            for name, y in (("mine", at(mine, step, f=f)), ("theirs", theirs(f))):
                flat = y.flatten(1)
                assert torch.equal(flat, flat[:, :1].expand_as(flat)), name  # a sample as a whole
                samples[name].append(flat[:, 0])
    n = 400 * 20
    for name, values in samples.items():
        values = torch.cat(values)
        assert sorted(values.unique().tolist()) == pytest.approx([0, 1 / survival], rel=1e-6), name
        assert abs(values.mean().item() - 1) < 5 * math.sqrt((1 - survival) / survival / n), name
    assert torch.equal(mine.eval()(f), theirs.eval()(f))


# Dropout on the shortcut.


def test_dropout_shortcut_drops_units_and_rescales():
    drop, x = DropoutShortcut(0.25, 1), torch.full((50, 40), 2.0)
    drop.begin_step(0, 0)
    y = drop(x)
    assert sorted(y.unique().tolist()) == pytest.approx([0, 2 / 0.75])
    assert abs((y == 0).double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 2000)
    assert torch.equal(drop(x), y), "a recomputed forward pass sees the same mask"
    for seed, step, index in ((1, 0, 1), (0, 1, 1), (0, 0, 2)):
        other = DropoutShortcut(0.25, index)
        other.begin_step(seed, step)
        assert not torch.equal(other(x), y)
    assert torch.equal(drop.eval()(x), x)


def test_dropout_shortcut_in_a_block(make_preset, make_network):
    values = {"model.placement": "none", "model.norm": "none", "depth": 4}
    block = make_network(make_preset("dropout_shortcut", "mlp", values)).blocks[0].double()
    block.shortcut.begin_step(0, 0)
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    f = block.branch(x)
    carried = block(x) - f
    mask = (carried.detach().abs() > 1e-9).double()
    assert 0 < mask.mean() < 1
    assert torch.allclose(carried, 2 * mask * x, atol=1e-12)
    (found,) = torch.autograd.grad(block(x).sum(), x)
    (expected,) = torch.autograd.grad((2 * mask * x + block.branch(x)).sum(), x)
    assert torch.allclose(found, expected, rtol=1e-12)


def test_dropout_shortcut_expectation_over_both_masks():
    drop, found = DropoutShortcut(0.4, 0), set()
    for step in range(50):
        drop.begin_step(0, step)
        found.add(drop(torch.ones(1, 1)).item())
    low, high = sorted(found)
    assert 0.4 * low + 0.6 * high == pytest.approx(drop.eval()(torch.ones(1, 1)).item())


def test_which_blocks_drop():
    conf = ConnectionConf("x", Shortcut.identity, drop=Drop.constant, survival=0.75)
    kit = linear_kit(Norm.none, Activation.relu)
    parts = [connect(conf, kit, Place(i, 3, 3, 2, 2), Boundary.zero_pad).drop for i in range(3)]
    assert [(d.survival, d.index) for d in parts] == [(0.75, 0), (0.75, 1), (0.75, 2)]
    none = connect(ConnectionConf("x", Shortcut.identity), kit, Place(0, 1, 1, 2, 2), Boundary.zero_pad)
    assert none.drop is None
