"""trainer.accumulate: a batch in parts is the whole batch, but for what batch norm sees."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plainres.errors import UserError
from plainres.launch.together import check_shared
from plainres.models.layer import BatchNorm
from plainres.probes.probe import Probe
from plainres.signature import forward_flops
from plainres.step import Passes

CELLS = [
    ("residual", {}), ("stochastic_depth", {"connection.drop_unit": "sample"}),
    ("stochastic_depth", {"connection.drop_unit": "batch"}), ("dropout_shortcut", {}), ("highway", {}),
]  # fmt: skip


@pytest.fixture
def passed(make_preset, make_network, make_flat, tiny_data):
    """passed(accumulate, connection, values): network, flat, what a pass over 48 examples gave, and the probes' row."""

    def make(accumulate, connection="residual", values=None):
        small = {"trainer.batch": 48, "trainer.accumulate": accumulate, "seed": 5}
        conf = make_preset(connection, "mlp", small | {"model.norm": "layer"} | (values or {}))
        network = make_network(conf)
        flat = make_flat(network, conf)
        probe = Probe(network, flat)
        found = Passes(network, flat, conf, "cpu")(7, tiny_data.train.images[:48], tiny_data.train.y_N[:48], probe)
        probe.before_update()
        probe.after_update()
        return network, flat, found, probe.collect().sent().row(7)["values"]

    return make


@pytest.mark.parametrize(("connection", "values"), CELLS, ids=str)
@pytest.mark.parametrize("accumulate", [2, 3, 24])
def test_gradients_loss_and_errors_are_those_of_the_whole_batch(passed, accumulate, connection, values):
    _, flat, found, row = passed(accumulate, connection, values)
    _, whole, expected, whole_row = passed(1, connection, values)
    torch.testing.assert_close(flat.grad, whole.grad, rtol=1e-4, atol=1e-6)
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
    assert found.wrong.item() == expected.wrong.item()
    np.testing.assert_allclose(row["layer"]["grad_norm"], whole_row["layer"]["grad_norm"], rtol=1e-4)


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_activation_probes_read_the_last_part_alone(passed, tiny_data, accumulate):
    network, _, _, row = passed(accumulate)
    size = 48 // accumulate
    x, y = tiny_data.train.images[48 - size : 48], tiny_data.train.y_N[48 - size : 48]
    kept = []
    handle = network.blocks[0].register_forward_hook(lambda m, args, out: kept.append(out))
    losses_N = F.cross_entropy(network(x), y, reduction="none")
    handle.remove()
    (grad,) = torch.autograd.grad(losses_N.sum(), kept[0])
    expected = torch.linalg.vector_norm(grad.flatten(1).double(), dim=1).mean().item()
    assert row["block"]["activation_grad_norm_output"][0] == pytest.approx(expected, rel=1e-4)
    norms = torch.linalg.vector_norm(kept[0].detach().flatten(1).double(), dim=1).mean().item()
    assert row["block"]["output_norm"][0] == pytest.approx(norms, rel=1e-5)


def test_batch_norm_takes_the_statistics_of_a_part_and_moves_once_for_each(passed, tiny_data):
    network, *_ = passed(2, values={"model.norm": "batch"})
    stem = network.stem
    expected = torch.zeros(6, dtype=torch.float64)
    for first in (0, 24):
        values = F.linear(tiny_data.train.images[first : first + 24].flatten(1), stem.op.weight).double()
        expected = 0.9 * expected + 0.1 * values.mean(0)
    assert isinstance(stem.norm, BatchNorm)
    torch.testing.assert_close(stem.norm.running_mean.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_run_in_parts_is_the_run_to_rounding(execute, make_conf):
    values = {"model.norm": "layer", "trainer.steps": 6, "probe.every": 1}
    _, whole = execute(make_conf("residual", values))
    outcome, parts = execute(make_conf("residual", values | {"trainer.accumulate": 4}))
    assert outcome.status == "complete", outcome.message
    mine, theirs = parts.read(), whole.read()
    assert mine["run_id"] != theirs["run_id"] and mine["config"]["trainer"]["accumulate"] == 4
    for name, value in theirs["final"].items():
        assert mine["final"][name] == pytest.approx(value, rel=1e-3, abs=1e-3), name
    assert mine["forward_flops"] == theirs["forward_flops"]


def test_divergence_in_a_part_is_found_and_named(execute, make_conf):
    values = {"optimizer.lr": 1e30, "schedule.warmup_steps": 0, "trainer.accumulate": 2}
    outcome, folder = execute(make_conf("plain", values))
    assert outcome.status == "diverged" and folder.read()["diverged"]["where"] == "forward"
    assert math.isfinite(folder.read()["last_finite"]["train_loss"])


def test_flops_are_of_one_example_whatever_the_parts(make_conf, tiny_data):
    confs = [make_conf("residual", {"trainer.accumulate": k, "trainer.batch": 32}) for k in (1, 2, 16)]
    assert len({forward_flops(conf, tiny_data) for conf in confs}) == 1


def test_several_devices_share_whole_batches(make_conf):
    with pytest.raises(UserError, match=r"^trainer.accumulate=2: must be 1 on several devices"):
        check_shared(make_conf("plain", {"trainer.accumulate": 2, "trainer.devices": 2}))
