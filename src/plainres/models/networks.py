"""Network families and their depth rule.

mlp and cnn are isotropic: one width from stem to head, m weighted layers a branch, so with B blocks
depth = m·B + 2 (stem and head counted). Shape suffixes: N examples, C channels, H height, W width, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from plainres.errors import UserError
from plainres.models.block import Block
from plainres.models.layer import Layer, conv_layer, linear_layer
from plainres.models.shortcuts import build_connection
from plainres.schema import ConnectionConf, Family, ModelConf


class Network(nn.Module):
    """stem -> blocks -> head: (N, C, H, W) -> logits (N, num_classes)."""

    def __init__(self, prepare: nn.Module, stem: Layer, blocks: list[Block], pool: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.prepare = prepare
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)
        self.pool = pool
        self.head = head

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        x = self.stem(self.prepare(x_NCHW))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.pool(x))
        return logits


class GlobalAveragePool(nn.Module):
    """(N, C, H, W) -> (N, C)."""

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        return x_NCHW.mean((2, 3))


@dataclass(frozen=True)
class LayerSite:
    """Where a weighted layer's values can be read.

    Attributes:
        name: of its weight parameter.
        response: module whose output is the response (after the norm where one follows).
        response_label: what the response is, for a reader.
        activation: module whose output shows dead units, or None where no activation follows.
    """

    name: str
    response: nn.Module
    response_label: str
    activation: nn.Module | None


def layer_sites(network: Network) -> list[LayerSite]:
    """Stem, branch and head layers in forward order; the same list in both arms."""
    sites = [_site("stem", network.stem, network.stem.act)]
    for block in network.blocks:
        assert isinstance(block, Block)
        layers = list(block.branch.named_children())
        for name, layer in layers:
            assert isinstance(layer, Layer)
            # The last layer's activation stands after the addition: it is the block's post.
            act = layer.act if layer is not layers[-1][1] else block.post
            sites.append(_site(f"blocks.{block.index}.branch.{name}", layer, act))
    sites.append(LayerSite("head.weight", network.head, "output of the layer itself: no norm follows", None))
    return sites


def _site(path: str, layer: Layer, act: nn.Module | None) -> LayerSite:
    return LayerSite(f"{path}.op.weight", layer.norm, "after its norm, before nonlinearity and addition", act)


def num_blocks(model: ModelConf, depth: int) -> int:
    """Blocks of a network of this depth: (depth − 2) / m.

    Raises:
        UserError: no whole number of blocks gives this depth; names the nearest depths that can be built.
    """
    m = model.branch_layers
    blocks, rest = divmod(depth - 2, m)
    if rest or blocks < 1:
        below = m * max(blocks, 1) + 2
        nearest = [below] if blocks < 1 else [below, below + m]
        raise UserError(
            f"depth={depth}: {model.name} depths are {m}·B + 2 with B ≥ 1 blocks of model.branch_layers={m}; "
            f"the nearest is depth={' or depth='.join(map(str, nearest))}"
        )
    return blocks


def build(
    model: ModelConf, connection: ConnectionConf, depth: int, input_shape: tuple[int, ...], num_classes: int
) -> Network:
    """A network on the meta device: shapes without storage. ``materialise`` gives it values.

    Args:
        model: family, width, layers a branch.
        connection: how each block's branch joins the trunk.
        depth: number of weighted layers.
        input_shape: (C, H, W) of an example.
        num_classes: size of the output.

    Raises:
        UserError: the depth cannot be built.
    """
    blocks = num_blocks(model, depth)
    channels, height, width = input_shape
    with torch.device("meta"):
        make: Callable[[int, int, bool], Layer]
        prepare: nn.Module
        pool: nn.Module
        if model.name is Family.mlp:
            make, prepare, features, pool = linear_layer, nn.Flatten(), channels * height * width, nn.Identity()
        else:
            make, prepare, features, pool = conv_layer, nn.Identity(), channels, GlobalAveragePool()
        body = partial(_block, make, model, connection)
        return Network(
            prepare,
            make(features, model.width, True),
            [body(i) for i in range(blocks)],
            pool,
            nn.Linear(model.width, num_classes),
        )


def _block(make: Callable[[int, int, bool], Layer], model: ModelConf, connection: ConnectionConf, index: int) -> Block:
    last = model.branch_layers - 1
    layers = [make(model.width, model.width, i != last) for i in range(model.branch_layers)]
    shortcut, merge = build_connection(connection)
    return Block(index, nn.Sequential(*layers), shortcut, merge, nn.ReLU())
