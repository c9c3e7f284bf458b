"""The parts of a built Block as formula, as steps along each path, and as notes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from plainres.models import parts, scales, shortcuts
from plainres.models.block import Block
from plainres.models.branches import Attention, FeedForward
from plainres.models.layer import BatchNorm, Layer
from plainres.models.networks import ClassToken, GlobalAveragePool, ImageStem, MeanOverTokens, PatchStem, RowStem
from plainres.models.own import OwnBranch
from plainres.options import DropScaling

NORMS: dict[type[nn.Module], str] = {BatchNorm: "BN", nn.LayerNorm: "LN", nn.GroupNorm: "LN"}
ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.Tanh: "tanh", nn.GELU: "gelu",
}  # fmt: skip
ENDS: dict[type[nn.Module], str] = {
    PatchStem: "patches, class token, positions",
    RowStem: "rows as tokens, positions",
    GlobalAveragePool: "mean over space",
    MeanOverTokens: "mean over tokens",
    ClassToken: "class token",
    nn.MaxPool2d: "max pool",
}


@dataclass(frozen=True)
class Words:
    """How one part of a connection reads.

    Attributes:
        formula: what it makes of a formula (of h and F for a merge).
        step: its name along a path.
        note: what the formula leaves open, or empty.
    """

    formula: Callable[..., str]
    step: str
    note: str = ""


def branch_steps(module: nn.Module) -> list[str]:
    """The model's operations in the order in which they act, one word each."""
    if isinstance(module, Attention):
        return [f"attention ({module.heads} heads)"]
    if isinstance(module, FeedForward):
        return [*branch_steps(module.fc1), *branch_steps(module.act), *branch_steps(module.fc2)]
    if isinstance(module, nn.Identity):
        return []
    if isinstance(module, OwnBranch):
        inside = [_model_word(leaf) for leaf in module.inner.modules() if not list(leaf.children())]
        return [f"{type(module.inner).__name__} ({', '.join(inside)})"]
    if isinstance(module, ImageStem):
        return [*branch_steps(module.layer), *branch_steps(module.after)]
    if isinstance(module, nn.Sequential):
        return [step for child in module for step in branch_steps(child)]
    if isinstance(module, Layer):
        return [step for part in module.parts() if part is not None for step in branch_steps(part)]
    return [_model_word(module)]


def _model_word(module: nn.Module) -> str:
    if isinstance(module, nn.Linear):
        return f"linear {module.in_features}→{module.out_features}"
    if isinstance(module, nn.Conv2d):
        (high, wide), stride = module.kernel_size, module.stride[0]
        return f"conv{high}x{wide} {module.in_channels}→{module.out_channels}" + (f" /{stride}" if stride > 1 else "")
    if isinstance(module, scales.FixupBias):
        return "+b"
    return (NORMS | ACTIVATIONS | ENDS).get(type(module), type(module).__name__.lower())


def part_words(part: nn.Module) -> Words:
    """How a connection's part reads; a part that is not known here is named by its class."""
    known = _KNOWN.get(type(part))
    name = type(part).__name__
    return known(part) if known else Words(lambda *of: f"{name}({', '.join(of)})", name, part.extra_repr())


def _projection(part: shortcuts.Projection) -> Words:
    steps = [_model_word(m) for m in (part.op, part.norm) if m is not None]
    return Words(lambda x: f"P({x})", " ─ ".join(steps), f"P: {', '.join(steps)}")


def _learned(part: scales.LearnedScale) -> Words:
    channels = part.alpha.numel() > 1
    note = f"α: {part.alpha.numel()} learned {'numbers, one a channel' if channels else 'number'}, from {part.start:g}"
    mark = "⊙" if channels else "·"
    return Words(lambda f: f"α{mark}{f}", f"× α {'per channel' if channels else ''}".rstrip(), note)


def _gate(part: parts.Gate) -> Words:
    return Words(lambda x: f"g({x})", "g", f"g(x) = σ(Wx + b), W: {_model_word(part.op)}, b from {part.bias:g}")


def _drop(part: scales.StochasticDepth) -> Words:
    scaling = "kept ones F/p, evaluation F" if part.scaling is DropScaling.train else "kept ones F, evaluation pF"
    note = f"keep: in training with chance p = {part.survival:.4g}, per {part.unit}; {scaling}"
    return Words(lambda f: f"keep({f})", f"keep {part.survival:.4g}", note)


def _fixed(part: scales.FixedScale) -> Words:
    note = f"α rises linearly over the first {part.warmup} steps" if part.warmup else ""
    return Words(lambda f: f"{part.alpha:.4g}·{f}", f"× {part.alpha:.4g}", note)


