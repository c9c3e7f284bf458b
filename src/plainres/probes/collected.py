"""What a probed step gave, on its way from the device to its row.

Everything is computed within its step, into one piece of memory on the device. On a GPU that is copied into pinned
memory behind the kernels that are queued already, and nobody waits for it until its row is written, steps later.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from plainres.probes.own import OwnProbe, add_own, read_own
from plainres.probes.readings import Readings
from plainres.transfer import Arriving, pack

Array = npt.NDArray[np.float32]


class Quantity(Protocol):
    """One file's metrics: numbers of the device first, then a part of the row."""

    def collect(self) -> list[torch.Tensor]:
        """What the step gave, as many tensors of the same shapes at every step. Never waits for the device."""

    def put(self, readings: Readings, values: list[Array]) -> None:
        """The metrics from what ``collect`` gave, on the host."""


class Collected:
    """One probed step, on the device; and every later one, where a CUDA graph has recorded it."""

    def __init__(
        self,
        quantities: Sequence[Quantity],
        own: Sequence[OwnProbe],
        layout: Mapping[str, Sequence[str]],
        more: Sequence[torch.Tensor] = (),
    ) -> None:
        """
        Args:
            quantities: that have seen the step.
            own: users' probes, which are read now.
            layout: scope -> names of its members.
            more: scalars of the step that are wanted with its row.

        Raises:
            RuntimeError: a layer or block was never seen.
            UserError: a user's probe gave what cannot be kept.
        """
        self.quantities = list(quantities)
        self.own = [(type(probe).__name__, read_own(probe, layout)) for probe in own]
        groups = [quantity.collect() for quantity in self.quantities]
        self.counts = [len(group) for group in groups]
        tensors = [*(tensor for group in groups for tensor in group), *more]
        self.shapes = [tensor.shape for tensor in tensors]
        self._packed = pack(tensors)

    def sent(self) -> "Sent":
        """What it holds now, on its way to the host."""
        return Sent(self, Arriving(self._packed))


class Sent:
    """The numbers of one probed step."""

    def __init__(self, collected: Collected, arriving: Arriving) -> None:
        self._of = collected
        self._arriving = arriving

    def _values(self) -> list[Array]:
        whole, values, start = self._arriving.array(), [], 0
        for shape in self._of.shapes:
            values.append(whole[start : start + shape.numel()].reshape(shape))
            start += shape.numel()
        return values

    def more(self) -> list[float]:
        """The scalars that were given; waits until they have arrived, as ``row`` does."""
        return [float(value) for value in self._values()[sum(self._of.counts) :]]

    def row(self, step: int) -> dict[str, Any]:
        """The step's line of layers.jsonl.

        Raises:
            UserError: a user's metric has the name of one of ours.
        """
        values = iter(self._values())
        readings = Readings()
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes a null with its reason
            for quantity, count in zip(self._of.quantities, self._of.counts, strict=True):
                quantity.put(readings, [next(values) for _ in range(count)])
        for name, found in self._of.own:
            add_own(readings, name, found)
        return readings.row(step)
