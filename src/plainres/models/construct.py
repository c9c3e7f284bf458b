"""A deep network that computes what a trained shallow one computes: blocks that change nothing, before the head.

He 2015 (arXiv 1512.03385, section 1) argues with this construction: a deeper plain network *can* do no worse. A plain
block is the identity on values that are not negative if each of its maps is (the identity matrix; in a filter 1 at the
centre, from a channel to itself) and each batch norm gives back the statistics that it takes away: with running mean μ
and variance v, scale √(v + ε) and shift μ. In evaluation that is exact but for rounding. In training a batch's own
statistics take the place of μ and v, and the block is the identity only as far as the two agree. A residual block is
the identity, in both modes, if its branch ends in 0: the scale of its last norm, or without norms its last weight.

Shape suffixes: C channels.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from plainres.models.block import Block
from plainres.models.layer import BatchNorm, Layer
from plainres.models.networks import Network
from plainres.seeding import generator


@dataclass(frozen=True)
class Moments:
    """Statistics of the trunk before the head: mean and variance of each channel over examples (and pixels)."""

    mean_C: torch.Tensor
    var_C: torch.Tensor


def insert_identity_blocks(deep: Network, shallow: Network, moments: Moments) -> list[Block]:
    """Give ``deep`` the values of ``shallow`` and, behind its blocks, blocks that change nothing.

    Args:
        deep, shallow: equal but for the number of blocks, which all keep the width. Other initial values of the
            inserted blocks (those of a residual branch before its end) stay as they are.
        moments: of the values that the inserted blocks will see.

    Returns:
        The inserted blocks.
    """
    inserted = [cast(Block, block) for block in deep.blocks][len(shallow.blocks) :]
    known = dict(shallow.named_parameters()) | dict(shallow.named_buffers())
    with torch.no_grad():
        for name, value in [*deep.named_parameters(), *deep.named_buffers()]:
            if name in known:
                value.copy_(known[name])
        for block in inserted:
            if block.shortcut is None:
                _make_identity(block, moments)
            else:
                _ending(block).zero_()
    return inserted


def perturb(network: Network, inserted: list[Block], noise: float, seed: int) -> None:
    """Add normal noise to what makes each inserted block change nothing.

    Plain: to every map, with standard deviation ``noise``/√fan_in, so that a layer's output moves by about ``noise``
    times its input. Residual: to the end of the branch (a norm scale: ``noise`` itself), with the like effect.
    The draws are a function of the seed and the parameter's name.
    """
    names = {id(p): name for name, p in network.named_parameters()}
    with torch.no_grad():
        for block in inserted:
            for weight in [_ending(block)] if block.shortcut is not None else _maps(block):
                fan_in = math.prod(weight.shape[1:])  # of a norm scale 1
                draw = torch.randn(weight.shape, generator=generator(seed, "start noise", names[id(weight)]))
                weight.add_(draw.to(weight.device), alpha=noise / math.sqrt(fan_in))


def _layers(block: Block) -> list[Layer]:
    return [cast(Layer, layer) for layer in block.branch.children()]


def _maps(block: Block) -> list[nn.Parameter]:
    return [cast(nn.Parameter, layer.op.weight) for layer in _layers(block)]


def _ending(block: Block) -> nn.Parameter:
    """What the branch's output is proportional to: the scale of its last norm, or its last weight."""
    last = _layers(block)[-1]
    return cast(nn.Parameter, last.op.weight if last.norm is None else last.norm.weight)


def _make_identity(block: Block, moments: Moments) -> None:
    for weight in _maps(block):
        nn.init.eye_(weight) if weight.dim() == 2 else nn.init.dirac_(weight)
    for norm in [layer.norm for layer in _layers(block)]:
        if norm is not None:
            assert isinstance(norm, BatchNorm) and norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.copy_(moments.mean_C)
            norm.running_var.copy_(moments.var_C)
            norm.bias.copy_(moments.mean_C)
            norm.weight.copy_((norm.running_var.double() + norm.eps).sqrt())
