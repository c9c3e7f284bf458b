"""weight_norm = ‖W(t)‖ and update_ratio = ‖W(t+1) − W(t)‖ / ‖W(t)‖ of each parameter.

Measured around optimizer.step(), so momentum, weight decay, clipping and adaptivity are inside; stored under t.
Null when ‖W(t)‖ = 0. Also weight_grad_product = weight_norm · grad_norm for weight matrices: in a net with
norm layers gradients scale as 1/‖W‖, and the product does not.
"""

import numpy as np
import torch

from plainres.flat import FlatParameters
from plainres.probes.parameters import ParameterScopes
from plainres.probes.readings import Readings


class UpdateRatio:
    """One copy before the update, one subtraction and one reduction after it, for all parameters."""

    def __init__(self, flat: FlatParameters, scopes: ParameterScopes) -> None:
        self._flat = flat
        self._scopes = scopes
        self._before = torch.empty_like(flat.data)
        self._weight_norms = flat.data.new_empty(0)
        self._update_norms = flat.data.new_empty(0)

    def before_update(self) -> None:
        self._before.copy_(self._flat.data)

    def after_update(self) -> None:
        self._weight_norms = self._flat.norms(self._before)
        self._update_norms = self._flat.norms(torch.sub(self._flat.data, self._before, out=self._before))

    def read(self, readings: Readings) -> None:
        weights, updates = torch.stack([self._weight_norms, self._update_norms]).cpu().numpy()
        nonzero = weights > 0
        ratios = np.divide(updates, weights, out=np.full_like(weights, np.nan), where=nonzero)
        for scope, positions in self._scopes.positions.items():
            readings.put(scope, "weight_norm", weights[positions])
            readings.put(scope, "update_ratio", ratios[positions], missing="‖W(t)‖ = 0")
        layer = weights[self._scopes.positions["layer"]]
        grads = np.asarray(readings.values["layer"]["grad_norm"], dtype=np.float32)  # a null becomes NaN
        readings.put(
            "layer", "weight_grad_product", layer * grads, missing="weight_norm or grad_norm overflowed float32"
        )
