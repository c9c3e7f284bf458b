"""The weighted layer: a linear map or convolution with its norm and activation, in either order.

Shape suffixes: N examples, T tokens, D features, C channels, H height, W width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from plainres.options import Activation, Norm
from plainres.ranks import sum_of_ranks


class BatchNorm(_BatchNorm):
    """Batch norm over all but the channel dimension (Ioffe & Szegedy 2015, arXiv 1502.03167).

    The same numbers as torch's, for (N, D) and (N, C, H, W). With ``batch_statistics`` an evaluation uses the
    statistics of its own batch and moves no running one; ``synced`` is for a run on several devices (ranks.py). There
    is no batch counter: with a fixed momentum nothing reads it, and counting costs a kernel per layer and step.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.num_batches_tracked = None
        self.batch_statistics = False
        self.synced = False

    def reset_statistics(self) -> None:
        """Running mean 0 and variance 1."""
        assert self.running_mean is not None and self.running_var is not None
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Straight from the dictionaries: torch's attribute look-up of a parameter costs as much as its kernel's launch.
        parameters, buffers = self._parameters, self._buffers
        training = self.training
        if self.synced and training:
            return self._over_ranks(x)
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

    def _over_ranks(self, x: torch.Tensor) -> torch.Tensor:
        """In training mode, with mean and variance of the global batch, of which every rank has an equal part."""
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        count = x.numel() // x.shape[1] * distributed.get_world_size()
        mean = sum_of_ranks(x.sum(dims)) / count
        centred = x - mean.view(shape)
        var = sum_of_ranks((centred * centred).sum(dims)) / count
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
        return centred * (torch.rsqrt(var + self.eps) * self.weight).view(shape) + self.bias.view(shape)


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """All batch norms of a module, also a user's, in order."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]


@contextmanager
def kept_statistics(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Within, these move copies of their running statistics: for a pass that is made again."""
    kept = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        # The copies take the place of the buffers: what autograd has saved of these must not be written to.
        norm._buffers.update({name: None if b is None else b.clone() for name, b in norm._buffers.items()})
    try:
        yield
    finally:
        for norm, buffers in zip(norms, kept, strict=True):
            norm._buffers.update(buffers)


class ChannelLayerNorm(nn.GroupNorm):
    """Layer norm of a feature map: over channels and space of each sample, with a scale per channel."""

    def __init__(self, width: int) -> None:
        super().__init__(1, width)


class Pointwise(nn.Conv2d):
    """A 1x1 convolution. A strided one picks its pixels first, which gives the same numbers.

    torch's own strided kernel (2.14, oneDNN on AVX2, channels-last, fewer than 8 channels) writes beyond its memory in
    the backward pass.
    """

    def __init__(self, width_in: int, width: int, stride: int, bias: bool) -> None:
        super().__init__(width_in, width, kernel_size=1, stride=stride, bias=bias)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        high, wide = self.stride
        seen_NCHW = x_NCHW if self.stride == (1, 1) else x_NCHW[:, :, ::high, ::wide]
        return F.conv2d(seen_NCHW, self.weight, self.bias)


NORMS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.GELU)
OPS = (nn.Linear, nn.Conv1d, nn.Conv2d)


def make_activation(kind: Activation) -> nn.Module:
    """A nonlinearity, out of place."""
    makers: dict[Activation, Callable[[], nn.Module]] = {
        Activation.relu: nn.ReLU,
        Activation.leaky_relu: nn.LeakyReLU,
        Activation.tanh: nn.Tanh,
        Activation.gelu: nn.GELU,
    }
    return makers[kind]()


@dataclass(frozen=True)
class Kit:
    """How a family makes its pieces: maps between widths, norms and activations, without the numbers of a place.

    Attributes:
        op: (width in, width out, stride) -> a weighted map without bias.
        pointwise: (width in, width out, stride, bias) -> a map of each position by itself.
        norm: kind of norm.
        activation: kind of nonlinearity.
        spatial: whether values are (N, C, H, W) and not (…, D).
    """

    op: Callable[[int, int, int], nn.Module]
    pointwise: Callable[[int, int, int, bool], nn.Module]
    norm: Norm
    activation: Activation
    spatial: bool

    def make_norm(self, width: int) -> nn.Module | None:
        """A norm of this width, or None."""
        if self.norm is Norm.none:
            return None
        if self.norm is Norm.batch:
            return BatchNorm(width)
        return ChannelLayerNorm(width) if self.spatial else nn.LayerNorm(width)

    def make_act(self) -> nn.Module:
        return make_activation(self.activation)

    def per_channel(self, width: int) -> tuple[int, ...]:
        """Shape of one number a channel that multiplies values of this family."""
        return (width, 1, 1) if self.spatial else (width,)


def linear_kit(norm: Norm, activation: Activation) -> Kit:
    """Maps of features: (…, D)."""
    return Kit(
        op=lambda i, o, stride: nn.Linear(i, o, bias=False),
        pointwise=lambda i, o, stride, bias: nn.Linear(i, o, bias=bias),
        norm=norm,
        activation=activation,
        spatial=False,
    )


def conv_kit(norm: Norm, activation: Activation, sides: tuple[int, ...]) -> Kit:
    """3x3 convolutions, padding 1: (N, C, H, W).

    Along a side of length 1, as sequences have, the kernel is 1 too: the outer weights would only ever see padding, and
    would count in every norm. ``sides`` is the (H, W) of the input.
    """
    high, wide = (1 if side == 1 else 3 for side in sides)
    kernel, padding = (high, wide), (high // 2, wide // 2)
    return Kit(
        op=lambda i, o, stride: nn.Conv2d(i, o, kernel, stride=stride, padding=padding, bias=False),
        pointwise=Pointwise,
        norm=norm,
        activation=activation,
        spatial=True,
    )


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
        if name in self._modules:
            self.__dict__["_parts"] = None


class Layer(Chain):
    """act(norm(op(x))), or with ``pre`` op(act(norm(x))); norm and act may be missing.

    Attributes:
        before_op, before_act: scalar biases that the Fixup recipe adds; None otherwise.
    """

    def __init__(self, op: nn.Module, norm: nn.Module | None, act: nn.Module | None, pre: bool = False) -> None:
        super().__init__()
        self.before_op: nn.Module | None = None
        self.before_act: nn.Module | None = None
        self.op = op
        self.norm = norm
        self.act = act
        self.pre = pre

    def chain(self) -> tuple[nn.Module | None, ...]:
        """The parts in the order in which they act."""
        weighted, active = (self.before_op, self.op), (self.norm, self.before_act, self.act)
        parts = (*active, *weighted) if self.pre else (*weighted, *active)
        return tuple(part for part in parts if part is not None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts():
            x = part(x)  # type: ignore[misc]  # chain() leaves out what is None
        return x
