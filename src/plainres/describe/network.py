"""A whole network as rows, its totals, its depth rule, and the audit of its pair. On the meta device: no storage."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from plainres.audit import audit
from plainres.data.dataset import Dataset
from plainres.describe.words import branch_steps, formula, notes, part_words
from plainres.models.block import Block
from plainres.models.families import build, num_branches, stage_blocks
from plainres.models.networks import Network
from plainres.models.parts import ConnectionPart
from plainres.models.rules import rules_of
from plainres.options import Family, Stages
from plainres.pair import connection_differences, kind_of
from plainres.schema import ModelConf, RunConf

MANY_NOTES = 8  # more than that say the same with other numbers


@dataclass
class Row:
    """One part of the network, or several blocks that read alike.

    Attributes:
        where: stem, final, head, or the indices of the blocks.
        shapes: input and output of one example.
        model_parameters, connection_parameters: of each of them.
        shortcut: its kind, or empty.
        operations: what it does, one line each.
    """

    where: str
    shapes: str
    model_parameters: int
    connection_parameters: int
    shortcut: str
    operations: list[str]


@dataclass(frozen=True)
class Description:
    """What ``plainres describe`` prints.

    Attributes:
        title: the run in a line.
        kind: plain, a connection, a recipe, or a control that is not a residual connection.
        rows: stem, blocks, head.
        notes: what the formulas leave open.
        parameters: of the model, and what the connection adds.
        depth_rule: how depth counts here, with the numbers put in.
        branches: L.
        declared: what the connection declares beside its operations.
        differing: fields in which the connection differs from the plain partner.
        audit: the audit of the pair, as run.json keeps it.
    """

    title: str
    kind: str
    rows: list[Row]
    notes: list[str]
    parameters: tuple[int, int]
    depth_rule: str
    branches: int
    declared: list[str]
    differing: list[str]
    audit: dict[str, Any]


def describe(conf: RunConf, data: Dataset) -> Description:
    """Describe the network of a validated config, and audit it against its partner.

    Raises:
        UserError: the depth, or the image size, cannot be built.
    """
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    shapes = _shapes(network, data.input_shape)
    brought = set(network.connection_parameters())
    added = sum(p.numel() for name, p in network.named_parameters() if name in brought)
    total = sum(p.numel() for p in network.parameters())
    found = audit(conf, data)
    blocks = [block for block in network.blocks if isinstance(block, Block)]
    return Description(
        title=f"{conf.model.name}, depth {conf.depth}, connection {conf.connection.name}, "
        f"placement {conf.model.placement}, norm {conf.model.norm}, {conf.model.activation}, on {conf.data.name}",
        kind=kind_of(conf.connection),
        rows=_rows(network, shapes),
        notes=_notes(blocks),
        parameters=(total - added, added),
        depth_rule=depth_rule(conf.model, conf.depth),
        branches=num_branches(conf.model, conf.depth),
        declared=[*([f"{added:,} parameters"] if added else []), *rules_of(conf).declared()],
        differing=connection_differences(conf.connection),
        audit=found,
    )


def depth_rule(model: ModelConf, depth: int) -> str:
    """How the family counts depth, with the numbers of this network."""
    stages = stage_blocks(model, depth)
    blocks, m = sum(stages), model.branch_layers
    if model.name in (Family.vit, Family.transformer):
        return f"depth = layers, each an attention and a feed-forward branch: {blocks} layers, {2 * blocks} branches"
    spread = " + ".join(map(str, stages))
    if model.name is Family.imagenet_resnet:
        return f"depth = 2·B + 2: B = {spread} = {blocks} blocks in four stages, depth {depth}"
    if model.name is Family.cifar_resnet and model.stages is Stages.thirds:
        return f"depth = 6n + 2: n = {stages[0]} blocks in each of three stages, depth {depth}"
    in_stages = f" ({spread} in three stages)" if len(stages) > 1 else ""
    return f"depth = m·B + 2 (stem and head): m = {m} layers a branch, B = {blocks} blocks{in_stages}, depth {depth}"


def _shapes(network: Network, input_shape: tuple[int, ...]) -> dict[nn.Module, str]:
    """``8x8x8 → 16x4x4`` for every part of the chain, from a forward pass of two examples on the meta device."""
    shapes: dict[nn.Module, str] = {}

    def note(module: nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        shapes[module] = f"{_shape(args[0])} → {_shape(out)}"

    chain = [network.stem, *network.blocks, network.final, network.pool, network.head]
    handles = [module.register_forward_hook(note) for module in chain]
    with torch.no_grad():
        network(torch.empty((2, *input_shape), device="meta"))
    for handle in handles:
        handle.remove()
    return shapes


def _shape(value: torch.Tensor) -> str:
    return "x".join(map(str, value.shape[1:]))


def _rows(network: Network, shapes: dict[nn.Module, str]) -> list[Row]:
    groups: dict[str, tuple[Row, list[int]]] = {}
    counted: set[int] = set()
    for block in network.blocks:
        assert isinstance(block, Block)
        row = _block_row(block, shapes[block], counted)
        groups.setdefault(repr(row), (row, []))[1].append(block.index)
    rows = [_part_row("stem", [network.stem], shapes)]
    for row, indices in groups.values():
        row.where = index_text(indices)
        rows.append(row)
    before = [] if network.before_head is None else [network.before_head]
    ends = {"final": [network.final], "pool": [network.pool], "head": [*before, network.head]}
    return rows + [_part_row(name, parts, shapes) for name, parts in ends.items() if branch_steps(parts[-1])]


def _part_row(name: str, parts: list[nn.Module], shapes: dict[nn.Module, str]) -> Row:
    """Stem or end of a network: its last part is the model's, before which a recipe may have put one of its own."""
    sizes = {id(p): p.numel() for part in parts for p in part.parameters()}
    brought = sum(sizes[key] for key in _brought(parts))
    steps = [step for part in parts for step in branch_steps(part)]
    return Row(name, shapes[parts[-1]], sum(sizes.values()) - brought, brought, "", [", ".join(steps)])


