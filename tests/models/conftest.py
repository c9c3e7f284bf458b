"""The example of docs/own.md as a module, and presets with its branches."""

from pathlib import Path

import pytest

from plainres.errors import UserError
from plainres.validation import validate

EXAMPLE = (Path(__file__).parents[2] / "experiments" / "own-branch-glu" / "my_branches.py").read_text()


@pytest.fixture
def own_example(own_module):
    own_module("my_branches", EXAMPLE)


@pytest.fixture
def make_own(own_example, make_preset):
    """make_own("residual", "cnn"): a preset with the example's branch of that family; None where validation refuses."""

    def make(connection, family="mlp", values=None):
        kind = "DepthwiseConv" if family == "cnn" else "GatedLinear"
        conf = make_preset(connection, family, {"model.branch": f"my_branches:{kind}"} | (values or {}))
        try:
            validate(conf)
        except UserError:
            return None
        return conf

    return make
