"""Every mistake in a user's branch or shortcut is one line with field, block, class and remedy, before any training."""

import re
from pathlib import Path

import pytest

from plainres.config import compose
from plainres.errors import UserError
from plainres.launch.prepare import prepare

DOCS = (Path(__file__).parents[2] / "docs" / "own.md").read_text()
LINES = [re.escape(line).replace("…", ".*") for line in re.findall(r"\| `([^`]+: [^`]+)` \|$", DOCS, re.M)]

HEAD = """
import itertools
import numpy
import torch
import torch.nn.functional as F
from torch import nn

SHARED = nn.Parameter(torch.ones(6))
COUNT = itertools.count()

class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
"""
# Class body, then what its line says beside "model.branch: block 0: Mine".
BODIES = {
    "shape": ("def forward(self, x): return self.fc(x)[:, :3]", ["shape (4, 3) for shape (4, 6)", "keep the shape"]),
    "dtype": ("def forward(self, x): return self.fc(x).double()", ["gives float64", "keep float32"]),
    "tuple": ("def forward(self, x): return self.fc(x), x", ["gives a tuple", "one tensor"]),
    "nothing": ("def forward(self, x): self.fc(x)", ["gives nothing", "one tensor"]),
    "in place": ("def forward(self, x): return self.fc(x.mul_(2))", ["writes to its input", "not in place"]),
    "in-place relu": ("def forward(self, x): return self.fc(F.relu_(x))", ["writes to its input", "not in place"]),
    "dropout": (
        "def forward(self, x): return F.dropout(self.fc(x), 0.5, self.training)",
        ["random numbers", "connection.drop"],
    ),
    "numpy noise": ("def forward(self, x): return self.fc(x) * numpy.random.rand()", ["random numbers"]),
    "own generator": (
        "def forward(self, x): return self.fc(x) * numpy.random.default_rng().random()",
        ["other numbers for the same input", "leave out what is random"],
    ),
    "state": ("def forward(self, x): return self.fc(x) * next(COUNT)", ["other numbers", "kept from call to call"]),
    "functional": (
        "def forward(self, x): return F.linear(x, self.fc.weight, self.fc.bias)",
        ["layer fc is never called", "call it as a module, or leave it out"],
    ),
    "item": ("def forward(self, x): return self.fc(x) * x.sum().item()", ["shapes alone", "leave out .item()"]),
    "branching": (
        "def forward(self, x): return self.fc(x if x.sum() > 0 else -x)",
        ["shapes alone", "of values"],
    ),
    "raising": ("def forward(self, x): return self.fc(x.view(3, -1, 7))", ["fails on", "(4, 6)", "(examples, width)"]),
    "no forward": ("pass", ["fails on", "NotImplementedError"]),
    "detached": ("def forward(self, x): return self.fc(x).detach()", ["no backward pass", "detach"]),
    "input detached": ("def forward(self, x): return self.fc(x.detach())", ["no gradient to its input", "detach"]),
    "only evaluated": (
        "def forward(self, x): return self.fc(x) if self.training else self.fc(x)[:2]",
        ["shape (2, 6) for shape (4, 6)"],
    ),
}
BUILT = {
    "frozen": (
        "self.fc.weight.requires_grad_(False)",
        "self.fc(x)",
        ["parameter fc.weight is not trained", "make it a buffer"],
    ),
    "double": (
        "self.fc.double()",
        "self.fc(x.double()).float()",
        ["parameter fc.weight is float64", "must be float32"],
    ),
    "unused": (
        "self.more = nn.Parameter(torch.ones(2))",
        "self.fc(x)",
        ["more gets no gradient", "leave it"],
    ),
    "tied": (
        "self.two = nn.Linear(width, width); self.two.weight = self.fc.weight",
        "self.two(self.fc(x))",
        ["fc.weight and two.weight are one parameter", "one name"],
    ),
    "drawn apart": (
        "self.fc.bias.data += float(numpy.random.default_rng().random())",
        "self.fc(x)",
        ["fc.bias begins with other numbers each time", "global generators"],
    ),
    "kept tensor": (
        "self.mask = torch.ones(width)",
        "self.fc(x) * self.mask",
        ["shapes alone", "tensors buffers"],
    ),
    "lazy": ("self.fc = nn.LazyLinear(width)", "self.fc(x)", ["lazy layers", "give them their sizes"]),
    "raising": ("raise RuntimeError('not today')", "x", ["Mine(6) failed", "not today", "takes the width"]),
}


