"""Another way through a network's blocks in training than one after the other, with the same numbers.

Recomputation (arXiv 1604.06174): of every group of blocks only the input is kept, and the backward pass computes what
lies between again, with the same masks, without moving norm statistics a second time, and unseen by hooks.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from plainres.models.block import Block
from plainres.models.layer import batch_norms, kept_statistics


class Recomputed:
    """Passes blocks in groups of which only the input is kept for the backward pass."""

    def __init__(self, blocks: Sequence[nn.Module], every: int) -> None:
        """
        Args:
            blocks: of the network, in order.
            every: blocks in a group; the last one may have fewer.
        """
        self._groups = [_Group(blocks[i : i + every]) for i in range(0, len(blocks), every)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        for group in self._groups:
            # No generator of torch's is saved: masks are functions of seed and step, and nothing else may draw.
            y: torch.Tensor = checkpoint(
                group.forward, x, use_reentrant=False, preserve_rng_state=False, context_fn=group.contexts
            )
            x = y
        return x


class _Group:
    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        self._blocks = list(blocks)
        self._modules = [m for block in blocks for m in block.modules()]
        self._norms = [norm for block in blocks for norm in batch_norms(block)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self._blocks:
            x = block(x)
        return x

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Of the first pass, and of the second."""
        return nullcontext(), self._again()

    @contextmanager
    def _again(self) -> Iterator[None]:
        with kept_statistics(self._norms), _unseen(self._modules):
            yield


@contextmanager
def _unseen(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Within, neither hooks nor taps of these modules are called: they have seen this pass already."""
    watched = [m for m in modules if m._forward_hooks or m._forward_pre_hooks]
    hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in watched]
    tapped = [m for m in modules if isinstance(m, Block) and m.tap is not None]
    taps = [block.tap for block in tapped]
    for module in watched:
        module._forward_hooks, module._forward_pre_hooks = type(hooks[0][0])(), type(hooks[0][1])()
    for block in tapped:
        block.tap = None
    try:
        yield
    finally:
        for module, (after, before) in zip(watched, hooks, strict=True):
            module._forward_hooks, module._forward_pre_hooks = after, before
        for block, tap in zip(tapped, taps, strict=True):
            block.tap = tap
