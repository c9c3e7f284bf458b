"""What a connection does in a probed step, block by block. Only metrics that the network has are written.

    gate_mean         mean of g(x) over batch and units
    scale_value       α as it stands; the mean |α| for one per channel
    kept_fraction     share of samples whose branch was kept (stochastic depth)
    attention_entropy mean entropy of the attention weights in nats, ln T when uniform; attention branches only

α is read before the update of the step that it is stored under.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from plainres.models.block import Block
from plainres.models.branches import Attention
from plainres.models.scales import FixedScale, FixupScale, LearnedScale, StochasticDepth
from plainres.probes.readings import Readings

SCALES = (FixedScale, LearnedScale, FixupScale)
NONE_HERE = "this block has none"


class ConnectionValues:
    """Hooks on the gates; everything else is read from the parts."""

    def __init__(self, blocks: list[Block], device: torch.device) -> None:
        self._blocks = blocks
        self._device = device
        # Sorted once: torch looks up a block's parts slowly.
        self._gated = {b.index: b.gate for b in blocks if b.gate is not None}
        self._scaled = {b.index: b.scale for b in blocks if isinstance(b.scale, SCALES)}
        self._dropped = {b.index: b.drop for b in blocks if isinstance(b.drop, StochasticDepth)}
        self._attending = {b.index: b.branch for b in blocks if isinstance(b.branch, Attention)}
        self._gates: dict[int, torch.Tensor] = {}
        self._scales: dict[int, torch.Tensor] = {}
        self._kept: dict[int, torch.Tensor] = {}
        self._members: dict[str, list[int]] = {}  # metric -> indices of the blocks that have it, at every step alike
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def arm(self) -> None:
        self._gates = {}
        self._scales = {i: self._alpha(scale) for i, scale in self._scaled.items()}
        self._handles = [gate.register_forward_hook(self._keep(i)) for i, gate in self._gated.items()]
        for attention in self._attending.values():
            attention.watch = True

    def _alpha(self, scale: FixedScale | LearnedScale | FixupScale) -> torch.Tensor:
        """α as it stands, on the device: a constant is filled in there, for nothing may come from the host."""
        if isinstance(scale, FixedScale):
            return torch.full((), scale.now, device=self._device)
        return scale.value().clone()

    def disarm(self) -> None:
        # Now, and not when it is read, which on a GPU is steps later: the next step draws other masks.
        self._kept = {i: d.kept_N.float().mean() for i, d in self._dropped.items() if d.kept_N is not None}
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for attention in self._attending.values():
            attention.watch = False

    def _keep(self, index: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
        def hook(module: nn.Module, args: tuple[torch.Tensor, ...], g: torch.Tensor) -> None:
            self._gates[index] = g.detach().float().mean()

        return hook

    def collect(self) -> list[torch.Tensor]:
        entropies = {i: a.entropy for i, a in self._attending.items() if a.entropy is not None}
        found = {
            "gate_mean": self._gates,
            "scale_value": self._scales,
            "kept_fraction": self._kept,
            "attention_entropy": entropies,
        }
        self._members = {metric: list(values) for metric, values in found.items() if values}
        return [torch.stack(list(found[metric].values())) for metric in self._members]

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        for (metric, members), found in zip(self._members.items(), values, strict=True):
            numbers = dict(zip(members, found, strict=True))
            readings.put("block", metric, [numbers.get(b.index, math.nan) for b in self._blocks], NONE_HERE)
