import pytest
import torch
from torch import nn

from plainres.models.block import Block, Connection, Frame
from plainres.models.connect import Place, connect
from plainres.models.families import build
from plainres.models.layer import linear_kit
from plainres.models.parts import Add
from plainres.models.shortcuts import Identity
from plainres.options import Activation, Boundary, Norm, Shortcut
from plainres.schema import ConnectionConf


def branch_by_hand():
    """F(x) = 2x − 3, in two layers."""
    first, second = nn.Linear(1, 1), nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        first.weight.fill_(-1.0)
        first.bias.fill_(1.5)
        second.weight.fill_(-2.0)
    return nn.Sequential(first, second)


X = torch.tensor([[-1.0], [0.5], [1.25], [4.0]])


def test_plain_block_is_post_of_the_branch():
    block = Block(0, branch_by_hand(), Frame(post=nn.ReLU()), Connection())
    assert block(X).flatten().tolist() == [0.0, 0.0, 0.0, 5.0]


def test_residual_block_adds_before_post():
    block = Block(0, branch_by_hand(), Frame(post=nn.ReLU()), Connection(Identity(), Add()))
    # x + 2x − 3 = −6, −1.5, 0.75, 9: the activation stands after the addition, so 0.75 survives and −6 does not.
    assert block(X).flatten().tolist() == [0.0, 0.0, 0.75, 9.0]


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_built_block_on_numbers_set_by_hand(make_conf, make_network, connection):
    network = make_network(make_conf(connection, {"depth": 4, "model.width": 2})).eval()
    block = network.blocks[0]
    first, second = block.branch
    with torch.no_grad():
        first.op.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
        second.op.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        for layer, mean, var, scale, shift in ((first, 1.0, 4.0, 2.0, 0.5), (second, -1.0, 0.25, 1.0, -3.0)):
            layer.norm.running_mean.fill_(mean)
            layer.norm.running_var.fill_(var - layer.norm.eps)
            layer.norm.weight.fill_(scale)
            layer.norm.bias.fill_(shift)
    x = torch.tensor([[1.0, 3.0]])
    # op: (7, −3); norm: ((7−1)/2·2+0.5, (−3−1)/2·2+0.5) = (6.5, −3.5); ReLU: (6.5, 0)
    # op: (6.5, 6.5); norm: (6.5+1)/0.5·1 − 3 = 12 for both; addition: (13, 15)
    expected = [[12.0, 12.0]] if connection == "plain" else [[13.0, 15.0]]
    assert torch.allclose(block(x), torch.tensor(expected), rtol=1e-5)
    with torch.no_grad():
        second.norm.bias.fill_(-17.0)  # F = −2: (−2, −2), and with x: (−1, 1)
    expected = [[0.0, 0.0]] if connection == "plain" else [[0.0, 1.0]]
    assert torch.allclose(block(x), torch.tensor(expected), atol=2e-5)


def test_tap_sees_the_parts_and_the_input_is_not_written_to():
    seen = []
    for parts in (Connection(), Connection(Identity(), Add())):
        block = Block(3, branch_by_hand(), Frame(post=nn.ReLU()), parts)
        block.tap = lambda *values: seen.append(values)
        x = X.clone()
        y = block(x)
        assert torch.equal(x, X) and seen[-1][4] is y
    (index, _, h, f, _), (_, x, shortcut, added, _) = seen
    assert index == 3 and h is None and torch.equal(shortcut, x)
    assert torch.equal(f, 2 * X - 3) and torch.equal(added, f)


def test_connections_bring_these_parts():
    kit, place = linear_kit(Norm.batch, Activation.relu), Place(0, 1, 1, 1, 1)
    assert connect(ConnectionConf(), kit, place, Boundary.zero_pad) == Connection()
    found = connect(ConnectionConf("residual", Shortcut.identity), kit, place, Boundary.zero_pad)
    assert torch.equal(found.merge(found.shortcut(X), X), 2 * X)
    assert [found.scale, found.drop, found.pre_scale, found.gate, found.carry, found.keep] == [None] * 6


@pytest.mark.parametrize("family", ["mlp", "cnn"])
def test_both_arms_hold_the_same_modules_on_the_branch_and_post_path(make_conf, family):
    def kinds(connection):
        conf = make_conf(connection, {"model.name": family})
        network = build(conf.model, conf.connection, conf.depth, (1, 4, 4), 3)
        names = dict(network.named_modules())
        return {n: type(m).__name__ for n, m in names.items() if ".shortcut" not in n and ".merge" not in n}

    assert kinds("plain") == kinds("residual")
    relus = [n for n, kind in kinds("plain").items() if kind == "ReLU"]
    assert relus == ["stem.act"] + [f"blocks.{i}.{part}" for i in range(2) for part in ("branch.0.act", "post")]


def test_no_operation_is_in_place(make_conf, make_network):
    network = make_network(make_conf("residual"))
    assert not any(getattr(m, "inplace", False) for m in network.modules())
