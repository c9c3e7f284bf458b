"""What a connection is made of: the base of every part, gates, and how both paths meet.

Every subclass of ConnectionPart (here, in shortcuts.py and in scales.py) belongs to the connection: the audit takes
what they do and hold as declared by it, and everything else in a network as shared by both arms.
"""

from dataclasses import dataclass

import torch
from torch import nn

from plainres.seeding import generator


class ConnectionPart(nn.Module):
    """Belongs to the connection, not to the model."""

    def begin_step(self, seed: int, step: int, rows: "Rows | None" = None) -> None:
        """Set what this step needs, before a forward pass over these rows of its batch (None: over all of it)."""


@dataclass(frozen=True)
class Rows:
    """A part of a batch: what is drawn for each example is the same whether it passes with all others or not.

    Attributes:
        first: its first example.
        total: examples in the whole batch.
    """

    first: int
    total: int


class Draw:
    """Random numbers of one connection part for each example of a batch, a function of (seed, step, block, example)."""

    def __init__(self, name: str, index: int) -> None:
        """
        Args:
            name: of what is drawn.
            index: of the block.
        """
        self._name = name
        self._index = index
        self._moment: tuple[int, int, Rows | None] = (0, 0, None)

    def begin_step(self, seed: int, step: int, rows: Rows | None) -> None:
        """As ConnectionPart's."""
        self._moment = (seed, step, rows)

    def uniform(self, shape: tuple[int, ...], each: bool = True) -> torch.Tensor:
        """In [0, 1), on the CPU, of this shape, whose first dimension is the examples that pass; the same every time.

        Args:
            shape: of the draws.
            each: of every example; otherwise of the batch, with first dimension 1.
        """
        seed, step, rows = self._moment
        source = generator(seed, self._name, step, self._index)
        if rows is None or not each:
            return torch.rand(shape, generator=source)
        return torch.rand((rows.total, *shape[1:]), generator=source)[rows.first : rows.first + shape[0]]


class Gate(ConnectionPart):
    """g(x) = σ(Wx + b), per unit, with b starting at ``bias`` (highway networks, arXiv 1505.00387; He 2016)."""

    def __init__(self, op: nn.Module, bias: float) -> None:
        """
        Args:
            op: a linear map or 1x1 convolution with a bias, width to width.
            bias: where each element of b starts; negative favours the shortcut.
        """
        super().__init__()
        self.op = op
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.op(x))

    def extra_repr(self) -> str:
        return f"bias={self.bias:g}"


class Keep(ConnectionPart):
    """g ⊙ F."""

    def forward(self, f: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return g * f


class Carry(ConnectionPart):
    """(1 − g) ⊙ h."""

    def forward(self, h: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return (1 - g) * h


class Add(ConnectionPart):
    """h + F, out of place: a probe that holds either sees it unchanged."""

    def forward(self, h: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return h + f


class Concat(ConnectionPart):
    """W[h, F]: concatenated and brought back to width. A control: this is not a residual connection."""

    def __init__(self, op: nn.Module, dim: int) -> None:
        """
        Args:
            op: a linear map or 1x1 convolution, twice the width to the width.
            dim: where channels or features stand.
        """
        super().__init__()
        self.op = op
        self.dim = dim

    def forward(self, h: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.op(torch.cat([h, f], dim=self.dim))
        return y
