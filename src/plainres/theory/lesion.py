"""Lesions: what a trained network loses when one block is deleted, or two change places (Veit et al. 2016).

arXiv 1605.06431: a residual network survives the loss of any single block, because the paths around it remain; a plain
one does not. A deleted block is replaced by the identity, in both arms alike. One that changes the shape cannot be:
there its shortcut is kept, y = post(h(x)), and where nothing stands beside the branch the block is left out with the
reason. Only blocks that keep the shape, and have the same one, change places.

Nothing is trained and no norm statistics are taken anew: errors are of the damaged network as it stands, clean and in
evaluation mode.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn

from plainres.data.split import Split
from plainres.evaluate import evaluate
from plainres.models.block import Block
from plainres.models.networks import Network
from plainres.models.parts import Concat
from plainres.precision import computing
from plainres.seeding import generator
from plainres.theory.trained import Trained

DISTANT_SWAPS = 40  # pairs that are no neighbours: at most so many, drawn once for each number of blocks
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Lesion:
    """One change of the network.

    Attributes:
        block: the (first) block's index.
        other: the second one's, or None.
        parts: what stands at each index instead; empty if it cannot be done.
        kept: what is left of a deleted block.
        reason: why it cannot be done, or empty.
    """

    block: int
    other: int | None
    parts: Mapping[int, nn.Module]
    kept: str = ""
    reason: str = ""


class ShortcutOnly(nn.Module):
    """y = post(h(x)): a block without its branch."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        block = self.block
        assert block.shortcut is not None
        h: torch.Tensor = block.shortcut(x)
        if block.gate is not None and block.carry is not None:
            h = block.carry(h, block.gate(x))
        return h if block.post is None else block.post(h)


def lesions(trained: Trained, swap: bool) -> Iterator[dict[str, object]]:
    """Errors after each lesion, one at a time; the network is whole again after each.

    Args:
        trained: the run.
        swap: exchange pairs of blocks instead of deleting single ones.

    Yields:
        block, other, distance, kept, train_error, train_loss, val_error, val_loss (fractions, nats; None where it
        cannot be done), reason.
    """
    shapes = block_shapes(trained.network, trained.data.train)
    device = str(next(trained.network.parameters()).device)
    for lesion in swaps(trained.network, shapes) if swap else deletions(trained.network, shapes):
        values: Mapping[str, float | None] = dict.fromkeys(trained.intact)
        if lesion.parts:
            with damaged(trained.network, lesion.parts), computing(trained.conf.trainer.precision, device):
                values = evaluate(trained.network, trained.data)
        distance = None if lesion.other is None else lesion.other - lesion.block
        place = {"block": lesion.block, "other": lesion.other, "distance": distance, "kept": lesion.kept}
        yield {**place, **values, "reason": lesion.reason}


def block_shapes(network: Network, split: Split) -> list[tuple[Shape, Shape]]:
    """Shape of one example before and after each block."""
    shapes: list[tuple[Shape, Shape]] = []

    def note(block: nn.Module, args: tuple[torch.Tensor, ...], y: torch.Tensor) -> None:
        shapes.append((tuple(args[0].shape[1:]), tuple(y.shape[1:])))

    handles = [block.register_forward_hook(note) for block in network.blocks]
    with torch.no_grad():
        network(split.clean(slice(0, 2))[0])
    for handle in handles:
        handle.remove()
    return shapes


def deletions(network: Network, shapes: list[tuple[Shape, Shape]]) -> list[Lesion]:
    """The deletion of each block."""
    found = []
    for index, (block, (before, after)) in enumerate(zip(network.blocks, shapes, strict=True)):
        assert isinstance(block, Block)
        if before == after:
            found.append(Lesion(index, None, {index: nn.Identity()}, "identity"))
        elif block.shortcut is None or isinstance(block.merge, Concat):
            why = "nothing is added to its branch" if block.shortcut is None else "its branch is concatenated"
            found.append(Lesion(index, None, {}, reason=f"it changes the shape, and {why}"))
        else:
            found.append(Lesion(index, None, {index: ShortcutOnly(block)}, "shortcut"))
    return found


def swaps(network: Network, shapes: list[tuple[Shape, Shape]]) -> list[Lesion]:
    """All neighbours of one shape, and pairs further apart: all, or ``DISTANT_SWAPS`` drawn with a fixed seed."""
    alike = [
        (i, j)
        for i, j in combinations(range(len(shapes)), 2)
        if shapes[i] == shapes[j] and shapes[i][0] == shapes[i][1]
    ]
    distant = [pair for pair in alike if pair[1] - pair[0] > 1]
    order = torch.randperm(len(distant), generator=generator(0, "swapped blocks", len(shapes)))
    drawn = [distant[k] for k in sorted(order[:DISTANT_SWAPS].tolist())]
    pairs = [pair for pair in alike if pair[1] - pair[0] == 1] + drawn
    blocks = network.blocks
    return [Lesion(i, j, {i: blocks[j], j: blocks[i]}) for i, j in pairs]


@contextmanager
def damaged(network: Network, parts: Mapping[int, nn.Module]) -> Iterator[None]:
    """The network with other modules in place of some of its blocks."""
    whole = {index: network.blocks[index] for index in parts}
    for index, part in parts.items():
        network.blocks[index] = part
    try:
        yield
    finally:
        for index, block in whole.items():
            network.blocks[index] = block
