"""All parameters of a run as views into one buffer, their gradients into a second.

Deep narrow networks have hundreds of small tensors, and touching each one alone is what makes optimizers and
probes slow. On flat storage the optimizer steps on a few large tensors, a snapshot is one copy, an update one
subtraction, and the norms of all parameters are one segmented reduction.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from plainres.options import DecayRule


@dataclass(frozen=True)
class Region:
    """A contiguous part of the buffers that one optimizer setting acts on."""

    start: int
    stop: int
    decayed: bool
    lr_factor: float


class FlatParameters:
    """Moves a network's parameters and gradients into two flat float32 buffers.

    Attributes:
        data: (num_parameters,) the parameters; each ``p.data`` is a view into it.
        grad: (num_parameters,) the gradients; each ``p.grad`` is a view into it, so gradients must be zeroed
            with ``zero_grad`` here and never set to None.
        names: parameter names in the order of the buffer.
        regions: the parts with and without weight decay, and with each factor on the learning rate.
    """

    def __init__(
        self,
        network: nn.Module,
        decay: DecayRule,
        undecayed: frozenset[str] = frozenset(),
        lr_factor: Callable[[str], float] = lambda name: 1.0,
    ) -> None:
        """
        Args:
            network: with parameters of one dtype and device.
            decay: ``all`` decays every parameter as He 2015 does, ``matrices`` those of two dimensions or more.
            undecayed: names that are never decayed (scales and gates of a connection).
            lr_factor: the factor on the learning rate that a connection declares for a parameter.
        """
        kinds = {
            name: ((decay is DecayRule.all or p.dim() > 1) and name not in undecayed, lr_factor(name))
            for name, p in network.named_parameters()
        }
        order = sorted(set(kinds.values()), reverse=True)
        ordered = [item for kind in order for item in network.named_parameters() if kinds[item[0]] == kind]
        self.names = [name for name, _ in ordered]
        sizes = [p.numel() for _, p in ordered]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = ordered[0][1]
        self.data = torch.empty(int(offsets[-1]), dtype=first.dtype, device=first.device)
        self.grad = torch.zeros_like(self.data)
        for (_, p), start, size in zip(ordered, offsets, sizes, strict=False):
            span = slice(int(start), int(start) + size)
            self.data[span] = p.detach().reshape(-1)
            p.data = self.data[span].view(p.shape)
            p.grad = self.grad[span].view(p.shape)
        self.regions = []
        for kind in order:
            inside = [i for i, name in enumerate(self.names) if kinds[name] == kind]
            self.regions.append(Region(int(offsets[inside[0]]), int(offsets[inside[-1] + 1]), *kind))
        self.numel = np.asarray(sizes, dtype=np.int64)
        self._starts = offsets[:-1]
        self._lengths = torch.as_tensor(self.numel, device=self.data.device)

    def zero_grad(self) -> None:
        self.grad.zero_()

    def norms(self, buffer: torch.Tensor) -> torch.Tensor:
        """L2 norm of each parameter's part of a buffer like ``data``, in the order of ``names``.

        Returns:
            (num_tensors,) float32, on the buffer's device.
        """
        squares = buffer * buffer
        if buffer.device.type == "cpu":
            # numpy's reduceat is about 6 times as fast as torch's segment_reduce on a CPU (DESIGN.md).
            with np.errstate(over="ignore", invalid="ignore"):  # torch's sums do not warn either
                return torch.from_numpy(np.sqrt(np.add.reduceat(squares.numpy(), self._starts)))
        # unsafe: the lengths are ours, and checking them waits for the device
        return torch.segment_reduce(squares, "sum", lengths=self._lengths, unsafe=True).sqrt()
