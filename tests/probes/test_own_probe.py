"""Users' probes: their numbers stand beside ours, change nothing, and mistakes are one line."""

import re
from pathlib import Path

import orjson
import pandas as pd
import pytest
import torch

from plainres.errors import UserError
from plainres.launch.prepare import prepare
from plainres.models.own import with_code
from plainres.probes.own import OwnProbe, add_own, read_own
from plainres.probes.probe import Probe
from plainres.probes.readings import Readings
from plainres.store import Status, Study

DOCS = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
LINES = [re.escape(x).replace("…", ".*") for x in re.findall(r"\| `(probe[^`]+)` \|$", DOCS, re.M)]
EXAMPLE = (Path(__file__).parents[2] / "experiments" / "own-branch-glu" / "my_branches.py").read_text()
LAYOUT = {"block": ["blocks.0", "blocks.1"], "layer": ["stem.op.weight"]}
STAGES = """
import torch
from plainres.probes.own import OwnProbe

class Order(OwnProbe):
    '''What is there at each call: numbers that another computation can repeat.'''
    def arm(self, num_examples): self.seen = [num_examples]
    def after_backward(self): self.gradient = self.network.head.weight.grad.norm().item()
    def before_update(self): self.before = self.network.head.weight.detach().clone()
    def after_update(self): self.moved = (self.network.head.weight.detach() - self.before).norm().item()
    def read(self):
        blocks = len(self.network.blocks)
        of_layers = {"mine": [float("nan")] * (2 * blocks + 1) + [self.gradient]}
        return {"block": {"num_examples": self.seen * blocks, "moved": [self.moved] * blocks}, "layer": of_layers}
"""


def by_metric(folder):
    table = pd.read_parquet(folder.path / "layers.parquet")
    return lambda metric: table[table.metric == metric].sort_values(["step", "layer_index"])


def test_values_stand_in_the_table(own_module, make_conf, execute):
    own_module("my_branches", EXAMPLE)
    own_module("stages", STAGES)
    probes = ["my_branches:TrunkMean", "stages:Order"]
    outcome, folder = execute(make_conf("residual", {"probe.own": probes, "optimizer.clip_norm": 0.5}))
    assert outcome.status is Status.COMPLETE, outcome.message
    of = by_metric(folder)
    assert set(of("trunk_mean").layer_name) == {"blocks.0", "blocks.1"}
    assert (of("num_examples").value == 128).all() and (of("trunk_mean").value > 0).all()
    mine, ours = of("mine"), of("grad_norm")
    head = mine.layer_name == "head.weight"
    theirs = ours[(ours.scope == "layer") & (ours.layer_name == "head.weight")]
    assert mine[head].value.to_numpy() == pytest.approx(theirs.value.to_numpy(), rel=1e-5)
    assert mine[~head].value.isna().all() and (mine[~head].reason == "Order gave no number").all()
    ratio, weight = (of(m)[of(m).layer_name == "head.weight"].value.to_numpy() for m in ("update_ratio", "weight_norm"))
    moved = of("moved")[of("moved").layer_name == "blocks.0"].value.to_numpy()
    assert moved == pytest.approx(ratio * weight, rel=1e-3)


def test_training_is_the_same_bits_with_and_without(own_module, make_conf, execute, tmp_path):
    own_module("my_branches", EXAMPLE)
    weights, rows = [], []
    for i, own in enumerate(([], ["my_branches:TrunkMean"])):
        conf = make_conf("residual", {"probe.own": own, "probe.every": 1, "model.branch": "my_branches:GatedLinear"})
        _, folder = execute(with_code(conf), into=Study.create(tmp_path, f"study{i}"))
        weights.append(torch.load(folder.checkpoint, weights_only=True)["parameters"])
        rows.append(pd.read_parquet(folder.path / "steps.parquet"))
    assert torch.equal(*weights)
    pd.testing.assert_frame_equal(*rows)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"blocks": {"a": [1, 2]}}, "there is no scope blocks; use one of block, layer"),
        ({"block": {"a": [1, 2, 3]}}, "a has shape (3,); scope block has 2 members"),
        ({"block": {"a": 1.0}}, "a has shape (); scope block has 2 members"),
        (None, "read gave no scope -> metric -> numbers"),
        ({"block": None}, "read gave no scope -> metric -> numbers"),
        ({"block": {"branch_norm": [1, 2]}}, "branch_norm of scope block is measured already; use another name"),
        ({"block": {"a": ["x", "y"]}}, "a is no list of numbers"),
        ({"block": {"a": [[1], [1, 2]]}}, "a is no list of numbers"),
        ({"block": {"a": torch.ones(2, requires_grad=True)}}, "a is no list of numbers"),
    ],
)
def test_what_cannot_be_kept_is_one_line(given, words):
    class Mine(OwnProbe):
        def read(self):
            return given

    readings = Readings()
    readings.put("block", "branch_norm", [1.0, 2.0])
    with pytest.raises(UserError) as error:
        add_own(readings, "Mine", read_own(Mine(torch.nn.Identity()), LAYOUT))
    line = str(error.value)
    assert line.startswith("probe.own: Mine: ") and words in line and "\n" not in line


