"""The one Block: every network is a stem, a chain of these, and a head.

    plain      y = post(F(x))
    residual   y = post(h(x) + F(x))

The branch F and post belong to the model, so both arms of a pair have the same ones; shortcut and merge belong
to the connection. With He 2015's placement (arXiv 1512.03385) F ends with its norm and post is the activation.
"""

from collections.abc import Callable

import torch
from torch import nn

from plainres.models.layer import Chain

Tap = Callable[[int, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor], None]


class Block(Chain):
    """One branch with its connection.

    Attributes:
        index: position along the trunk, from 0.
        branch: F, x -> same shape; knows nothing of shortcuts.
        shortcut: h, or None in the plain arm, where nothing is added.
        merge: joins h(x) and F(x); None in the plain arm.
        post: what follows the addition.
        tap: called with (index, x, h(x) or None, F(x), y) in a probed step, else None. It must not change them.
    """

    def __init__(
        self, index: int, branch: nn.Module, shortcut: nn.Module | None, merge: nn.Module | None, post: nn.Module
    ) -> None:
        super().__init__()
        assert (shortcut is None) == (merge is None)
        self.index = index
        self.branch = branch
        self.shortcut = shortcut
        self.merge = merge
        self.post = post
        self.tap: Tap | None = None

    def chain(self) -> tuple[nn.Module | None, ...]:
        return self.branch, self.shortcut, self.merge, self.post

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch, shortcut, merge, post = self.parts()
        assert branch is not None and post is not None
        f: torch.Tensor = branch(x)
        h: torch.Tensor | None = None
        joined = f
        if shortcut is not None and merge is not None:
            h = shortcut(x)
            joined = merge(h, f)
        y: torch.Tensor = post(joined)
        if self.tap is not None:
            self.tap(self.index, x, h, f, y)
        return y

    def connection_parts(self) -> list[tuple[str, nn.Module]]:
        """The modules that the connection brings, by the name of their part."""
        parts = [("shortcut", self.shortcut), ("merge", self.merge)]
        return [(name, part) for name, part in parts if part is not None]
