"""Extreme singular values of Jacobians: of each block, of its sum before post, and of the whole trunk.

    jacobian_top, _bottom       block: of ∂y/∂x, its output by its input
    jacobian_sum_top, _bottom   block: of ∂(h + F̃)/∂x, what stands before post: I + J_F with an identity shortcut, J_F
                                in the plain arm; the same as ∂y/∂x where the placement has no post
    end_to_end_top, _bottom     trunk: of the last block's output by the first one's input
    …_top_residual, …_bottom_residual   how near the iterations have come, only where nothing is exact (spectrum.py)

Each is the mean over the first ``count`` examples of the probed step's batch, with the weights before its update. The
Jacobian is of one example by itself. Batch norm couples examples, so its statistics are held fixed: at those of the
probed batch, taken in a forward pass of our own in evaluation mode (no dropout, no dropped branch) with batch
statistics. Running statistics would not do: at step 0 they are 0 and 1. No weight, buffer, gradient or generator moves.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from plainres.evaluate import evaluation_mode
from plainres.models.block import Block
from plainres.models.networks import Network
from plainres.probes.readings import Readings
from plainres.probes.spectrum import Extremes, extremes
from plainres.probes.statistics import fixed_statistics, norm_statistics
from plainres.transfer import to_device

TRUNK = "trunk"
WHOLE, SUM, END_TO_END = "jacobian", "jacobian_sum", "end_to_end"
NOT_FINITE = "a derivative is not finite"
PARTS = ("top", "bottom", "top_residual", "bottom_residual")


class JacobianSpectra:
    """Keeps the images of a probed step, and works on them once its gradients have been taken."""

    def __init__(self, network: Network, count: int) -> None:
        """
        Args:
            network: of the run.
            count: examples of the batch.
        """
        self._network = network
        self._blocks = [block for block in network.blocks if isinstance(block, Block)]
        self._count = count
        self._images: torch.Tensor | None = None
        self._handle: torch.utils.hooks.RemovableHandle | None = None
        self._found: dict[tuple[str, str], list[Extremes]] = {}
        self._kinds: list[tuple[str, str]] = []

    def arm(self) -> None:
        def keep(network: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            self._images = args[0].detach()

        self._handle = self._network.register_forward_pre_hook(keep)

    def after_backward(self) -> None:
        """Raises: RuntimeError when no batch was seen."""
        if self._handle is None or self._images is None:
            raise RuntimeError("the Jacobian probe saw no batch in a probed step")
        self._handle.remove()
        images, self._images, self._handle = self._images, None, None
        self._device = images.device
        inputs: list[torch.Tensor] = []

        def keep(block: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            inputs.append(args[0][: self._count])

        handles = [block.register_forward_pre_hook(keep) for block in self._blocks]
        with evaluation_mode(self._network):
            try:
                statistics = norm_statistics(self._network, images)
            finally:
                for handle in handles:
                    handle.remove()
            with fixed_statistics(statistics):
                self._found = self._measure(inputs)

    def _measure(self, inputs: list[torch.Tensor]) -> dict[tuple[str, str], list[Extremes]]:
        whole = [extremes(block, x) for block, x in zip(self._blocks, inputs, strict=True)]
        sums = [
            same if block.post is None else _of_sum(block, x)
            for block, x, same in zip(self._blocks, inputs, whole, strict=True)
        ]
        trunk = [extremes(nn.Sequential(*self._blocks), inputs[0])]
        return {("block", WHOLE): whole, ("block", SUM): sums, (TRUNK, END_TO_END): trunk}

    def collect(self) -> list[torch.Tensor]:
        """For each kind of Jacobian (PARTS, blocks): means over the examples."""
        found, self._found = self._found, {}
        self._kinds = list(found)
        tables = [
            torch.stack([torch.stack([getattr(member, part).mean() for member in members]) for part in PARTS])
            for members in found.values()
        ]
        return [to_device(table, self._device) for table in tables]  # to where everything else is: they are the host's

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        for (scope, name), parts in zip(self._kinds, values, strict=True):
            for part, numbers in zip(PARTS, parts, strict=True):
                if not part.endswith("residual") or (numbers > 0).any():
                    readings.put(scope, f"{name}_{part}", numbers, NOT_FINITE)


def _of_sum(block: Block, x: torch.Tensor) -> Extremes:
    """Of the block as far as its sum."""
    post, block.post = block.post, None
    try:
        return extremes(block, x)
    finally:
        block.post = post
