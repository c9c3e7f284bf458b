"""The probe as a whole: hooks, layers never seen, and that looking changes nothing."""

import pytest
import torch
import torch.nn.functional as F

from plainres.models.block import Block, Connection, Frame
from plainres.probes.branch import BranchNorms
from plainres.probes.probe import Probe
from plainres.probes.readings import Readings


def num_hooks(network):
    modules = list(network.modules())
    hooks = [h for m in modules for h in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks)]
    return sum(map(len, hooks)) + sum(m.tap is not None for m in modules if isinstance(m, Block))


@pytest.fixture(params=["plain", "residual"])
def network(request, make_conf, make_network):
    return make_network(make_conf(request.param))


@pytest.fixture
def probe(network, make_conf, make_flat):
    return Probe(network, make_flat(network, make_conf()))


def backward(network, data, examples=16):
    loss = F.cross_entropy(network(data.train.images[:examples]), data.train.y_N[:examples])
    loss.backward()
    return loss


def test_hooks_exist_only_inside_a_probed_step(network, probe, tiny_data):
    assert num_hooks(network) == 0
    for _ in range(2):
        probe.arm(16)
        assert num_hooks(network) > 0
        backward(network, tiny_data)
        probe.after_backward()
        assert num_hooks(network) == 0
    probe.before_update()
    probe.after_update()
    probe.collect().sent().row(0)


def test_looking_changes_no_bit_of_loss_gradient_or_statistics(network, probe, make_conf, make_network, tiny_data):
    connection = "residual" if network.blocks[0].shortcut else "plain"
    alone = make_network(make_conf(connection))
    probe.arm(16)
    seen = backward(network, tiny_data)
    probe.after_backward()
    probe.before_update()
    probe.after_update()
    probe.collect().sent().row(0)
    assert torch.equal(seen, backward(alone, tiny_data))
    for a, b in zip(network.parameters(), alone.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(a.grad, b.grad)
    for a, b in zip(network.buffers(), alone.buffers(), strict=True):
        assert torch.equal(a, b)


class Bypass(torch.nn.Module):
    """Computes as the module it holds does, without calling it: as a compiler or a fused kernel would."""

    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, *args):
        return self.held.forward(*args)


def probed_row(network, probe, data):
    probe.arm(16)
    backward(network, data)
    probe.after_backward()
    probe.before_update()
    probe.after_update()
    return probe.collect().sent().row(0)


def test_a_layer_never_seen_raises(network, probe, tiny_data):
    branch = network.blocks[1].branch
    branch[0].norm = Bypass(branch[0].norm)
    with pytest.raises(RuntimeError, match=r"response_std.*blocks\.1\.branch\.0\.op\.weight"):
        probed_row(network, probe, tiny_data)


def test_an_activation_never_seen_raises(network, probe, tiny_data):
    network.blocks[0].post = Bypass(network.blocks[0].post)
    with pytest.raises(RuntimeError, match=r"dead_fraction.*blocks\.0\.branch\.1\.op\.weight"):
        probed_row(network, probe, tiny_data)


def test_a_block_never_seen_raises(network, probe, tiny_data):
    network.blocks[1] = torch.nn.Identity()
    with pytest.raises(RuntimeError, match="never saw"):
        probed_row(network, probe, tiny_data)


def test_a_step_without_backward_raises(network, probe, tiny_data):
    probe.arm(16)
    network(tiny_data.train.images)
    probe.after_backward()
    probe.before_update()
    probe.after_update()
    with pytest.raises(RuntimeError, match="no gradient at trunk position 0"):
        probe.collect().sent().row(0)


def test_nothing_seen_in_one_step_is_carried_into_the_next(network, probe, tiny_data):
    probed_row(network, probe, tiny_data)
    probe.arm(16)
    probe.after_backward()
    with pytest.raises(RuntimeError, match="never saw"):
        probe.collect().sent().row(1)


def test_the_branch_probe_forgets_what_it_has_read():
    listener, x = BranchNorms([Block(0, torch.nn.Identity(), Frame(), Connection())]), torch.ones(2, 3)
    listener.on_block(0, x, x, x, x)
    listener.collect()
    with pytest.raises(RuntimeError, match="never saw block 0"):
        listener.collect()


def test_readings_make_nulls_with_reasons():
    readings = Readings()
    readings.put("layer", "a", [1.0, float("nan"), 3.0], "because")
    readings.put("layer", "b", [float("inf"), -float("inf"), 2.0])
    readings.put("layer", "c", [1.0, 2.0, 3.0])
    readings.put_null("block", "d", 2, "never there")
    row = readings.row(4)
    assert row["step"] == 4
    assert row["values"]["layer"]["a"] == [1.0, None, 3.0] and row["values"]["layer"]["b"] == [None, None, 2.0]
    assert row["values"]["layer"]["c"].tolist() == [1.0, 2.0, 3.0] and row["values"]["block"]["d"] == [None, None]
    assert row["reasons"] == {
        "layer": {"a": {"1": "because"}, "b": {"0": "overflowed float32", "1": "overflowed float32"}},
        "block": {"d": {"0": "never there", "1": "never there"}},
    }