@pytest.fixture
def refused(own_module, make_preset, tmp_path):
    """The line that a sweep with this module is refused with; nothing is written."""

    def refuse(text, values=None, family="mlp", documented=True):
        own_module("mine", text)
        results = tmp_path / "results"
        given = {"model.branch": "mine:Mine", "results_dir": str(results)} | (values or {})
        with pytest.raises(UserError) as error:
            prepare([make_preset("residual", family, given)])
        line = str(error.value)
        assert "\n" not in line and not results.exists()
        if documented:
            assert any(re.fullmatch(pattern, line) for pattern in LINES), line
        return line

    return refuse


@pytest.mark.parametrize(("body", "words"), BODIES.values(), ids=BODIES)
def test_a_forward_pass_is_refused(refused, body, words):
    line = refused(f"{HEAD}\nclass Mine(Base):\n    {body}\n")
    assert line.startswith("model.branch: block 0: Mine: ") and all(word in line for word in words), line


@pytest.mark.parametrize(("built", "given", "words"), BUILT.values(), ids=BUILT)
def test_a_constructor_is_refused(refused, built, given, words):
    body = f"def __init__(self, width):\n        super().__init__(width)\n        {built}\n"
    line = refused(f"{HEAD}\nclass Mine(Base):\n    {body}\n    def forward(self, x): return {given}\n")
    assert line.startswith("model.branch: block 0: ") and all(word in line for word in ["Mine", *words]), line


def test_a_parameter_shared_by_two_blocks_is_refused(refused):
    body = "def __init__(self, width):\n        super().__init__(width)\n        self.scale = SHARED\n"
    line = refused(f"{HEAD}\nclass Mine(Base):\n    {body}\n    def forward(self, x): return self.fc(x) * self.scale\n")
    assert line.startswith("model.branch: block 1: Mine: shares the parameter scale with block 0; make parameters in")


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("", {"model.branch": "nowhere_at_all:Mine"}, ["nowhere_at_all:Mine", "cannot import", "stand in the folder"]),
        ("1 / 0", {}, ["cannot import mine", "ZeroDivisionError", "stand in the folder"]),
        ("raise SystemExit(2)", {}, ["cannot import mine", "SystemExit"]),
        ("class Other: pass", {}, ["mine has no Mine", "it has Other"]),
        ("class Mine: pass", {}, ["mine:Mine", "derived from torch.nn.Module"]),
        ("def Mine(width): pass", {}, ["mine:Mine", "derived from torch.nn.Module"]),
        ("", {"model.branch": "mine:"}, ["mine:", "of the form package.module:Class"]),
        (
            f"{HEAD}\nclass Mine(Base):\n    def forward(self, x): return self.fc(x)",
            {"model.branch_settings": {"hiden": 3}},
            ["model.branch: block 0: Mine(6, hiden=3) failed", "hiden", "settings by name"],
        ),
        (
            f"{HEAD}\nclass Mine(Base):\n    def __init__(self, width, hidden): super().__init__(width)",
            {},
            ["model.branch: block 0: Mine(6) failed", "hidden", "settings by name"],
        ),
        (
            "import torch\nexec('class Mine(torch.nn.Module): pass', globals())\nMine.__module__ = 'builtins'",
            {},
            ["mine:Mine", "is in no Python file"],
        ),
    ],
)
def test_what_cannot_be_imported_or_built_is_refused(refused, text, values, words):
    line = refused(text, values, documented=bool(text))
    assert line.startswith("model.branch") and all(word in line for word in words), line


