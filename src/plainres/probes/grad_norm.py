"""grad_norm = ‖∂L/∂W‖ of each parameter, and grad_rms = grad_norm / √numel.

L is the mean-reduced loss of the step's batch. Read after accumulation, reduction and unscaling, before
clipping, without weight decay; L2, float32. Belongs to the step whose update it is about to make.
"""

import numpy as np

from plainres.flat import FlatParameters
from plainres.probes.parameters import ParameterScopes
from plainres.probes.readings import Readings


class GradNorm:
    """Reads the flat gradient buffer: one reduction for all parameters."""

    def __init__(self, flat: FlatParameters, scopes: ParameterScopes) -> None:
        self._flat = flat
        self._scopes = scopes
        self._norms = flat.grad.new_empty(0)

    def after_backward(self) -> None:
        """Call before clipping."""
        self._norms = self._flat.norms(self._flat.grad)

    def read(self, readings: Readings) -> None:
        norms = self._norms.cpu().numpy()
        rms = norms / np.sqrt(self._flat.numel)
        for scope, positions in self._scopes.positions.items():
            readings.put(scope, "grad_norm", norms[positions])
            readings.put(scope, "grad_rms", rms[positions])
