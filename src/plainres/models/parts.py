"""What a connection is made of: the base of every part, gates, and how both paths meet.

Every subclass of ConnectionPart (here, in shortcuts.py and in scales.py) belongs to the connection: the audit takes
what they do and hold as declared by it, and everything else in a network as shared by both arms.
"""

import torch
from torch import nn


class ConnectionPart(nn.Module):
    """Belongs to the connection, not to the model."""

    def begin_step(self, seed: int, step: int) -> None:
        """Draw or set what this step needs, before its forward pass."""


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
