"""trainer.checkpoint_blocks: blocks computed again in the backward pass, and nothing else is another number."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.passage import Recomputed
from plainres.probes.own import OwnProbe
from plainres.probes.probe import Probe
from plainres.rows import read_table
from plainres.step import Passes
from plainres.store import Study

CELLS = [
    ("mlp", "plain"), ("mlp", "residual"), ("mlp", "stochastic_depth"), ("mlp", "dropout_shortcut"), ("mlp", "highway"),
    ("cnn", "residual"), ("cnn", "stochastic_depth"), ("cifar_resnet", "residual"),
    ("cifar_resnet", "stochastic_depth"), ("vit", "residual"), ("vit", "stochastic_depth"), ("vit", "rezero"),
]  # fmt: skip


class CallCounter(OwnProbe):
    """How often each block was called in a probed step, and how often the gradient of its output came."""

    def arm(self, num_examples):
        self.calls, self.handles = [0] * len(self.network.blocks), []
        for i, block in enumerate(self.network.blocks):
            self.handles += [
                block.register_forward_hook(self.count(i)),
                block.branch.register_forward_pre_hook(self.seen),
            ]
        self.branches = 0

    def count(self, index):
        def hook(module, args, out):
            self.calls[index] += 1

        return hook

    def seen(self, module, args):
        self.branches += 1

    def after_backward(self):
        for handle in self.handles:
            handle.remove()

    def read(self):
        return {"block": {"calls": self.calls, "branches": [self.branches] * len(self.calls)}}


@pytest.fixture
def passed(make_preset, make_network, make_flat, tiny_data):
    """passed(every, model, connection): what two updates leave behind; every=0 keeps all activations."""

    def make(every, model, connection, precision="float32", accumulate=1):
        shape = (1, 8, 8) if model == "cifar_resnet" else (1, 4, 4)
        values = {"trainer.precision": precision, "trainer.accumulate": accumulate, "seed": 2}
        conf = make_preset(connection, model, values | ({"depth": 3} if model == "vit" else {"depth": 14}))
        network = make_network(conf, shape)
        if every:
            network.passage = Recomputed(network.blocks, every)
        flat = make_flat(network, conf)
        probe = Probe(network, flat, [CallCounter(network)])
        passes, found = Passes(network, flat, conf, "cpu"), []
        x = tiny_data.train.images[:32] if shape[1] == 4 else F.interpolate(tiny_data.train.images[:32], shape[1:])
        for step in range(2):
            found.append(passes(step, x, tiny_data.train.y_N[:32], probe))
            probe.before_update()
            flat.data.sub_(flat.grad, alpha=0.1)
            probe.after_update()
        return network, flat, found, probe.collect().sent().row(1)

    return make


def assert_same(one, other):
    assert torch.equal(one[1].grad, other[1].grad) and torch.equal(one[1].data, other[1].data)
    for a, b in zip(one[2], other[2], strict=True):
        assert torch.equal(a.loss, b.loss) and torch.equal(a.wrong, b.wrong) and torch.equal(a.grad_norm, b.grad_norm)
    for (name, a), b in zip(one[0].named_buffers(), other[0].buffers(), strict=True):
        assert torch.equal(a, b), name
    assert one[3]["reasons"] == other[3]["reasons"] and one[3]["values"].keys() == other[3]["values"].keys()
    for scope, metrics in one[3]["values"].items():
        for metric, values in metrics.items():
            assert list(values) == list(other[3]["values"][scope][metric]), (scope, metric)


@pytest.mark.parametrize(("model", "connection"), CELLS)
def test_gradients_buffers_and_probe_rows_are_the_same_bits(passed, model, connection):
    whole = passed(0, model, connection)
    calls = whole[3]["values"]["block"]
    assert set(calls["calls"]) == {1.0} and set(calls["branches"]) == {float(len(whole[0].blocks))}
    for every in (1, 4):
        assert_same(passed(every, model, connection), whole)


@pytest.mark.parametrize(("precision", "accumulate"), [("bf16", 1), ("fp16", 1), ("float32", 2)])
def test_also_in_other_precisions_and_in_parts(passed, precision, accumulate):
    cells = [passed(every, "cnn", "stochastic_depth", precision, accumulate) for every in (0, 2)]
    assert_same(*cells)


def test_what_lies_between_is_not_kept_but_computed_again(passed, monkeypatch, make_conf, make_network):
    network, kept = make_network(make_conf("residual", {"depth": 14})), []
    x, y = torch.randn(16, 1, 4, 4), torch.randint(0, 3, (16,))
    calls = []
    whole = F.linear
    monkeypatch.setattr(F, "linear", lambda *args: calls.append(1) or whole(*args))

    def pack(tensor):
        kept.append(tensor)
        return tensor

    def run():
        kept.clear()
        calls.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = F.cross_entropy(network(x), y)
        saved = len(kept)
        loss.backward()
        return saved, len(calls)

    saved, products = run()
    network.passage = Recomputed(network.blocks, 3)
    saved_less, products_more = run()
    assert products == 14 and products_more == 14 + 12, "twelve layers of six blocks twice"
    assert saved_less < saved / 3


def test_evaluation_and_passes_without_gradients_go_the_ordinary_way(make_conf, make_network):
    network = make_network(make_conf("residual"))
    network.passage = lambda x: pytest.fail("taken")
    with torch.no_grad():
        network(torch.randn(4, 1, 4, 4))
    network.eval()(torch.randn(4, 1, 4, 4))


def test_hooks_are_back_after_a_pass_that_fails(make_conf, make_network):
    network, seen = make_network(make_conf("residual")), []
    network.passage = Recomputed(network.blocks, 1)
    network.blocks[0].register_forward_hook(lambda m, args, out: seen.append(1))
    loss = F.cross_entropy(network(torch.randn(8, 1, 4, 4)), torch.zeros(8, dtype=torch.int64))
    broken = network.blocks[0].branch
    network.blocks[0].branch = nn.Identity()  # the second pass saves other tensors than the first
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        loss.backward()
    network.blocks[0].branch = broken
    network(torch.randn(8, 1, 4, 4))
    assert len(seen) == 2


def test_a_run_is_the_same_bits_under_another_id(execute, make_conf, tmp_path):
    values = {"trainer.steps": 5, "probe.every": 2, "depth": 10}
    _, whole = execute(make_conf("stochastic_depth", values))
    conf = make_conf("stochastic_depth", values | {"trainer.checkpoint_blocks": 2})
    outcome, folder = execute(conf, into=Study.create(tmp_path, "less"))
    assert outcome.status == "complete", outcome.message
    mine, theirs = folder.read(), whole.read()
    assert mine["run_id"] != theirs["run_id"] and mine["final"] == theirs["final"]
    for name in ("steps", "layers"):
        assert read_table(folder, name, mine["layout"]).equals(read_table(whole, name, theirs["layout"]))
