"""Each metric of METRICS.md against a twin in float64 with plain autograd."""

import itertools
import math

import numpy as np
import pytest
import torch
from pytest import approx

from plainres.probes.responses import dead_fractions

CASES = [
    ("plain", {}),
    ("residual", {}),
    ("residual", {"depth": 10, "optimizer.decay": "matrices", "optimizer.name": "adamw", "optimizer.lr": 0.01}),
    ("plain", {"model.name": "cnn"}),
    ("residual", {"model.name": "cnn", "model.branch_layers": 3, "depth": 8}),
    ("plain", {"model.branch_layers": 1, "depth": 5}),
]
IDS = ["plain", "residual", "adamw-deep", "cnn-plain", "cnn-residual-m3", "m1"]


@pytest.fixture(scope="module", params=CASES, ids=IDS)
def step(request, take_step, make_conf):
    connection, values = request.param
    return take_step(make_conf(connection, {"optimizer.clip_norm": 0.5} | values))


@pytest.fixture(scope="module")
def residual_step(take_step, make_conf):
    return take_step(make_conf("residual"))


def norm(tensor):
    return math.sqrt(float((tensor.double() ** 2).sum()))


def per_sample(tensor):
    return torch.stack([t.square().sum().sqrt() for t in tensor.detach()])


def ratios(top, bottom):
    """Per sample, over those whose denominator is not 0."""
    a, b = per_sample(top), per_sample(bottom)
    return (a[b > 0] / b[b > 0]).numpy()


def scopes(step):
    return {scope: names for scope, names in step.probe.layout.items() if scope != "block"}


def test_scopes_hold_every_parameter_once_in_forward_order(step):
    layout = scopes(step)
    assert sorted(n for names in layout.values() for n in names) == sorted(step.twin.names)
    assert set(layout) == {"layer", "norm_scale", "norm_shift", "bias"}
    dims = {n: p.dim() for n, p in step.network.named_parameters()}
    assert all((dims[n] > 1) is (scope == "layer") for scope, names in layout.items() for n in names)
    assert layout["layer"] == [n for n in step.twin.names if dims[n] > 1]
    assert layout["bias"] == ["head.bias"]


def test_grad_norm_before_clipping_and_grad_rms(step):
    for scope, names in scopes(step).items():
        expected = [norm(step.twin.grads[n]) for n in names]
        rms = [e / math.sqrt(step.twin.grads[n].numel()) for e, n in zip(expected, names, strict=True)]
        assert step.values(scope, "grad_norm") == approx(expected, rel=1e-3, abs=1e-7)
        assert step.values(scope, "grad_rms") == approx(rms, rel=1e-3, abs=1e-7)


def test_weight_norm_and_update_ratio_from_copies_around_the_step(step):
    for scope, names in scopes(step).items():
        weights = [norm(step.before[n]) for n in names]
        updates = [norm(step.after[n] - step.before[n]) for n in names]
        assert step.values(scope, "weight_norm") == approx(weights, rel=1e-5)
        expected = [u / w for u, w in zip(updates, weights, strict=True)]
        assert step.values(scope, "update_ratio") == approx(expected, rel=1e-4)
        assert min(updates) > 0


def test_weight_norm_times_grad_norm(step):
    product = np.multiply(step.values("layer", "weight_norm"), step.values("layer", "grad_norm"))
    assert step.values("layer", "weight_grad_product") == approx(product, rel=1e-6)


def test_norms_of_trunk_and_branch(step):
    for metric, tensors in (("input_norm", step.twin.x), ("branch_norm", step.twin.f), ("output_norm", step.twin.y)):
        assert step.values("block", metric) == approx([float(per_sample(t).mean()) for t in tensors], rel=1e-4)


def test_forward_gain_is_a_mean_of_ratios(step):
    expected = [ratios(y, x).mean() for x, y in zip(step.twin.x, step.twin.y, strict=True)]
    assert step.values("block", "forward_gain") == approx(expected, rel=1e-4)


