"""Paths around the branch. Shape suffixes: N examples, C channels, H height, W width."""

import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.parts import ConnectionPart, Draw, Rows
from plainres.transfer import to_device


class Identity(ConnectionPart):
    """h(x) = x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Projection(ConnectionPart):
    """h(x) = P(x): a linear map or 1x1 convolution, strided at a boundary, with a norm where the model has one."""

    def __init__(self, op: nn.Module, norm: nn.Module | None) -> None:
        super().__init__()
        self.op = op
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.op(x)
        return y if self.norm is None else self.norm(y)


class Pad(ConnectionPart):
    """At a stage boundary without weights: every stride-th pixel (option A of He 2015) or, with ``pool``, the mean of
    stride x stride pixels; and zero channels after the data.
    """

    def __init__(self, channels_added: int, stride: int, pool: bool) -> None:
        super().__init__()
        self.channels_added = channels_added
        self.stride = stride
        self.pool = pool

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        if self.pool:
            smaller = F.avg_pool2d(x_NCHW, self.stride, ceil_mode=True)  # of 7 pixels 4, as a strided convolution has
        else:
            smaller = x_NCHW[:, :, :: self.stride, :: self.stride]
        return F.pad(smaller, (0, 0, 0, 0, 0, self.channels_added))

    def extra_repr(self) -> str:
        return f"channels_added={self.channels_added}, stride={self.stride}, pool={self.pool}"


class Resized(ConnectionPart):
    """h(x) = then(resize(x)): what a shortcut does to every block, after the width or resolution was matched."""

    def __init__(self, resize: ConnectionPart, then: ConnectionPart) -> None:
        super().__init__()
        self.resize = resize
        self.then = then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.then(self.resize(x))
        return y


class DropoutShortcut(ConnectionPart):
    """Dropout on the shortcut (He 2016): a unit is 0 with chance p in training, kept ones are divided by 1 − p.

    The mask is a function of (seed, step, block), so that a recomputed forward pass sees the same one.
    """

    def __init__(self, p: float, index: int) -> None:
        super().__init__()
        self.p = p
        self._draw = Draw("shortcut dropout", index)

    def begin_step(self, seed: int, step: int, rows: Rows | None = None) -> None:
        self._draw.begin_step(seed, step, rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        kept = to_device((self._draw.uniform(x.shape) >= self.p).float(), x.device)
        return (x * (kept / (1 - self.p))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
