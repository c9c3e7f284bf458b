"""docs/connections.md, written from conf/connection/*.yaml and from the blocks that those settings build.

The first comment of a preset's file says its formula, its source and what it needs; everything else is measured.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from plainres.config import compose, conf_dir
from plainres.data import load
from plainres.data.dataset import Dataset
from plainres.describe.words import branch_steps, draw, formula, notes
from plainres.models.block import Block
from plainres.models.families import build, num_branches
from plainres.models.init import Draws
from plainres.models.layer import BatchNorm
from plainres.models.networks import Network
from plainres.models.parts import ConnectionPart
from plainres.models.rules import rules_of, undecayed
from plainres.models.scales import StochasticDepth
from plainres.models.shortcuts import DropoutShortcut
from plainres.options import Boundary, Merge, Placement, Recipe, Shortcut
from plainres.pair import kind_of
from plainres.schema import DataConf, RunConf
from plainres.signature import boundary_words

NET = ["model=mlp", "depth=10"]  # 4 blocks of width 64: what every number on the page is measured on
SHOWN = 1  # the block that is drawn: neither the first nor the last
# What is counted where a rule depends on depth; everything else depends on none.
COUNTS = {
    "depth_scaled": "L = branches joined to the trunk",
    "depth_mup": "L = branches joined to the trunk",
    "deepnorm": "L = branches; the paper counts N layers of two branches, 2N = L",
    "fixup": "L = branches, with m = model.branch_layers weighted layers each",
    "layernorm_scaling": "l = layers from 1; both branches of a Transformer layer share it",
    "layerscale": "layers, as CaiT does (0.1 up to 18, 1e-5 up to 24, then 1e-6)",
    "stochastic_depth": "L = branches, l = 1 … L",
}
INTRO = """\
# Connections

Written by `python scripts/connections_page.py` from `conf/connection/` and the blocks that it builds; a test compares.
Choose one with `connection=NAME`, change a part with `connection.PART=VALUE`, and look before training:

    plainres describe connection=highway depth=20

Every connection is a setting of the parts of one Block. x is the block's input, F its branch, L the number of branches
joined to the trunk. Numbers are measured on `model=mlp depth=10` (4 blocks of width 64) with the settings that the
preset needs, seed 0, and the first 128 training examples. "Branch ratio" is the mean of ‖what is added‖ / ‖what it is
added to‖ over those examples at step 0. The partner of every connection is plain with the same model, placement and
norm: the audit shows what else differs.
"""
PLACEMENTS = """\
## Placements

Where norm and activation stand is a field of the model (`model.placement`), so both arms share it. It is about the
blocks: `none` puts no norm and no activation around F or after the addition, and leaves the stem of `mlp`, `cnn` and
the ResNets its norm; `model.norm=none` is the network without any. The residual block under each, with
`model.norm=layer`, and what stands before the first block and after the last:
"""
BOUNDARIES = """\
## Stage boundaries