PROBE = """
from plainres.probes.own import OwnProbe

class Mine(OwnProbe):
    {}

    def read(self): return {}
"""
TRIED = {
    "constructor": ("def __init__(self): pass", "{}", "fails in a probed step (TypeError"),
    "method": ("def after_update(self): self.network.blocks[7]", "{}", "fails in a probed step (IndexError"),
    "no read": ("", "OwnProbe.read(self)", "fails in a probed step (NotImplementedError)"),
    "nothing read": ("", "None", "read gave no scope -> metric -> numbers"),
    "hooks": (
        "def arm(self, n): self.network.blocks[1].register_forward_hook(lambda *args: None)",
        "{}",
        "leaves hooks on blocks.1; remove them in after_backward",
    ),
    "scope": ("", "{'blocks': {}}", "there is no scope blocks; use one of layer, "),
    "length": ("", "{'block': {'a': [1.0]}}", "a has shape (1,); scope block has 2 members"),
    "name": ("", "{'block': {'branch_norm': [1.0, 2.0]}}", "branch_norm of scope block is measured already"),
    "writes": (
        "def after_update(self): self.network.head.weight.data.mul_(2)",
        "{}",
        "changes parameters or gradients",
    ),
    "hook that changes": (
        "def arm(self, n): self.h = self.network.stem.register_forward_hook(lambda m, x, y: 2 * y)\n"
        "    def after_backward(self): self.h.remove()",
        "{}",
        "changes parameters or gradients, so training would be another; read only, and return nothing from a hook",
    ),
}


@pytest.mark.parametrize(("body", "read", "words"), TRIED.values(), ids=TRIED)
def test_a_wrong_probe_is_refused_before_training(own_module, make_conf, tmp_path, body, read, words):
    own_module("mine", PROBE.format(body, read))
    conf = make_conf("residual", {"probe.own": ["mine:Mine"], "results_dir": str(tmp_path / "results")})
    with pytest.raises(UserError) as error:
        prepare([conf])
    line = str(error.value)
    assert line.startswith("probe.own: Mine: ") and words in line and "\n" not in line
    assert not (tmp_path / "results").exists()
    assert any(re.fullmatch(pattern, line) for pattern in LINES), line


def test_a_good_probe_is_planned(own_module, make_conf, tmp_path):
    own_module("my_branches", EXAMPLE)
    given = {"probe.own": ["my_branches:TrunkMean"], "results_dir": str(tmp_path)}
    _, specs = prepare([make_conf(c, given) for c in ("plain", "residual", "stochastic_depth")])
    assert len(specs) == 3


def test_a_wrong_probe_fails_its_run_in_one_line(own_module, make_conf, execute):
    own_module("wrong", STAGES.replace('"block": {', '"blocks": {'))
    outcome, _ = execute(make_conf("residual", {"probe.own": ["wrong:Order"]}))
    assert outcome.status is Status.FAILED
    assert outcome.message.startswith("probe.own: Order: there is no scope blocks; use one of layer, ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "probe.own=mine:Mine: mine has no Mine; it has no class"),
        ("class Mine: pass", "probe.own=mine:Mine: must be a class derived from plainres.probes.own.OwnProbe"),
        ("import nothing_here", "probe.own=mine:Mine: cannot import mine (ModuleNotFoundError: No module named"),
    ],
)
def test_what_cannot_be_imported_is_refused_before_training(own_module, make_conf, tmp_path, text, words):
    own_module("mine", text)
    conf = make_conf("residual", {"probe.own": ["mine:Mine"], "results_dir": str(tmp_path / "results")})
    with pytest.raises(UserError) as error:
        prepare([conf])
    assert words in str(error.value) and not (tmp_path / "results").exists()


def test_it_is_read_after_ours(own_module, make_network, make_flat, make_conf, tiny_data):
    conf = make_conf("residual")
    network = make_network(conf)
    seen = []

    class Last(OwnProbe):
        def after_backward(self):
            seen.append(len(network.blocks[0]._forward_hooks) + (network.blocks[0].tap is not None))

        def read(self):
            return {"block": {"mine": [1.0, 2.0]}}

    flat = make_flat(network, conf)
    probe = Probe(network, flat, [Last(network)])
    probe.arm(4)
    network(tiny_data.train.images[:4]).sum().backward()
    probe.after_backward()
    probe.before_update()
    probe.after_update()
    row = probe.collect().sent().row(3)
    block = row["values"]["block"]
    assert list(block)[-1] == "mine" and len(block) > 3 and seen == [0]
    assert orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
