"""Seeing that a run has diverged, and naming the first layer that is not finite.

A run diverges in the step whose loss or gradient is not finite; the weights stay those of before that step. On a
CPU the check costs nothing and is made at once. On a GPU it would stall the device at every step, so a flag on
the device freezes the updates instead (torch's fused optimizers obey ``found_inf``) and is read at flushes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from plainres.flat import FlatParameters


@dataclass(frozen=True)
class Divergence:
    """Where a run stopped being finite.

    Attributes:
        step: 0-based step whose loss or gradient is not finite; that many updates were made.
        where: ``forward``, ``loss`` or ``backward``; ``evaluation`` when only that of the final weights shows it.
        layer: first module (forward order) or parameter (backward order) that is not finite.
    """

    step: int
    where: str
    layer: str


class ImmediateGuard:
    """For a CPU: every step is checked before its update."""

    def check(self, step: int, loss: torch.Tensor, grad_norm: torch.Tensor) -> int | None:
        """The step in which training diverged, or None."""
        return None if math.isfinite(loss.item()) and math.isfinite(grad_norm.item()) else step

    def frozen(self, loss: torch.Tensor) -> torch.Tensor:
        """Whether updates are not made any more, 0 or 1, on the device of a loss."""
        return torch.zeros_like(loss)

    def flush(self) -> int | None:
        return None


class DeferredGuard:
    """For a GPU: a device-side flag freezes all updates from the first bad step on; ``flush`` reads it."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: str) -> None:
        """
        Args:
            optimizer: built with ``fused=True``.
            device: where the flag lives.
        """
        self._frozen = torch.zeros((), dtype=torch.float32, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int64, device=device)
        self._first = 0
        optimizer.found_inf = self._frozen  # type: ignore[attr-defined]  # read by fused steps

    def check(self, step: int, loss: torch.Tensor, grad_norm: torch.Tensor) -> int | None:
        bad = ~(torch.isfinite(loss.detach()) & torch.isfinite(grad_norm))
        self._frozen.copy_(torch.maximum(self._frozen, bad.float()))
        self._good_steps += (self._frozen == 0).long()
        return None

    def frozen(self, loss: torch.Tensor) -> torch.Tensor:
        """Whether updates are not made any more, 0 or 1, on the device: as it is now."""
        return self._frozen.clone()

    def start(self, step: int) -> None:
        """Count from this step on (a resumed run)."""
        self._first = step

    def flush(self) -> int | None:
        """Wait for the device; the step in which training diverged, or None."""
        return self._first + cast(int, self._good_steps.item()) if self._frozen.item() else None


def name_first_non_finite(
    network: nn.Module, flat: FlatParameters, parts: Iterable[tuple[torch.Tensor, torch.Tensor]], step: int
) -> Divergence:
    """Replay a step once, forward then backward, and name what is not finite first. Norm statistics move.

    Args:
        network, flat: of the run.
        parts: images and labels of the step's batch, as they passed: all at once, or micro-batch by micro-batch.
        step: where it diverged.
    """
    seen: list[str] = []
    handles = [
        module.register_forward_hook(lambda m, a, out, name=name: _note(seen, name, out))
        for name, module in network.named_modules()
        if not list(module.children()) and name
    ]
    flat.zero_grad()
    try:
        for x_NCHW, y_N in parts:
            loss = F.cross_entropy(network(x_NCHW).float(), y_N)
            if seen:
                return Divergence(step, "forward", seen[0])
            if not torch.isfinite(loss):
                return Divergence(step, "loss", "loss")
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    for name, parameter in reversed(list(network.named_parameters())):
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return Divergence(step, "backward", name)
    # Each part is finite, but the squares in the global norm overflow float32.
    return Divergence(step, "backward", "global gradient norm (overflow)")


def first_non_finite_value(network: nn.Module) -> str:
    """The first parameter or norm statistic, in forward order, that is not finite."""
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if not torch.isfinite(tensor).all():
            return name
    return "output in evaluation mode"


def _note(seen: list[str], name: str, output: torch.Tensor) -> None:
    if not torch.isfinite(output).all():
        seen.append(name)
