"""The one Block: every network is a stem, a chain of these, and a head.

    y = post( merge( h(x), drop( scale( out(F(pre_scale(pre(x)))) ) ) ) )      plain: y = post( out(F(pre(x))) )

pre, branch F, out and post belong to the model, so both arms of a pair have the same ones; everything else
belongs to the connection. Where norm and activation stand is the model's placement.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from plainres.models.layer import Chain
from plainres.models.parts import Carry, ConnectionPart, Gate, Keep

Tap = Callable[[int, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor], None]


@dataclass
class Frame:
    """What a placement puts around a branch; None where it puts nothing."""

    pre: nn.Module | None = None
    out: nn.Module | None = None
    post: nn.Module | None = None


@dataclass
class Connection:
    """The parts that a connection brings to one block; all None in the plain arm.

    Attributes:
        shortcut: h, what the branch is added to.
        gate: g(x), with ``carry`` and ``keep`` saying which paths it acts on.
        pre_scale: multiplies the branch's input.
        scale, drop: what the branch passes before it is added.
        merge: joins both.
    """

    shortcut: ConnectionPart | None = None
    merge: ConnectionPart | None = None
    pre_scale: ConnectionPart | None = None
    scale: ConnectionPart | None = None
    drop: ConnectionPart | None = None
    gate: Gate | None = None
    carry: Carry | None = None
    keep: Keep | None = None


class Block(Chain):
    """One branch with its connection.

    Attributes:
        index: position along the trunk, from 0.
        identity: whether the shortcut is strictly the identity.
        tap: called with (index, x, h(x) or None, F̃(x), y) in a probed step, else None; F̃ is what is added. It
            must not change them.
    """

    def __init__(self, index: int, branch: nn.Module, frame: Frame, connection: Connection) -> None:
        super().__init__()
        assert (connection.shortcut is None) == (connection.merge is None)
        self.index = index
        self.pre = frame.pre
        self.pre_scale = connection.pre_scale
        self.branch = branch
        self.out = frame.out
        self.scale = connection.scale
        self.drop = connection.drop
        self.gate = connection.gate
        self.keep = connection.keep
        self.shortcut = connection.shortcut
        self.carry = connection.carry
        self.merge = connection.merge
        self.post = frame.post
        self.tap: Tap | None = None

    def chain(self) -> tuple[nn.Module | None, ...]:
        """What the branch's signal passes, then what joins it with the trunk."""
        way = (self.pre, self.pre_scale, self.branch, self.out, self.scale, self.drop)
        return (*way, self.shortcut, self.gate, self.carry, self.keep, self.merge, self.post)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, f, y = self.joined(x)
        if self.tap is not None:
            self.tap(self.index, x, h, f, y)
        return y

    def joined(self, x: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """h(x) or None, F̃(x) and y: what a tap is told of."""
        *way, shortcut, gate, carry, keep, merge, post = self.parts()
        f = x
        for part in way:
            if part is not None:
                f = part(f)
        h: torch.Tensor | None = None
        joined = f
        if shortcut is not None and merge is not None:
            h = shortcut(x)
            if gate is not None:
                g = gate(x)
                h = h if carry is None else carry(h, g)
                f = f if keep is None else keep(f, g)
            joined = merge(h, f)
        y: torch.Tensor = joined if post is None else post(joined)
        return h, f, y
