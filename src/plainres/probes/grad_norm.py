"""grad_norm = ‖∂L/∂W‖ of each parameter, and grad_rms = grad_norm / √numel.

L is the mean-reduced loss of the step's batch. Read after accumulation, reduction and unscaling, before
clipping, without weight decay; L2, float32. Belongs to the step whose update it is about to make.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from plainres.flat import FlatParameters
from plainres.probes.parameters import ParameterScopes
from plainres.probes.readings import Readings

Positions = dict[str, npt.NDArray[np.int64]]


def put_grad_norms(
    readings: Readings,
    positions: Positions,
    norms: npt.NDArray[np.float32],
    numel: npt.NDArray[np.int64],
    missing: Sequence[str],
) -> None:
    """grad_norm and grad_rms of every scope, from the norms and sizes of all parameters; NaN is null as said."""
    rms = norms / np.sqrt(numel)
    for scope, where in positions.items():
        reasons = [missing[i] for i in where]
        readings.put(scope, "grad_norm", norms[where], reasons)
        readings.put(scope, "grad_rms", rms[where], reasons)


class GradNorm:
    """Reads the flat gradient buffer: one reduction for all parameters."""

    def __init__(self, flat: FlatParameters, scopes: ParameterScopes) -> None:
        self._flat = flat
        self._scopes = scopes
        self._norms = flat.grad.new_empty(0)

    def after_backward(self) -> None:
        """Call before clipping."""
        self._norms = self._flat.norms(self._flat.grad)

    def collect(self) -> list[torch.Tensor]:
        return [self._norms]

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        (norms,) = values
        put_grad_norms(readings, self._scopes.positions, norms, self._flat.numel, ["not a number"] * len(norms))
