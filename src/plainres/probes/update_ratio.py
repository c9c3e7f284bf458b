"""weight_norm = ‖W(t)‖ and update_ratio = ‖W(t+1) − W(t)‖ / ‖W(t)‖ of each parameter.

Measured around optimizer.step(), so momentum, weight decay, clipping and adaptivity are inside; stored under t.
Null when ‖W(t)‖ = 0. Also weight_grad_product = weight_norm · grad_norm for weight matrices: in a net with
norm layers gradients scale as 1/‖W‖, and the product does not.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from plainres.flat import FlatParameters
from plainres.probes.grad_norm import Positions
from plainres.probes.parameters import ParameterScopes
from plainres.probes.readings import Readings

NO_WEIGHT = "‖W(t)‖ = 0"


def put_update_ratios(
    readings: Readings,
    positions: Positions,
    weights: npt.NDArray[np.float32],
    updates: npt.NDArray[np.float32],
    missing: Sequence[str],
) -> None:
    """weight_norm, update_ratio and weight_grad_product from ‖W(t)‖ and ‖W(t+1) − W(t)‖ of all parameters.

    An update that is NaN is null as ``missing`` says; grad_norm has to be in the readings.
    """
    ratios = np.divide(updates, weights, out=np.full_like(weights, np.nan), where=weights > 0)
    reasons = [NO_WEIGHT if weights[i] == 0 else missing[i] for i in range(len(weights))]
    for scope, where in positions.items():
        readings.put(scope, "weight_norm", weights[where])
        readings.put(scope, "update_ratio", ratios[where], missing=[reasons[i] for i in where])
    if "layer" in positions:
        layer = weights[positions["layer"]]
        grads = np.asarray(readings.values["layer"]["grad_norm"], dtype=np.float32)  # a null becomes NaN
        why = readings.reasons.get("layer", {}).get("grad_norm", {})
        no_product = [why.get(str(i), "weight_norm or grad_norm overflowed float32") for i in range(len(layer))]
        readings.put("layer", "weight_grad_product", layer * grads, missing=no_product)


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

    def collect(self) -> list[torch.Tensor]:
        return [self._weight_norms, self._update_norms]

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        weights, updates = values
        put_update_ratios(readings, self._scopes.positions, weights, updates, ["not a number"] * len(weights))