def test_branch_ratio_its_quantiles_and_cosine(step):
    pairs = list(zip(step.twin.x, step.twin.f, strict=True))
    by_block = [ratios(f, x) for x, f in pairs]
    mean = [r.mean() for r in by_block]
    if not step.twin.residual:
        assert step.values("block", "branch_over_input") == approx(mean, rel=1e-4)
        return
    assert step.values("block", "branch_ratio") == approx(mean, rel=1e-4)
    for metric, share in (("branch_ratio_q10", 0.1), ("branch_ratio_q90", 0.9)):
        assert step.values("block", metric) == approx([np.quantile(r, share) for r in by_block], rel=1e-4)
    assert step.values("block", "branch_ratio_left_out") == [0.0] * len(pairs)
    assert step.values("block", "shortcut_norm") == step.values("block", "input_norm")
    cosine = [torch.cosine_similarity(x.flatten(1), f.flatten(1)).mean().item() for x, f in pairs]  # none is silent
    assert step.values("block", "branch_cosine") == approx(cosine, rel=1e-3, abs=1e-5)
    assert "branch_over_input" not in step.row["values"]["block"]


def test_activation_gradients_and_block_gain(step):
    n = step.twin.batch
    expected = [float(per_sample(g).mean()) * n for g in step.twin.trunk_grads]
    assert step.values("block", "activation_grad_norm_input") == approx(expected[:-1], rel=1e-3)
    assert step.values("block", "activation_grad_norm_output") == approx(expected[1:], rel=1e-3)
    gains = [a / b for a, b in itertools.pairwise(expected)]
    assert step.values("block", "block_gain") == approx(gains, rel=1e-3)


def test_the_product_of_block_gains_is_first_over_last(step):
    product = math.prod(step.values("block", "block_gain"))
    first, last = (
        step.values("block", "activation_grad_norm_input")[0],
        step.values("block", "activation_grad_norm_output")[-1],
    )
    assert product == approx(first / last, rel=1e-5)


def test_response_std_after_the_norm(step):
    expected = [float(r.detach().std(correction=0)) for r in step.twin.responses]
    assert step.values("layer", "response_std") == approx(expected, rel=1e-4)
    assert len(step.probe.response_labels) == len(expected)
    assert step.probe.response_labels[-1] == "output of the layer itself: no norm follows"


def test_dead_fraction_is_the_share_of_units_at_0_on_the_whole_batch(step):
    expected = []
    for activation in step.twin.activations:
        units = [activation[:, c] for c in range(activation.shape[1])]
        expected.append(sum(bool((u == 0).all()) for u in units) / len(units))
    *found, head = step.values("layer", "dead_fraction")
    assert found == approx(expected, rel=1e-6) and head is None


def test_dead_units_are_seen(take_step, make_conf):
    def kill(network):
        network.stem.norm.bias[:2] = -100.0
        network.blocks[0].branch[0].norm.bias[0] = -100.0

    for family in ("mlp", "cnn"):
        found = take_step(make_conf("plain", {"model.name": family, "model.width": 8}), prepare=kill)
        stem, first = found.values("layer", "dead_fraction")[:2]
        assert (stem, first) == (approx(2 / 8), approx(1 / 8))


def test_a_unit_is_dead_only_if_it_is_exactly_0_everywhere():
    alive_at_one_place = torch.zeros(4, 3, 2, 2)
    alive_at_one_place[2, 1, 0, 1] = 1e-38
    assert dead_fractions(alive_at_one_place[None]).item() == approx(2 / 3)
    assert dead_fractions(alive_at_one_place[None, :, :, 0, 0]).item() == 1.0


def test_the_plain_arm_has_no_residual_ratio_and_says_why(take_step, make_conf):
    row = take_step(make_conf("plain")).row
    values, reasons = row["values"]["block"], row["reasons"]["block"]
    for metric in ("branch_ratio", "branch_ratio_q10", "branch_ratio_q90", "branch_ratio_left_out", "branch_cosine"):
        assert values[metric] == [None, None]
        assert reasons[metric] == dict.fromkeys("01", "no addition: not a residual ratio")
    assert values["shortcut_norm"] == [None, None]
    assert all(v > 0 for v in values["branch_over_input"])


def test_no_value_is_null_where_none_should_be(residual_step):
    assert residual_step.row["step"] == 7
    assert residual_step.row["reasons"] == {"layer": {"dead_fraction": {"5": "no activation follows this layer"}}}


