"""Tensors that are reduced together give what each gives alone; what may be written to is reduced at once."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from plainres.data import Dataset
from plainres.models.families import build
from plainres.probes import together
from plainres.probes.branch import BranchNorms
from plainres.probes.probe import Probe
from plainres.probes.responses import dead_fractions, response_stds
from plainres.probes.together import Together


@pytest.mark.parametrize("limit", [0, 200, 10**6], ids=["each", "a few", "all"])
@pytest.mark.parametrize("reduce", [response_stds, dead_fractions])
def test_together_is_one_by_one(monkeypatch: pytest.MonkeyPatch, reduce: Callable, limit: int) -> None:
    monkeypatch.setattr(together, "LIMIT", limit)
    drawn = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (4, 3), (5, 3, 2, 2), (4, 3), (5, 3, 2, 2), (4, 6, 3)]
    tensors = [torch.randn(shape, generator=drawn).relu() for shape in shapes]
    tensors[1][:, 2] = 0
    whole = Together(reduce, len(tensors) + 1)
    for place, tensor in enumerate(tensors):
        whole.add(place, tensor)
    *found, nothing = whole.found()
    assert nothing is None
    for mine, tensor in zip(found, tensors, strict=True):
        torch.testing.assert_close(mine, reduce(tensor[None])[0], rtol=1e-6, atol=0)
        if reduce is response_stds:
            torch.testing.assert_close(mine.double(), tensor.double().std(correction=0), rtol=1e-6, atol=0)
    whole.clear()
    assert whole.found() == [None] * 7


def test_a_deviation_far_from_0_is_exact() -> None:
    tensor = 1000 + torch.randn(1, 64, 50, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        response_stds(tensor)[0].double(), tensor.double().std(correction=0), rtol=1e-5, atol=0
    )  # the difference of squares would lose all digits but one


def test_large_tensors_are_not_kept() -> None:
    whole = Together(response_stds, 1)
    whole.add(0, torch.randn(together.LARGE))
    assert whole._found[0] is not None and not whole._kept


def test_blocks_of_different_shapes_and_precision(make_preset: Callable) -> None:
    """Norms and products of blocks that are reduced together are those of each alone."""
    conf = make_preset("projected", "cifar_resnet")
    network = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 3)
    drawn = torch.Generator().manual_seed(1)
    taps, x = [], torch.randn(6, 2, 4, 4, generator=drawn)
    for index in range(len(network.blocks)):
        shape = (6, 2 + index // 2, 4, 4)
        f, y = (torch.randn(shape, generator=drawn) for _ in range(2))
        h = x if x.shape == y.shape else torch.randn(shape, generator=drawn)
        taps.append((index, x, h, f.bfloat16() if index == 1 else f, y))
        x = y
    listeners = [BranchNorms(list(network.blocks), at_once) for at_once in (False, True)]
    for listener in listeners:
        for tap in taps:
            listener.on_block(*tap)
        listener.flush()
    for index, x, h, f, y in taps:
        x, h, f, y = (t.double().flatten(1) for t in (x, h, f, y))
        expected = torch.stack([x.norm(dim=1), f.norm(dim=1), y.norm(dim=1), h.norm(dim=1), (h * f).sum(1)])
        for listener in listeners:
            torch.testing.assert_close(listener._sums[index][:5].double(), expected, rtol=1e-5, atol=1e-5)


INPLACE = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.act, self.two = nn.Linear(width, width), nn.ReLU(inplace=INPLACE), nn.Linear(width, width)

    def forward(self, x):
        return self.two(self.act(self.one(x)))
"""


def test_what_a_users_module_writes_to_is_read_before(
    own_module: Callable, make_conf: Callable, make_network: Callable, make_flat: Callable, tiny_data: Dataset
) -> None:
    found = []
    for name, inplace in (("writes", "True"), ("keeps", "False")):
        own_module(name, INPLACE.replace("INPLACE", inplace))
        conf = make_conf("residual", {"model.branch": f"{name}:Mine"})
        network = make_network(conf)
        flat = make_flat(network, conf)
        probe = Probe(network, flat)
        probe.arm(16)
        F.cross_entropy(network(tiny_data.train.images[:16]), tiny_data.train.y_N[:16]).backward()
        probe.after_backward()
        probe.before_update()
        probe.after_update()
        found.append(probe.collect().sent().row(0)["values"]["layer"])
    for metric in ("response_std", "dead_fraction"):
        assert list(found[0][metric]) == list(found[1][metric])


def test_what_a_step_drew_is_read_although_others_follow(
    make_conf: Callable, make_network: Callable, make_flat: Callable, tiny_data: Dataset
) -> None:
    """On a GPU a row is read steps later: masks and values are those of its own step."""
    conf = make_conf("stochastic_depth", {"connection.survival": 0.5})
    rows = []
    for others in (0, 3):
        network = make_network(conf)
        probe = Probe(network, make_flat(network, conf))
        network.begin_step(0, 5)
        probe.arm(16)
        F.cross_entropy(network(tiny_data.train.images[:16]), tiny_data.train.y_N[:16]).backward()
        probe.after_backward()
        probe.before_update()
        probe.after_update()
        for step in range(others):
            network.begin_step(0, 6 + step)
            network(tiny_data.train.images[:16])
        rows.append(probe.collect().sent().row(5)["values"]["block"])
    for metric in ("branch_ratio", "branch_ratio_left_out", "kept_fraction", "branch_norm"):
        assert list(rows[0][metric]) == list(rows[1][metric]), metric