Where width and resolution change (`model=cifar_resnet`, `imagenet_resnet`) a shortcut cannot be the identity;
`model.boundary` says what it is there, under every connection but `projected`. The first such block of
`model=cifar_resnet depth=8`, and what the audit says:
"""
GATED_BOUNDARY = """\
**With a gate** (`connection=highway`): the carry is (1−g) times the shortcut above. g has the shape of the block's
output, because its 1x1 convolution of x has the block's stride and gives the block's channels.
"""


@dataclass(frozen=True)
class Preset:
    """A file of conf/connection.

    Attributes:
        choice: what ``connection=`` takes.
        header: its first comment, in one line.
        settings: its lines, as written.
        needs: the overrides that its header asks for.
    """

    choice: str
    header: str
    settings: list[str]
    needs: list[str]


def presets() -> list[Preset]:
    """Every preset: plain and residual, the others by name, then those in folders."""
    root = Path(conf_dir()) / "connection"
    found = [_read(path, path.relative_to(root).with_suffix("").as_posix()) for path in root.rglob("*.yaml")]
    first = ["plain", "residual"]
    return sorted(found, key=lambda p: ("/" in p.choice, p.choice not in first, p.choice))


def _read(path: Path, choice: str) -> Preset:
    lines = path.read_text().splitlines()
    header = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    asked = re.search(r"Needs ((?:[\w.]+=\w+[ ;,.]*)+)", header)
    needs = re.findall(r"[\w.]+=\w+", asked.group(1)) if asked else []
    return Preset(choice, header, [line for line in lines if line and not line.startswith("#")], needs)


def connections_page() -> str:
    """The text of docs/connections.md."""
    data = load(DataConf())
    every = presets()
    parts = [INTRO, *(_section(p, data) for p in every if "/" not in p.choice)]
    parts.append("## Variants of presets\n\nFor sweeps whose arms need settings of their own:\n")
    parts.append("\n".join(f"- `connection={p.choice}`: {p.header}" for p in every if "/" in p.choice) + "\n")
    return "\n".join([*parts, _placements(data), _boundaries(data)])


def _section(preset: Preset, data: Dataset) -> str:
    conf = compose([*NET, f"connection={preset.choice}", *preset.needs])
    network = _build(conf, data)
    block = network.blocks[SHOWN]
    assert isinstance(block, Block)
    drawing = [formula(block), "", draw(block), *(f"{note}" for note in notes(block))]
    rules = rules_of(conf).declared()
    names = network.connection_parameters()
    sizes = dict(network.named_parameters())
    added = sum(sizes[name].numel() for name in names)
    kept = " (learned without weight decay)" if names and set(names) <= undecayed(network) else ""
    partner = [" ".join(f"`{need}`" for need in preset.needs)] if preset.needs else []
    needs = partner[0] if partner else "nothing"
    facts = {
        "Kind": kind_of(conf.connection),
        "Adds": f"{added:,} parameters{kept}" if added else "no parameters",
        "Step 0": _at_start(conf, network, data),
        "Training against evaluation": "; ".join(_two_modes(network)) or "no difference of its own",
        "Counts": f"{COUNTS[preset.choice]}; here L = {num_branches(conf.model, conf.depth)}"
        if preset.choice in COUNTS
        else "nothing: no rule depends on depth",
        "Declares": "; ".join(rules) or "nothing beside its parts",
        "Needs": needs,
        "Partner": "none: it is the partner" if block.shortcut is None else " with ".join(["plain", *partner]),
        "Recipe": "yes: every differing field stands beside its results"
        if conf.connection.recipe is not Recipe.none
        else "no",
    }
    listed = "\n".join(f"- {name}: {text}" for name, text in facts.items())
    return f"## {preset.choice}\n\n{preset.header}\n\n{_code(drawing)}\n{listed}\n\n{_code(preset.settings)}"


def _code(lines: list[str]) -> str:
    text = "\n".join(lines)
    return f"```text\n{text}\n```\n"


def _build(conf: RunConf, data: Dataset) -> Network:
    return build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)


def _at_start(conf: RunConf, network: Network, data: Dataset) -> str:
    """Whether blocks start as their shortcut, from a forward pass in training mode with the initial draws."""
    Draws(network, conf.model, rules_of(conf), conf.seed).materialise("cpu")
    network.train()
    network.begin_step(conf.seed, 0)
    ratios: list[float] = []

    def tap(index: int, x: torch.Tensor, h: torch.Tensor | None, f: torch.Tensor, y: torch.Tensor) -> None:
        low = (x if h is None else h).flatten(1).norm(dim=1)
        ratios.append(float((f.flatten(1).norm(dim=1) / low)[low > 0].mean()))

    for block in network.blocks:
        assert isinstance(block, Block)
        block.tap = tap
    with torch.no_grad():
        network(data.train.images[: conf.trainer.batch])
    if conf.connection.shortcut is Shortcut.none or conf.connection.merge is Merge.concat:
        return f"‖F(x)‖ / ‖x‖ is {ratios[0]:.2g} in the first block, {ratios[-1]:.2g} in the last (no addition)"
    if max(ratios) == 0:
        return "the branch is exactly 0: every block starts as its shortcut"
    return f"branch ratio {ratios[0]:.2g} in the first block, {ratios[-1]:.2g} in the last"


def _two_modes(network: Network) -> Iterator[str]:
    """What the connection does in training only."""
    held = network.connection_parts()
    if any(isinstance(part, StochasticDepth) for part in held):
        yield "branches are dropped in training only, by a mask that is a function of (seed, step, block)"
    if any(isinstance(part, DropoutShortcut) for part in held):
        yield "units of the shortcut are dropped in training only"
    if any(isinstance(m, BatchNorm) for part in held for m in part.modules() if isinstance(part, ConnectionPart)):
        yield "its norm uses batch statistics in training, running ones in evaluation"


def _placements(data: Dataset) -> str:
    lines = [PLACEMENTS]
    for placement in Placement:
        conf = compose([*NET, "connection=residual", f"model.placement={placement}", "model.norm=layer"])
        network = _build(conf, data)
        block = network.blocks[SHOWN]
        assert isinstance(block, Block)
        ends = [f"{name}: {', '.join(branch_steps(part)) or 'nothing'}"
                for name, part in (("stem", network.stem), ("before the head", network.final))]  # fmt: skip
        lines.append(f"**{placement}**: {formula(block)}\n\n{_code([draw(block), *ends])}")
    return "\n".join(lines)


def _boundaries(data: Dataset) -> str:
    lines = [BOUNDARIES]
    for boundary in Boundary:
        words, drawing = _boundary(data, "residual", boundary)
        lines.append(f"**{boundary}**: {words}\n\n{drawing}")
    _, drawing = _boundary(data, "highway", Boundary.zero_pad)
    return "\n".join([*lines, GATED_BOUNDARY, drawing])


def _boundary(data: Dataset, connection: str, boundary: Boundary) -> tuple[str, str]:
    """What the audit says, and the first block that changes width, drawn with its notes."""
    conf = compose(["model=cifar_resnet", "depth=8", f"connection={connection}", f"model.boundary={boundary}"])
    network = _build(conf, data)
    block = network.blocks[1]
    assert isinstance(block, Block)
    return "; ".join(boundary_words(conf, network)), _code([formula(block), "", draw(block), *notes(block)])