def _brought(parts: list[nn.Module]) -> set[int]:
    """Which parameters belong to a connection, by id."""
    held = [m for part in parts for m in part.modules() if isinstance(m, ConnectionPart)]
    return {id(p) for part in held for p in part.parameters()}


def _block_row(block: Block, shapes: str, counted: set[int]) -> Row:
    """``counted`` keeps the parameters of earlier blocks, so that a shared scale counts once."""
    fresh = {id(p): p.numel() for p in block.parameters() if id(p) not in counted}
    counted.update(fresh)
    held = _brought([block])
    brought = sum(size for key, size in fresh.items() if key in held)
    shortcut = "none" if block.shortcut is None else part_words(block.shortcut).step
    inside = ", ".join(branch_steps(block.branch))
    return Row("", shapes, sum(fresh.values()) - brought, brought, shortcut, [formula(block), f"F: {inside}"])


def index_text(indices: list[int]) -> str:
    """``0–23 (24)``, ``0, 2 … 10 (6)``, or the indices themselves."""
    if len(indices) < 3:
        return ", ".join(map(str, indices))
    strides = {b - a for a, b in pairwise(indices)}
    if strides == {1}:
        return f"{indices[0]}–{indices[-1]} ({len(indices)})"
    if len(strides) == 1:
        return f"{indices[0]}, {indices[1]} … {indices[-1]} ({len(indices)})"
    return f"{indices[0]} … {indices[-1]} ({len(indices)})"


def _notes(blocks: list[Block]) -> list[str]:
    """Each note once, with the blocks that it is about unless it is all; of many, those of the first and last block."""
    about: dict[str, list[int]] = {}
    for block in blocks:
        for text in notes(block):
            about.setdefault(text, []).append(block.index)
    if len(about) > MANY_NOTES:
        last = len(blocks) - 1
        about = {text: [i for i in where if i in (0, last)] for text, where in about.items() if {0, last} & set(where)}
    return [
        text if len(where) == len(blocks) else f"block {index_text(where)}: {text}" for text, where in about.items()
    ]
