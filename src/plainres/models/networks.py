"""The chain that every family is: stem, blocks, final part, pooling, head; and where its layers can be read.

Shape suffixes: N examples, C channels, H height, W width, T tokens, D features.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from plainres.models.block import Block
from plainres.models.layer import ACTIVATIONS, NORMS, OPS, Layer
from plainres.models.parts import ConnectionPart, Rows


class Network(nn.Module):
    """stem -> blocks -> final -> pool -> head: (N, C, H, W) -> logits (N, num_classes).

    Attributes:
        passage: takes a training pass through all blocks in their stead (passage.py); None: one after the other.
    """

    def __init__(
        self,
        prepare: nn.Module,
        stem: nn.Module,
        blocks: list[Block],
        final: nn.Module,
        pool: nn.Module,
        head: nn.Linear,
        before_head: ConnectionPart | None = None,
    ) -> None:
        """
        Args:
            prepare, stem, blocks, final, pool, head: the chain, in its order.
            before_head: what a recipe brings between pooling and head (Fixup's scalar bias).
        """
        super().__init__()
        self.prepare = prepare
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)
        self.final = final
        self.pool = pool
        self.before_head = before_head
        self.head = head
        self.passage: Callable[[torch.Tensor], torch.Tensor] | None = None
        # Found once: a step without such parts costs nothing.
        self._timed = [
            part for part in self.connection_parts() if type(part).begin_step is not ConnectionPart.begin_step
        ]

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        x = self.stem(self.prepare(x_NCHW))
        if self.passage is not None and self.training and torch.is_grad_enabled():
            x = self.passage(x)
        else:
            for block in self.blocks:
                x = block(x)
        x = self.pool(self.final(x))
        if self.before_head is not None:
            x = self.before_head(x)
        logits: torch.Tensor = self.head(x)
        return logits

    def begin_step(self, seed: int, step: int, rows: Rows | None = None) -> None:
        """Tell the parts that change over training (drop masks, a rising α) which step comes, and which rows of its
        batch will pass; None for all of it."""
        for part in self._timed:
            part.begin_step(seed, step, rows)

    def connection_parts(self) -> list[ConnectionPart]:
        """Every part that the connection brings, once."""
        return [m for m in self.modules() if isinstance(m, ConnectionPart)]

    def connection_parameters(self) -> list[str]:
        """Names of the parameters that the connection brings, in forward order."""
        held = {id(p) for part in self.connection_parts() for p in part.parameters()}
        return [name for name, p in self.named_parameters() if id(p) in held]


class ChannelsLast(nn.Module):
    """The same images with the channels of a pixel side by side in memory, as convolutions are fastest.

    Every layer after it keeps that order. With one channel both orders are one in memory, and torch goes by
    the strides: they have to say it.
    """

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        n, channels, height, width = x_NCHW.shape
        if channels == 1:
            return x_NCHW.reshape(n, height, width, 1).permute(0, 3, 1, 2)
        return x_NCHW.contiguous(memory_format=torch.channels_last)


class ImageStem(nn.Module):
    """A first layer and the pooling after it."""

    def __init__(self, layer: Layer, after: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.after = after

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.after(self.layer(x_NCHW))
        return y


class PatchStem(nn.Module):
    """Patches as tokens, a class token before them, learned positions (ViT, arXiv 2010.11929): -> (N, 1 + T, D)."""

    def __init__(self, shape: tuple[int, ...], patch: int, width: int) -> None:
        super().__init__()
        channels, height, wide = shape
        self.op = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (height // patch) * (wide // patch), width))

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        x_NTD = self.op(x_NCHW).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(len(x_NTD), -1, -1), x_NTD], dim=1) + self.pos_embed


class RowStem(nn.Module):
    """The rows of an image as a sequence of H tokens, with learned positions: (N, C, H, W) -> (N, H, D)."""

    def __init__(self, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        channels, height, wide = shape
        self.op = nn.Linear(channels * wide, width)
        self.pos_embed = nn.Parameter(torch.empty(1, height, width))

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        x_NTD: torch.Tensor = self.op(x_NCHW.transpose(1, 2).flatten(2))
        return x_NTD + self.pos_embed


class GlobalAveragePool(nn.Module):
    """(N, C, H, W) -> (N, C)."""

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        return x_NCHW.mean((2, 3))


class ClassToken(nn.Module):
    """(N, T, D) -> (N, D): the first token."""

    def forward(self, x_NTD: torch.Tensor) -> torch.Tensor:
        return x_NTD[:, 0]


class MeanOverTokens(nn.Module):
    """(N, T, D) -> (N, D)."""

    def forward(self, x_NTD: torch.Tensor) -> torch.Tensor:
        return x_NTD.mean(1)


AFTER_NORM = "after its norm, before nonlinearity and addition"
OWN_OUTPUT = "output of the layer itself: no norm follows"


@dataclass(frozen=True)
class LayerSite:
    """Where a weighted layer's values can be read.

    Attributes:
        name: of its weight parameter.
        response: module whose output is the response (after the norm where one follows before the addition).
        response_label: what the response is, for a reader.
        activation: the first nonlinearity between this layer and the next one, or None.
    """

    name: str
    response: nn.Module
    response_label: str
    activation: nn.Module | None


def layer_sites(network: Network) -> list[LayerSite]:
    """Stem, branch and head layers in forward order; the same list in both arms."""
    names = {module: name for name, module in network.named_modules()}
    path = list(_path(network))
    at = [i for i, part in enumerate(path) if isinstance(part, OPS)]
    sites = []
    for start, stop in zip(at, [*at[1:], len(path)], strict=True):
        following = path[start + 1 : stop]
        before_addition = following[: following.index(None)] if None in following else following
        direct = before_addition[0] if before_addition else None
        act = next((part for part in following if isinstance(part, ACTIVATIONS)), None)
        op = path[start]
        assert op is not None
        normed = isinstance(direct, NORMS)
        label = AFTER_NORM if normed else OWN_OUTPUT
        sites.append(LayerSite(f"{names[op]}.weight", direct if normed and direct else op, label, act))
    return sites


def _path(network: Network) -> Iterator[nn.Module | None]:
    """The model's leaf modules in the order in which they act, with None for every addition (or its place)."""
    yield from _leaves(network.stem)
    yield None  # what follows on the trunk is not the stem's own norm
    for block in network.blocks:
        assert isinstance(block, Block)
        for part in (block.pre, block.branch, block.out):
            if part is not None:
                yield from _leaves(part)
        yield None
        if block.post is not None:
            yield from _leaves(block.post)
    yield from _leaves(network.final)
    yield from _leaves(network.head)


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, ConnectionPart):
        return
    children = [c for c in module.parts() if c] if isinstance(module, Layer) else list(module.children())
    if not children:
        yield module
    for child in children:
        yield from _leaves(child)
