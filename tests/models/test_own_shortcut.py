"""A user's path around the branch: its numbers, its place at a stage boundary, what the audit says of it."""

import pytest
import torch

from plainres.errors import UserError
from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.store import Status
from plainres.validation import validate

LEAKY = {"connection.shortcut": "my_branches:Leaky", "connection.name": "leaky"}


def test_an_own_shortcut_is_added_to_the_branch(own_example, make_conf, make_network):
    network = make_network(make_conf("residual", LEAKY | {"connection.shortcut_settings": {"start": -0.5}}))
    block = network.blocks[1]
    block.branch = torch.nn.Linear(1, 1)
    with torch.no_grad():
        block.branch.weight.fill_(2.0)
        block.branch.bias.fill_(-3.0)
    # −x/2 + 2x − 3 for x = 4, 1, −2: 3, −1.5, −6; and ReLU
    assert block(torch.tensor([[4.0], [1.0], [-2.0]])).flatten().tolist() == [3.0, 0.0, 0.0]


@pytest.mark.parametrize("boundary", ["zero_pad", "pool"])
def test_an_own_shortcut_at_a_boundary_comes_after_the_padding(own_example, make_preset, make_network, boundary):
    conf = make_preset("residual", "cifar_resnet", LEAKY | {"model.boundary": boundary})
    network = make_network(conf)
    assert [type(b.shortcut).__name__ for b in network.blocks] == ["OwnShortcut", "Resized", "Resized"]
    x = torch.arange(6 * 16.0).view(1, 6, 4, 4)
    h = network.blocks[1].shortcut(x)
    small = x[:, :, ::2, ::2] if boundary == "zero_pad" else x.view(1, 6, 2, 2, 2, 2).mean((3, 5))
    assert torch.allclose(h[:, :6], 0.9 * small) and not h[:, 6:].any() and h.shape == (1, 12, 2, 2)


def test_the_audit_declares_an_own_shortcuts_parameters(own_example, make_conf, tmp_path):
    study, (spec,) = prepare([make_conf("residual", LEAKY | {"results_dir": str(tmp_path)})])
    found = execute(spec, study, lambda: False)
    assert found.status is Status.COMPLETE
    audit = study.run_folder(spec.name).read()["audit"]
    assert audit["clean"] and "connection_parameters: 2 here, none in the partner" in audit["declared"]


def test_an_own_shortcut_is_not_plain(own_example, make_conf):
    with pytest.raises(UserError, match=r"connection\.name=plain: must be plain exactly when"):
        validate(make_conf("plain", {"connection.shortcut": "my_branches:Leaky"}))
