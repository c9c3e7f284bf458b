"""Networks stacked into one: every gradient, loss and norm statistic against each network by itself."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from plainres.flat import FlatParameters
from plainres.models.networks import Network
from plainres.models.stacked import Stack, gather_statistics
from plainres.schema import RunConf

Make = Callable[..., RunConf]
COUNT, BATCH, SHAPE, CLASSES = 3, 20, (1, 4, 4), 3
SETTINGS = {
    "plain": ("plain", {}),
    "residual": ("residual", {}),
    "no norm": ("residual", {"model.norm": "none", "model.activation": "tanh"}),
    "layer norm": ("residual", {"model.norm": "layer"}),
    "pre-activation": ("residual", {"model.placement": "pre_activation"}),
    "sandwich": ("residual", {"model.placement": "sandwich", "model.norm": "layer"}),
    "three layers": ("plain", {"model.branch_layers": 3, "depth": 8, "model.width": 7}),
    **{
        name: (name, {})
        for name in ("constant_scaling", "gated", "highway", "projected", "concat", "rezero", "skipinit", "layerscale")
    },
    "fixup": ("fixup", {}),
    "deepnorm": ("deepnorm", {}),
}


class Replica:
    """One network with its flat storage, its statistics and a batch."""

    def __init__(self, network: Network, flat: FlatParameters, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.network, self.flat = network, flat
        flat.data += 0.1 * torch.randn(flat.data.shape, generator=draw)  # scales that begin at 0 or 1 move, too
        self.statistics_MD = gather_statistics(network)
        self.x_NCHW = torch.randn(BATCH, *SHAPE, generator=draw)
        self.y_N = torch.randint(CLASSES, (BATCH,), generator=draw)


@pytest.fixture
def replicas(make_preset: Make, make_network: Make, make_flat: Make) -> Callable[..., list[Replica]]:
    def make(name: str, count: int = COUNT) -> list[Replica]:
        connection, values = SETTINGS[name]
        confs = [make_preset(connection, values={"seed": seed} | values) for seed in range(count)]
        networks = [make_network(conf, SHAPE, CLASSES) for conf in confs]
        return [Replica(n, make_flat(n, c), s) for s, (n, c) in enumerate(zip(networks, confs, strict=True))]

    return make


def stack_of(members: list[Replica]) -> tuple[Stack, torch.Tensor, torch.Tensor]:
    """Their pass as one, on copies of their weights and statistics."""
    first = members[0]
    stack = Stack(first.network, first.flat, first.statistics_MD, len(members))
    for i, one in enumerate(members):
        stack.data_SP[i] = one.flat.data
        stack.statistics_MSD[:, i] = one.statistics_MD
    return stack, *stack(torch.stack([m.x_NCHW for m in members]), torch.stack([m.y_N for m in members]))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stack_computes_what_its_networks_do(name: str, replicas: Callable[..., list[Replica]]) -> None:
    members = replicas(name)
    stack, loss_S, wrong_S = stack_of(members)
    for i, one in enumerate(members):
        one.flat.zero_grad()
        logits = one.network(one.x_NCHW)
        loss = F.cross_entropy(logits, one.y_N)
        loss.backward()
        assert one.flat.grad.norm() > 0.01
        torch.testing.assert_close(stack.grad_SP[i], one.flat.grad, rtol=1e-4, atol=1e-6 * one.flat.grad.norm().item())
        torch.testing.assert_close(loss_S[i], loss.detach(), rtol=1e-5, atol=1e-7)
        assert wrong_S[i] == (logits.argmax(1) != one.y_N).sum()
        torch.testing.assert_close(stack.statistics_MSD[:, i], one.statistics_MD, rtol=1e-5, atol=1e-6)
    assert (len(stack.statistics_MSD) > 0) == ("norm" not in name and name not in ("sandwich", "fixup", "deepnorm"))


@pytest.mark.parametrize("name", ["residual", "layer norm", "gated", "three layers"])
def test_the_bits_of_a_replica_do_not_depend_on_its_company(name: str, replicas: Callable[..., list[Replica]]) -> None:
    members = replicas(name, 8)
    whole, *_ = stack_of(members)
    for rows in ([0], [5], [7, 2], [3, 4, 5], [5, 1, 6, 2], [7, 6, 5, 4, 3], [0, 2, 4, 6, 7, 1], [6, 5, 4, 3, 2, 1, 0]):
        part, *_ = stack_of([members[i] for i in rows])
        assert torch.equal(part.grad_SP, whole.grad_SP[rows])
        assert torch.equal(part.statistics_MSD, whole.statistics_MSD[:, rows])


def test_not_a_number_stays_with_its_replica(replicas: Callable[..., list[Replica]]) -> None:
    members = replicas("residual")
    sound, *_ = stack_of(members)
    members[1].x_NCHW[0, 0] = torch.nan
    ill, loss_S, _ = stack_of(members)
    assert not torch.isfinite(ill.grad_SP[1]).any() and not torch.isfinite(loss_S[1])
    assert torch.equal(ill.grad_SP[[0, 2]], sound.grad_SP[[0, 2]])


def test_statistics_stay_the_networks_own(replicas: Callable[..., list[Replica]]) -> None:
    (one,) = replicas("residual", 1)
    before = {name: buffer.clone() for name, buffer in one.network.named_buffers()}
    one.network(one.x_NCHW)
    moved = dict(one.network.named_buffers())
    assert len(moved) == len(one.statistics_MD) == 10 and all(not torch.equal(moved[n], before[n]) for n in before)
    assert torch.equal(torch.stack(list(moved.values())), one.statistics_MD)
