"""grad_norm and grad_rms of every parameter, and grad_norm_total over all of them (scope ``run``).

‖∂L/∂W‖ of the loss as the loop wrote it, divided by a gradient scaler's factor. It is read when autograd has added
the last gradient to ``p.grad``: after accumulation and before anything that follows the backward pass, clipping
included.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from plainres.probes.attached.parameters import ParameterList
from plainres.probes.grad_norm import put_grad_norms
from plainres.probes.readings import Readings

NO_GRADIENT = "no gradient reached it in the measured step"
FROZEN = "frozen: requires_grad is False"


class ParameterGradients:
    """A post-accumulate hook on every parameter that takes a gradient."""

    def __init__(self, parameters: ParameterList) -> None:
        self._parameters = parameters
        self._norms: dict[int, torch.Tensor] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._scale = 1.0

    def arm(self, scale: float) -> None:
        """
        Args:
            scale: the gradient scaler's factor in this step.
        """
        self._scale = scale
        self._norms = {}
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._keep(i))
            for i, parameter in enumerate(self._parameters.tensors)
            if parameter.requires_grad
        ]

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _keep(self, index: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            grad = parameter.grad
            assert grad is not None
            values = grad.coalesce().values() if grad.is_sparse else grad
            self._norms[index] = torch.linalg.vector_norm(values, dtype=torch.float32)

        return hook

    def read(self, readings: Readings) -> None:
        count = len(self._parameters.tensors)
        norms = np.full(count, np.nan, np.float32)
        if self._norms:
            norms[list(self._norms)] = torch.stack(list(self._norms.values())).cpu().numpy() / self._scale
        missing = [NO_GRADIENT if p.requires_grad else FROZEN for p in self._parameters.tensors]
        put_grad_norms(readings, self._parameters.positions, norms, self._parameters.numel, missing)
        total = math.hypot(*norms[~np.isnan(norms)].tolist()) if self._norms else math.nan
        readings.put("run", "grad_norm_total", [total], NO_GRADIENT)