@pytest.mark.parametrize(
    ("last", "bias", "words"),
    [
        ("pass", "False", ["Mine must name its last weight", "last_weight = 'NAME'", "out.weight"]),
        ("last_weight = 'oot.weight'", "False", ["Mine.last_weight = 'oot.weight' is no parameter", "out.weight"]),
        ("last_weight = 'out.weight'", "True", ["Mine is not 0 when its out.weight is", "its bias"]),
        ("last_weight = 'fc.bias'", "False", ["Mine is not 0 when its fc.bias is"]),
    ],
)
def test_zero_init_needs_the_name_of_the_last_weight(refused, last, bias, words):
    build = f"super().__init__(width); self.out = nn.Linear(width, width, bias={bias})"
    text = f"{HEAD}\nclass Mine(Base):\n    {last}\n    def __init__(self, width):\n        {build}\n"
    text += "    def forward(self, x): return self.out(self.fc(x))\n"
    line = refused(text, {"connection.zero_init": "last_weight"})
    assert line.startswith("connection.zero_init=last_weight: ") and all(word in line for word in words), line


def test_zero_init_of_the_last_norm_is_refused(refused):
    line = refused_by_validation("zero_init", {})
    assert "connection.zero_init=norm_scale: must be last_weight or none with model.branch" in line


def refused_by_validation(connection, values):
    given = [f"{k}={v}" for k, v in ({"model.branch": "mine:Mine"} | values).items()]
    with pytest.raises(UserError) as error:
        compose([f"connection={connection}", *given])
    return str(error.value)


@pytest.mark.parametrize(
    ("connection", "values", "words"),
    [
        ("residual", {"model": "cifar_resnet", "depth": "8"}, "model.branch=mine:Mine: must be null for cifar_resnet"),
        ("fixup", {"model.norm": "none"}, "model.branch=mine:Mine: must be null with connection.recipe=fixup"),
        ("residual", {"model.branch": "null", "model.branch_settings.a": "1"}, "model.branch_settings"),
        ("residual", {"model.branch": "Mine"}, "model.branch=Mine: must be null or package.module:Class"),
        ("residual", {"model.branch_code": "abc"}, "model.branch_code=abc: must be null; it is measured from the file"),
        ("residual", {"connection.shortcut": "Mine"}, "connection.shortcut=Mine: must be one of none, identity"),
        ("residual", {"connection.shortcut_settings.a": "1"}, "connection.shortcut_settings"),
        ("residual", {"connection.shortcut_code": "abc"}, "connection.shortcut_code=abc: must be null"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(connection, values, words):
    line = refused_by_validation(connection, values)
    assert words in line and "\n" not in line


def test_a_shortcut_is_tried_too(refused):
    text = f"{HEAD}\nclass Mine(Base):\n    def forward(self, x): return self.fc(x.mul_(2))\n"
    own = {"model.branch": None, "connection.shortcut": "mine:Mine", "connection.name": "mine"}
    line = refused(text, own, documented=False)
    assert line.startswith("connection.shortcut: block 0: Mine: writes to its input")


def test_a_shortcut_is_tried_at_every_width(refused):
    body = "def forward(self, x): return x if self.width < 24 else x[:, :5]"
    build = "def __init__(self, width):\n        super().__init__()\n        self.width = width\n"
    own = {"model.branch": None, "connection.shortcut": "mine:Mine", "connection.name": "mine"}
    line = refused(f"{HEAD}\nclass Mine(nn.Module):\n    {build}\n    {body}\n", own, "cifar_resnet", documented=False)
    assert line.startswith("connection.shortcut: block 2: Mine: gives shape (4, 5, 2, 2) for shape (4, 24, 2, 2); ")


@pytest.mark.parametrize("family", ["cnn", "transformer"])
def test_the_line_says_what_the_axes_are(refused, family):
    line = refused(
        f"{HEAD}\nclass Mine(Base):\n    def forward(self, x): return self.fc(x).sum(1)\n",
        {},
        family=family,
        documented=False,
    )
    assert ("(examples, width, rows, columns)" if family == "cnn" else "(examples, tokens, width)") in line
    assert f"block {0 if family == 'cnn' else 1}: Mine" in line


def test_what_is_not_finite_on_the_trial_is_no_mistake(own_module, make_preset, tmp_path):
    """The trial's numbers are negative, too; those after a ReLU are not."""
    own_module("mine", f"{HEAD}\nclass Mine(Base):\n    def forward(self, x): return self.fc(x.sqrt())\n")
    given = {"model.branch": "mine:Mine", "results_dir": str(tmp_path)}
    assert len(prepare([make_preset("residual", "mlp", given)])[1]) == 1
