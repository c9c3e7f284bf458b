"""Connections in whole runs: probes change no bit, and an interrupted run goes on to the same bits."""

from dataclasses import replace

import pytest
import torch

from plainres import checkpoint
from plainres.divergence import name_first_non_finite
from plainres.rows import read_table
from plainres.store import Status, Study

SHORT = {"trainer.steps": 8, "trainer.eval_every": 1, "trainer.batchstats_every": 2, "probe.every": 1}
TIMED = {
    "stochastic_depth": ("stochastic_depth", "mlp", {}),
    "stochastic_depth_batch_eval": (
        "stochastic_depth", "mlp", {"connection.drop_unit": "batch", "connection.drop_scaling": "eval"}),
    "stochastic_depth_cnn": ("stochastic_depth", "cnn", {}),
    "dropout_shortcut": ("dropout_shortcut", "mlp", {}),
    "warm_up": ("scaled", "mlp", {"connection.alpha": 1.0, "connection.alpha_warmup": 6}),
    "depth_warm_up": ("depth_scaled", "mlp", {"connection.alpha_warmup": 20}),
    "rezero_transformer": ("rezero", "transformer", {}),
    "fixup": ("fixup", "mlp", {}),
    "deepnorm_vit": ("deepnorm", "vit", {}),
}  # fmt: skip


def bits(folder):
    content = checkpoint.read(folder.checkpoint)
    return [content["parameters"], *content["buffers"].values()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(bits(a), bits(b), strict=True))


def tables(folder):
    layout = folder.read()["layout"]
    return [read_table(folder, name, layout) for name in ("steps", "layers")]


@pytest.fixture
def conf_of(make_preset):
    def make(name, values=None):
        connection, family, own = TIMED[name]
        return make_preset(connection, family, SHORT | own | (values or {}))

    return make


@pytest.mark.parametrize("name", TIMED)
def test_an_interrupted_run_goes_on_to_the_same_bits_and_rows(conf_of, execute, tmp_path, name):
    conf = conf_of(name)
    _, undisturbed = execute(conf)
    stopped = Study.create(tmp_path, "stopped")
    for stop_at in (3, 2):
        outcome, folder = execute(conf, stop_at=stop_at, into=stopped)
        assert outcome.status is Status.INTERRUPTED, outcome.message
    outcome, folder = execute(conf, into=stopped)
    assert outcome.status is Status.COMPLETE
    assert same(folder, undisturbed)
    for mine, theirs in zip(tables(folder), tables(undisturbed), strict=True):
        assert mine.equals(theirs)


@pytest.mark.parametrize("name", ["stochastic_depth", "dropout_shortcut", "warm_up", "rezero_transformer", "fixup"])
def test_probes_and_evaluations_change_no_bit(conf_of, execute, tmp_path, name):
    _, watched = execute(conf_of(name))
    quiet = conf_of(name, {"probe.every": 0, "trainer.eval_every": 8, "trainer.batchstats_every": 8})
    _, alone = execute(quiet, into=Study.create(tmp_path, "quiet"))
    assert same(watched, alone)


def test_every_step_draws_other_masks(conf_of, execute):
    _, folder = execute(conf_of("stochastic_depth"))
    rows = [r for r in tables(folder)[1].to_pylist() if r["metric"] == "kept_fraction"]
    kept = {(r["step"], r["layer_index"]): r["value"] for r in rows}
    assert len(kept) == 8 * 2 and len(set(kept.values())) > 8
    assert abs(sum(v for (_, i), v in kept.items() if i == 1) / 8 - 0.5) < 0.1
    assert abs(sum(v for (_, i), v in kept.items() if i == 0) / 8 - 0.75) < 0.1


def test_the_rising_scale_of_every_step_is_written(conf_of, execute):
    _, folder = execute(conf_of("warm_up"))
    rows = [r for r in tables(folder)[1].to_pylist() if r["metric"] == "scale_value" and r["layer_index"] == 0]
    assert {r["step"]: r["value"] for r in rows} == pytest.approx({t: min(1, (t + 1) / 6) for t in range(8)})


def test_an_evaluation_uses_the_scale_of_the_step_that_comes(conf_of, execute, make_network):
    """At 0 updates α is α/6, not its final value: the weights are those of step 0's forward pass."""
    _, rising = execute(conf_of("warm_up"))
    rows = {(r["step"], r["metric"]): r["value"] for r in tables(rising)[0].to_pylist() if r["kind"] == "eval"}
    fixed = conf_of("warm_up", {"connection.alpha": 1 / 6, "connection.alpha_warmup": 0, "trainer.steps": 3})
    _, constant = execute(fixed)
    start = {(r["step"], r["metric"]): r["value"] for r in tables(constant)[0].to_pylist() if r["kind"] == "eval"}
    assert rows[0, "train_loss"] == pytest.approx(start[0, "train_loss"], rel=1e-6)


def test_both_arms_see_the_same_data_under_any_connection(make_preset, execute, monkeypatch):
    from plainres.train import Training

    seen = {}
    whole = Training._batch

    def noted(training, step, shared=None):
        x, y = whole(training, step, shared)
        seen.setdefault(training.parts.spec.conf.connection.name, []).append(y.clone())
        return x, y

    monkeypatch.setattr(Training, "_batch", noted)
    for connection in ("plain", "stochastic_depth", "highway"):
        assert execute(make_preset(connection, "mlp", SHORT))[0].status is Status.COMPLETE
    plain = seen.pop("plain")
    assert all(all(map(torch.equal, plain, other)) for other in seen.values()) and len(seen) == 2


@pytest.mark.parametrize("family", ["mlp", "cnn", "cifar_resnet", "vit", "transformer"])
def test_plain_runs_in_every_family(make_preset, execute, family):
    conf = make_preset("plain", family, {"trainer.steps": 3, "trainer.batch": 32, "model.width": 4, "probe.every": 1})
    outcome, folder = execute(conf)
    assert outcome.status is Status.COMPLETE, outcome.message
    assert folder.read()["audit"]["clean"]


def test_a_divergence_is_replayed_with_the_masks_of_its_step(make_preset, make_network, make_flat, tiny_data):
    conf = make_preset("stochastic_depth", "mlp", {"connection.drop": "constant", "connection.drop_unit": "batch"})
    network = make_network(conf)
    flat = make_flat(network, conf)
    block = network.blocks[0]
    outcomes = set()
    for step in range(12):
        network.begin_step(conf.seed, step)
        block.drop(torch.ones(2, 2))
        outcomes.add(bool(block.drop.kept_N[0]))
        first = block.drop.kept_N[0].item()
        name_first_non_finite(network, flat, [(tiny_data.train.images, tiny_data.train.y_N)], step)
        assert block.drop.kept_N[0].item() == first
    assert outcomes == {True, False}


def test_the_mask_does_not_depend_on_the_depth_or_width(make_preset, make_network):
    masks = []
    for values in ({}, {"depth": 12}, {"model.width": 9}, {"model.norm": "none"}):
        own = {"connection.drop": "constant"} | values
        network = make_network(make_preset("stochastic_depth", "mlp", own))
        network.begin_step(0, 4)
        network(torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
        masks.append(network.blocks[1].drop.kept_N.tolist())
    assert all(mask == masks[0] for mask in masks) and 0 < sum(masks[0]) < 30
    other = make_preset("stochastic_depth", "mlp", {"connection.drop": "constant"})
    network = make_network(replace(other, seed=1))
    network.begin_step(1, 4)
    network(torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert network.blocks[1].drop.kept_N.tolist() != masks[0]