def test_zero_weights_have_no_update_ratio(take_step, make_conf):
    fresh = take_step(make_conf("residual"), updates=0)
    reasons, values = fresh.row["reasons"], fresh.row["values"]
    for scope in ("norm_shift", "bias"):
        count = len(fresh.probe.layout[scope])
        assert values[scope]["update_ratio"] == [None] * count
        assert reasons[scope]["update_ratio"] == {str(i): "‖W(t)‖ = 0" for i in range(count)}
        assert fresh.values(scope, "weight_norm") == [0.0] * count
        assert all(v is not None for v in fresh.values(scope, "grad_norm"))
    assert "update_ratio" not in reasons["layer"]


def test_samples_without_a_shortcut_signal_are_left_out_and_counted(take_step, make_conf):
    def silence(network):
        network.stem.norm.bias.fill_(-1.5)

    found = take_step(make_conf("residual"), prepare=silence)
    h, f = per_sample(found.twin.x[0]), per_sample(found.twin.f[0])
    kept = h > 0
    assert 0 < kept.sum() < len(h), "choose another shift: some samples are to be silent, not all"
    kept_ratios = (f / h)[kept].numpy()
    assert found.values("block", "branch_ratio_left_out")[0] == int((~kept).sum())
    assert found.values("block", "branch_ratio")[0] == approx(kept_ratios.mean(), rel=1e-4)
    assert found.values("block", "branch_ratio_q10")[0] == approx(np.quantile(kept_ratios, 0.1), rel=1e-4)
    gain = (per_sample(found.twin.y[0]) / h)[kept].mean()
    assert found.values("block", "forward_gain")[0] == approx(float(gain), rel=1e-4)
    cosine = torch.cosine_similarity(found.twin.x[0], found.twin.f[0])[kept].mean().detach()
    assert found.values("block", "branch_cosine")[0] == approx(float(cosine), rel=1e-3)


def test_no_signal_at_all_is_null_with_a_reason(take_step, make_conf):
    def silence(network):
        network.stem.norm.bias.fill_(-100.0)

    found = take_step(make_conf("residual"), prepare=silence)
    for metric in ("branch_ratio", "branch_ratio_q10", "branch_ratio_q90"):
        assert found.values("block", metric)[0] is None
        assert found.row["reasons"]["block"][metric]["0"] == "no shortcut signal"
    assert found.values("block", "branch_ratio_left_out")[0] == 32
    assert found.values("block", "forward_gain")[0] is None
    assert found.row["reasons"]["block"]["forward_gain"]["0"] == "no input signal"


def test_no_gradient_at_the_output_is_null_with_a_reason(take_step, make_conf):
    def cut(network):
        network.head.weight.zero_()

    found = take_step(make_conf("plain"), prepare=cut)
    assert found.values("block", "activation_grad_norm_output") == [0.0, 0.0]
    assert found.values("block", "block_gain") == [None, None]
    assert found.row["reasons"]["block"]["block_gain"]["1"] == "no gradient at the block's output"


@pytest.mark.parametrize("scale", [1e20, 1e-3])
def test_a_norm_that_overflows_is_null_with_a_reason(take_step, make_conf, scale):
    def blow_up(network):
        network.blocks[0].branch[0].op.weight.fill_(scale)

    found = take_step(make_conf("plain"), prepare=blow_up)
    overflowed = scale > 1
    values = found.values("layer", "weight_norm")
    assert (values[1] is None) is overflowed and values[0] is not None
    reasons = found.row["reasons"]["layer"].get("weight_norm", {})
    assert reasons == ({"1": "overflowed float32"} if overflowed else {})


def test_a_gradient_norm_that_overflows_is_null_with_a_reason(take_step, make_conf):
    def blow_up(network):
        network.head.weight.mul_(1e22)

    found = take_step(make_conf("plain"), prepare=blow_up)
    values, reasons = found.row["values"]["layer"], found.row["reasons"]["layer"]
    lost = [i for i, v in enumerate(values["grad_norm"]) if v is None]
    assert lost, "this is to overflow somewhere"
    assert all(reasons["grad_norm"][str(i)] == "overflowed float32" for i in lost)
    assert all(values["weight_grad_product"][i] is None for i in lost)
