"""Parts of a connection: paths around the branch, what multiplies or drops it, and how both meet.

Every class here is a ConnectionPart: the audit takes what they do and hold as declared by the connection, and
everything else in a network as shared by both arms. Shape suffixes: N examples, C channels or features.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from plainres.options import DropScaling, DropUnit
from plainres.seeding import generator


class ConnectionPart(nn.Module):
    """Belongs to the connection, not to the model."""

    def begin_step(self, seed: int, step: int) -> None:
        """Draw or set what this step needs, before its forward pass."""


class Identity(ConnectionPart):
    """h(x) = x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class ScaledShortcut(ConnectionPart):
    """h(x) = λx (constant scaling of He 2016; DeepNorm's α)."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x

    def extra_repr(self) -> str:
        return f"factor={self.factor:g}"


class Projection(ConnectionPart):
    """h(x) = P(x): a linear map or 1x1 convolution, strided at a boundary, with a norm where the model has one."""

    def __init__(self, op: nn.Module, norm: nn.Module | None) -> None:
        super().__init__()
        self.op = op
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.op(x)
        return y if self.norm is None else self.norm(y)


class ZeroPad(ConnectionPart):
    """Option A of He 2015: every stride-th pixel, and zero channels after the data."""

    def __init__(self, channels_added: int, stride: int) -> None:
        super().__init__()
        self.channels_added = channels_added
        self.stride = stride

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        kept = x_NCHW[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, 0, self.channels_added))

    def extra_repr(self) -> str:
        return f"channels_added={self.channels_added}, stride={self.stride}"


class PoolPad(ConnectionPart):
    """Average over stride x stride pixels, and zero channels after the data."""

    def __init__(self, channels_added: int, stride: int) -> None:
        super().__init__()
        self.channels_added = channels_added
        self.stride = stride

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        pooled = F.avg_pool2d(x_NCHW, self.stride, ceil_mode=True)  # of 7 pixels 4, as a strided convolution has
        return F.pad(pooled, (0, 0, 0, 0, 0, self.channels_added))

    def extra_repr(self) -> str:
        return f"channels_added={self.channels_added}, stride={self.stride}"


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
        self.index = index
        self._name: tuple[int, int] = (0, 0)

    def begin_step(self, seed: int, step: int) -> None:
        self._name = (seed, step)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        seed, step = self._name
        draws = torch.rand(x.shape, generator=generator(seed, "shortcut dropout", step, self.index))
        return x * ((draws >= self.p).to(x) / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class FixedScale(ConnectionPart):
    """αF, with α rising linearly over the first ``warmup`` steps: step t uses α·min(1, (t + 1)/warmup)."""

    def __init__(self, alpha: float, warmup: int = 0) -> None:
        super().__init__()
        self.alpha = alpha
        self.warmup = warmup
        self.now = alpha

    def begin_step(self, seed: int, step: int) -> None:
        self.now = self.alpha * (min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0)

    def forward(self, f: torch.Tensor) -> torch.Tensor:
        return self.now * f

    def value(self) -> torch.Tensor:
        """α as it stands."""
        return torch.tensor(self.now)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:g}, warmup={self.warmup}"


class LearnedScale(ConnectionPart):
    """αF with a learned α: a scalar (SkipInit, ReZero: from 0), or one per channel (LayerScale)."""

    def __init__(self, start: float, shape: tuple[int, ...]) -> None:
        """
        Args:
            start: initial value of every element.
            shape: () for a scalar, (C,) or (C, 1, 1) per channel.
        """
        super().__init__()
        self.start = start
        self.alpha = nn.Parameter(torch.empty(shape))

    def forward(self, f: torch.Tensor) -> torch.Tensor:
        return self.alpha * f

    def value(self) -> torch.Tensor:
        """α, or the mean |α| over channels."""
        return self.alpha.detach() if self.alpha.dim() == 0 else self.alpha.detach().abs().mean()

    def extra_repr(self) -> str:
        return f"start={self.start:g}, shape={tuple(self.alpha.shape)}"


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


class StochasticDepth(ConnectionPart):
    """Drops the branch in training with chance 1 − p (Huang 2016, arXiv 1603.09382); evaluation is deterministic.

    Scaling ``train``: kept branches are F/p and evaluation uses F; ``eval``: kept ones are F and evaluation uses pF.
    Either way E[training] = evaluation for a branch that is given. The mask is a function of (seed, step, block).
    """

    def __init__(self, survival: float, unit: DropUnit, scaling: DropScaling, index: int) -> None:
        super().__init__()
        self.survival = survival
        self.unit = unit
        self.scaling = scaling
        self.index = index
        self._name: tuple[int, int] = (0, 0)
        self.kept_N: torch.Tensor | None = None

    def begin_step(self, seed: int, step: int) -> None:
        self._name = (seed, step)

    def forward(self, f: torch.Tensor) -> torch.Tensor:
        in_training = self.scaling is DropScaling.train
        if not self.training:
            return f if in_training else self.survival * f
        seed, step = self._name
        size = len(f) if self.unit is DropUnit.sample else 1
        draws = torch.rand(size, generator=generator(seed, "drop", step, self.index))
        kept = (draws < self.survival).to(f)
        self.kept_N = kept.expand(len(f))
        factor = kept / self.survival if in_training else kept
        return f * factor.view(-1, *([1] * (f.dim() - 1)))

    def extra_repr(self) -> str:
        return f"survival={self.survival:g}, unit={self.unit}, scaling={self.scaling}"


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


class PreScale(ConnectionPart):
    """The input of the branch, after its norm, times a constant (LayerNorm scaling: 1/√l)."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x

    def extra_repr(self) -> str:
        return f"factor={self.factor:g}"


class FixupBias(ConnectionPart):
    """x + b with a scalar b from 0 (Fixup, arXiv 1901.09321): before each layer and each activation of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias


class FixupScale(ConnectionPart):
    """αF + b with learned scalars, α from 1 and b from 0: the end of a Fixup branch."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 1.0
        self.alpha = nn.Parameter(torch.empty(()))
        self.bias = nn.Parameter(torch.empty(()))

    def forward(self, f: torch.Tensor) -> torch.Tensor:
        return self.alpha * f + self.bias

    def value(self) -> torch.Tensor:
        """α."""
        return self.alpha.detach()


def cait_start(layers: int) -> float:
    """LayerScale's initial value by depth in layers (CaiT, arXiv 2103.17239)."""
    return 0.1 if layers <= 18 else 1e-5 if layers <= 24 else 1e-6


def survival_of(index: int, branches: int, last: float, linear: bool) -> float:
    """Chance that branch ``index`` (from 0) of ``branches`` is kept: constant, or 1 − l/L·(1 − last), l = index + 1."""
    return 1 - (index + 1) / branches * (1 - last) if linear else last


DEPTH_RULES: dict[str, Callable[[int], float]] = {
    # L counts branches joined to the trunk; a Transformer layer has two, so N layers are L/2 (DeepNorm: 2N = L).
    "deepnorm_alpha": lambda branches: branches**0.25,
    "deepnorm_beta": lambda branches: (4 * branches) ** -0.25,
    "depth_mup": lambda branches: 1 / math.sqrt(branches),
}
