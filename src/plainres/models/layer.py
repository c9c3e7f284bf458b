"""The weighted layer: a linear map or convolution, its norm, its activation.

Shape suffixes: N examples, D features, C channels, H height, W width.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchNorm(_BatchNorm):
    """Batch norm over all but the channel dimension (Ioffe & Szegedy 2015, arXiv 1502.03167).

    The same numbers as torch's, for (N, D) and (N, C, H, W). With ``batch_statistics`` an evaluation uses the
    statistics of its own batch and moves no running one. There is no batch counter: with a fixed momentum
    nothing reads it, and counting costs a kernel per layer and step.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.num_batches_tracked = None
        self.batch_statistics = False

    def reset_statistics(self) -> None:
        """Running mean 0 and variance 1."""
        assert self.running_mean is not None and self.running_var is not None
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Straight from the dictionaries: torch's attribute look-up of a parameter costs as much as its kernel's launch.
        parameters, buffers = self._parameters, self._buffers
        training = self.training
        moving = training or not self.batch_statistics
        y: torch.Tensor = torch.batch_norm(
            x,
            parameters["weight"],
            parameters["bias"],
            buffers["running_mean"] if moving else None,
            buffers["running_var"] if moving else None,
            training or self.batch_statistics,
            self.momentum or 0.0,
            self.eps,
            True,  # cuDNN where there is a GPU
        )
        return y


class Chain(nn.Module):
    """A module whose parts are looked up once and not at every step: torch's look-up costs as much as a small kernel.

    Replacing a part forgets what was looked up.
    """

    _parts: tuple[nn.Module | None, ...] | None = None

    def chain(self) -> tuple[nn.Module | None, ...]:
        """The parts that ``forward`` uses, in its order; None where there is none."""
        return tuple(self.children())

    def parts(self) -> tuple[nn.Module | None, ...]:
        """The parts of ``chain``."""
        found = self._parts
        if found is None:
            found = self.chain()
            self.__dict__["_parts"] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__["_parts"] = None


class Layer(Chain):
    """act(norm(op(x))), with ``op`` free of bias because the norm has one. ``act`` may be missing."""

    def __init__(self, op: nn.Module, norm: nn.Module, act: nn.Module | None) -> None:
        super().__init__()
        self.op = op
        self.norm = norm
        self.act = act

    def chain(self) -> tuple[nn.Module | None, ...]:
        return self.op, self.norm, self.act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts():
            if part is not None:
                x = part(x)
        return x


def linear_layer(width_in: int, width_out: int, activate: bool) -> Layer:
    """Linear–BN(–ReLU): (N, width_in) -> (N, width_out)."""
    op = nn.Linear(width_in, width_out, bias=False)
    return Layer(op, BatchNorm(width_out), nn.ReLU() if activate else None)


def conv_layer(channels_in: int, channels_out: int, activate: bool) -> Layer:
    """3x3 convolution, padding 1, stride 1–BN(–ReLU): (N, channels_in, H, W) -> (N, channels_out, H, W)."""
    op = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
    return Layer(op, BatchNorm(channels_out), nn.ReLU() if activate else None)
