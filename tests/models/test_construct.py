"""Inserted blocks change nothing: against a float64 computation by hand, for every norm and family that has them."""

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.block import Block
from plainres.models.construct import Moments, insert_identity_blocks, perturb
from plainres.models.layer import BatchNorm
from plainres.models.networks import Network
from plainres.schema import RunConf

EPS = torch.finfo(torch.float32).eps
Pair = tuple[Network, Network, list[Block], Moments]


@pytest.fixture
def pair(make_conf: Callable[..., RunConf], make_network: Callable[..., Network]) -> Callable[..., Pair]:
    """pair("cnn", "batch"): a deep network built from a shallow one, with the blocks inserted, in evaluation mode."""

    def make(family: str, norm: str, connection: str = "plain", layers: int = 2) -> Pair:
        values: dict[str, Any] = {"model.name": family, "model.norm": norm, "model.branch_layers": layers}
        shallow = make_network(make_conf(connection, values | {"depth": 2 * layers + 2})).eval()
        deep = make_network(make_conf(connection, values | {"depth": 10 * layers + 2, "seed": 1})).eval()
        draw = torch.Generator().manual_seed(3)
        for module in shallow.modules():  # statistics and shifts as a trained network has them
            if isinstance(module, BatchNorm):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(generator=draw)
                module.running_var.uniform_(0.2, 3, generator=draw)
                module.bias.data.normal_(generator=draw)
        moments = Moments(torch.randn(6, generator=draw, dtype=torch.float64), torch.rand(6, generator=draw).double())
        return shallow, deep, insert_identity_blocks(deep, shallow, moments), moments

    return make


@pytest.fixture
def examples() -> torch.Tensor:
    return torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(5))


CASES = [(f, n, c, m) for f in ("mlp", "cnn") for n in ("batch", "none") for c in ("plain", "residual") for m in (1, 2)]


@pytest.mark.parametrize(("family", "norm", "connection", "layers"), CASES)
@torch.no_grad()
def test_the_deep_network_computes_what_the_shallow_one_does(
    pair: Callable[..., Pair], examples: torch.Tensor, family: str, norm: str, connection: str, layers: int
) -> None:
    shallow, deep, inserted, _ = pair(family, norm, connection, layers)
    assert [block.index for block in inserted] == list(range(2, 10)) and len(deep.blocks) == 10
    want, got = shallow(examples), deep(examples)
    if norm == "none" or connection == "residual":  # sums with zeros, and products with 1: nothing is rounded
        assert torch.equal(got, want)
    else:
        assert (got - want).abs().max() <= 8 * EPS * (1 + 8 * layers) * want.abs().max()


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@torch.no_grad()
def test_an_inserted_block_by_hand_in_float64(pair: Callable[..., Pair], family: str) -> None:
    """y = max(0, W (max(0, (W x − μ)/√(v+ε)·√(v+ε) + μ)) …) from the block's own numbers, without torch's modules."""
    _, _, (block, *_), moments = pair(family, "batch")
    x = torch.rand(30, 6, 3, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64) * 3
    x = x if family == "cnn" else x[..., 0, 0]
    shape = (1, 6, 1, 1) if family == "cnn" else (1, 6)
    y = x
    for layer in block.branch.children():
        weight = cast(torch.Tensor, layer.op.weight).double()
        y = F.conv2d(y, weight, padding=1) if family == "cnn" else y @ weight.T
        norm = cast(BatchNorm, layer.norm)
        mean, var = (cast(torch.Tensor, b).double().view(shape) for b in (norm.running_mean, norm.running_var))
        y = (y - mean) / (var + norm.eps).sqrt() * norm.weight.double().view(shape) + norm.bias.double().view(shape)
        y = y.clamp(min=0)
    torch.testing.assert_close(y, x, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(block.eval()(x.float()).double(), x, rtol=1e-5, atol=1e-5)
    assert moments.var_C.shape == (6,)


@torch.no_grad()
def test_batch_statistics_make_a_plain_block_approximate_and_leave_a_residual_one_exact(
    pair: Callable[..., Pair],
) -> None:
    for connection, exact in (("plain", False), ("residual", True)):
        _, _, (block, *_), _ = pair("mlp", "batch", connection)
        x = torch.rand(40, 6, generator=torch.Generator().manual_seed(6)) * 3
        assert torch.equal(block.train()(x), x) is exact


@pytest.mark.parametrize("norm", ["batch", "none"])
@torch.no_grad()
def test_noise_moves_what_makes_a_block_the_identity_by_its_size(pair: Callable[..., Pair], norm: str) -> None:
    _, deep, inserted, _ = pair("cnn", norm)
    perturb(deep, inserted, 0.3, seed=0)
    moved = [cast(torch.Tensor, layer.op.weight) for block in inserted for layer in block.branch.children()]
    centre = nn.init.dirac_(torch.empty_like(moved[0]))
    draws = torch.stack([(w - centre) * math.sqrt(6 * 9) / 0.3 for w in moved]).flatten()
    assert abs(draws.std() - 1) < 0.02 and abs(draws.mean()) < 0.02 and len(draws) == 16 * 6 * 6 * 9
    _, again, blocks, _ = pair("cnn", norm)
    perturb(again, blocks, 0.3, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(deep.parameters(), again.parameters(), strict=True))
    _, other, blocks, _ = pair("cnn", norm)
    perturb(other, blocks, 0.3, seed=1)
    assert not torch.equal(dict(other.named_parameters())["blocks.5.branch.0.op.weight"], moved[6])


@pytest.mark.parametrize(
    ("norm", "end", "size"),
    [("batch", "branch.1.norm.weight", 0.3), ("none", "branch.1.op.weight", 0.3 / math.sqrt(6))],
)
@torch.no_grad()
def test_noise_of_a_residual_arm_is_the_end_of_its_branch(
    pair: Callable[..., Pair], norm: str, end: str, size: float
) -> None:
    _, deep, inserted, _ = pair("mlp", norm, "residual")
    before = {name: p.clone() for name, p in deep.named_parameters()}
    perturb(deep, inserted, 0.3, seed=0)
    changed = {name for name, p in deep.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {f"blocks.{block.index}.{end}" for block in inserted}
    values = torch.cat([dict(deep.named_parameters())[name].flatten() for name in sorted(changed)])
    assert abs(values.std() / size - 1) < 0.25 and all((before[name] == 0).all() for name in changed)