def _dropout(part: shortcuts.DropoutShortcut) -> Words:
    note = f"dropout: in training a unit is 0 with chance {part.p:g}, kept ones × {1 / (1 - part.p):g}; evaluation: x"
    return Words(lambda x: f"dropout({x})", f"dropout {part.p:g}", note)


def _pad(part: shortcuts.Pad) -> Words:
    how = "pool" if part.pool else "zero_pad"
    kept = (
        f"the mean of {part.stride}x{part.stride} pixels" if part.pool else f"one pixel of {part.stride}x{part.stride}"
    )
    note = f"{how}: {kept}, and {part.channels_added} zero channels after the data"
    return Words(lambda x: f"{how}({x})", f"{how} +{part.channels_added} channels", note)


def _resized(part: shortcuts.Resized) -> Words:
    first, then = part_words(part.resize), part_words(part.then)
    both = "; ".join(note for note in (first.note, then.note) if note)
    return Words(lambda x: then.formula(first.formula(x)), f"{first.step} ─ {then.step}", both)


_KNOWN: dict[type[nn.Module], Callable[[Any], Words]] = {
    shortcuts.Identity: lambda part: Words(lambda x: x, "identity"),
    shortcuts.Projection: _projection,
    shortcuts.Pad: _pad,
    shortcuts.Resized: _resized,
    shortcuts.DropoutShortcut: _dropout,
    scales.FixedScale: _fixed,
    scales.LearnedScale: _learned,
    scales.FixupScale: lambda part: Words(
        lambda f: f"α·{f} + b", "× α + b", "α from 1, every b from 0: learned scalars"
    ),
    scales.StochasticDepth: _drop,
    parts.Gate: _gate,
    parts.Keep: lambda part: Words(lambda f: f"g(x)⊙{f}", "× g"),
    parts.Carry: lambda part: Words(lambda h: f"(1−g(x))⊙{h}", "× (1−g)"),
    parts.Add: lambda part: Words(lambda h, f: f"{h} + {f}", "+"),
    parts.Concat: lambda part: Words(
        lambda h, f: f"W[{h}, {f}]", "[ , ] ─ W", "concatenated, not added: this is not a residual connection"
    ),
}


def formula(block: Block) -> str:
    """``y = relu(x + 0.1·F(x))``, from the block's own parts."""
    inner = "x"
    if block.pre is not None:
        inner = f"{_model_word(block.pre)}({inner})"
    inner = _apply(block.pre_scale, inner)
    f = f"F({inner})"
    if block.out is not None:
        f = f"{_model_word(block.out)}({f})"
    for part in (block.scale, block.drop, block.keep if block.shortcut is not None else None):
        f = _apply(part, f)
    joined = f
    if block.shortcut is not None and block.merge is not None:
        h = _apply(block.carry, _apply(block.shortcut, "x"))
        joined = part_words(block.merge).formula(h, f)
    return f"y = {joined}" if block.post is None else f"y = {_model_word(block.post)}({joined})"


def _apply(part: nn.Module | None, text: str) -> str:
    return text if part is None else part_words(part).formula(text)


def way_steps(block: Block) -> list[str]:
    """What the branch's signal passes, from x to where it is joined."""
    order = (block.pre, block.pre_scale, block.branch, block.out, block.scale, block.drop, block.keep)
    return [step for part in order if part is not None for step in _steps(part)]


def _steps(part: nn.Module) -> list[str]:
    return [part_words(part).step] if isinstance(part, parts.ConnectionPart) else branch_steps(part)


def notes(block: Block) -> Iterator[str]:
    """What the formula leaves open: how a part starts, what it does in training only."""
    order = (block.shortcut, block.gate, block.pre_scale, block.scale, block.drop, block.carry, block.keep, block.merge)
    for part in order:
        if part is not None and (note := part_words(part).note):
            yield note


def draw(block: Block) -> str:
    """The block as a drawing of a few lines: the branch above, the shortcut below."""
    post = "" if block.post is None else f"{_model_word(block.post)} ─ "
    above = " ─ ".join(way_steps(block))
    if block.shortcut is None or block.merge is None:
        return f"x ─── {above} ─ {post}y"
    steps = [part_words(part).step for part in (block.shortcut, block.carry) if part is not None]
    below = " ─ ".join(step for step in steps if step != "identity" or len(steps) == 1)
    width = max(len(above), len(below))
    top, bottom = (f"{text} {'─' * (width - len(text))}" for text in (above, below))
    join = part_words(block.merge).step
    return f"x ─┬─ {top}─┐\n   └─ {bottom}─{join} ─ {post}y"
