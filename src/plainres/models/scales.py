"""What multiplies, shifts or drops a path, and how such numbers depend on depth. Shape suffix: N examples."""

import math
from collections.abc import Callable

import torch
from torch import nn

from plainres.models.parts import ConnectionPart, Draw, Rows
from plainres.options import DropScaling, DropUnit
from plainres.transfer import to_device


class FixedScale(ConnectionPart):
    """A constant times what passes: α on the branch; λ on the shortcut (constant scaling of He 2016, DeepNorm's α);
    1/√l on the branch's input (LayerNorm scaling).

    With ``warmup`` it rises linearly over the first steps: step t uses α·min(1, (t + 1)/warmup).
    """

    def __init__(self, alpha: float, warmup: int = 0) -> None:
        super().__init__()
        self.alpha = alpha
        self.warmup = warmup
        self.now = alpha

    def begin_step(self, seed: int, step: int, rows: Rows | None = None) -> None:
        self.now = self.alpha * (min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.now * x

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


class FixupBias(ConnectionPart):
    """x + b with a scalar b from 0 (Fixup, arXiv 1901.09321): before each layer and each activation of a branch,
    between the stem's layer and its activation, and before the head, as in the authors' code.
    """

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
        self._draw = Draw("drop", index)
        self.kept_N: torch.Tensor | None = None

    def begin_step(self, seed: int, step: int, rows: Rows | None = None) -> None:
        self._draw.begin_step(seed, step, rows)

    def forward(self, f: torch.Tensor) -> torch.Tensor:
        in_training = self.scaling is DropScaling.train
        if not self.training:
            return f if in_training else self.survival * f
        each = self.unit is DropUnit.sample
        draws = self._draw.uniform((len(f) if each else 1,), each)
        kept = to_device((draws < self.survival).float(), f.device)
        self.kept_N = kept.expand(len(f))
        factor = kept / self.survival if in_training else kept
        # The factor is float32 also where f is not: 1/p in 8 bits would be off by up to 0.4 %.
        return (f * factor.view(-1, *([1] * (f.dim() - 1)))).to(f.dtype)

    def extra_repr(self) -> str:
        return f"survival={self.survival:g}, unit={self.unit}, scaling={self.scaling}"


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
