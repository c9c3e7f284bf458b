"""grad_norm and grad_rms of every parameter, and grad_norm_total over all of them (scope ``run``).

‖∂L/∂W‖ of the loss as the loop wrote it, divided by a gradient scaler's factor. It is read when autograd has added
the last gradient to ``p.grad``: after accumulation and before anything that follows the backward pass, clipping
included. Gradients that come out of a scaler which nobody told are noticed at the optimizer's step, and refused.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from plainres.errors import UserError
from plainres.probes.attached.parameters import ParameterList
from plainres.probes.grad_norm import put_grad_norms
from plainres.probes.readings import Readings

NO_GRADIENT = "no gradient reached it in the measured step"
FROZEN = "frozen: requires_grad is False"
# A scaler's factor is a power of two, 65,536 at first. Clipping hits one only by chance; a loop that divides by its
# number of micro-batches stays below this one.
LEAST_SCALE = 256


class ParameterGradients:
    """A post-accumulate hook on every parameter that takes a gradient."""

    def __init__(self, parameters: ParameterList) -> None:
        self._parameters = parameters
        self._norms: dict[int, torch.Tensor] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._where = {id(p): i for i, p in enumerate(parameters.tensors)}
        self._scale: float | None = None

    def arm(self, scale: float | None) -> None:
        """
        Args:
            scale: the gradient scaler's factor in this step; None without a scaler.
        """
        self._scale = scale
        self._norms = {}
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._keep(i))
            for i, parameter in enumerate(self._parameters.tensors)
            if parameter.requires_grad
        ]
        if scale is None:
            self._handles.append(register_optimizer_step_pre_hook(self._refuse_scaled))

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

    def _refuse_scaled(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        held = [p for p in held if self._where.get(id(p)) in self._norms and not p.grad.is_sparse]
        shrunk = 1.0
        if held:
            seen = torch.stack([self._norms[self._where[id(p)]] for p in held]).sum()
            now = torch.stack([torch.linalg.vector_norm(p.grad, dtype=torch.float32) for p in held]).sum()
            shrunk = float(seen / now)
        power = 2.0 ** round(math.log2(shrunk)) if 0 < shrunk < math.inf else 1.0
        unscaled = power >= LEAST_SCALE and abs(shrunk / power - 1) < 1e-5
        if unscaled or getattr(optimizer, "grad_scale", None) is not None:  # a fused optimizer unscales by itself
            raise UserError(
                "the gradients were scaled in the backward pass and are not in the optimizer's step; tell the probes "
                "of the gradient scaler: attach(model, scaler=scaler)"
            )

    def read(self, readings: Readings) -> None:
        count = len(self._parameters.tensors)
        norms = np.full(count, np.nan, np.float32)
        if self._norms:
            norms[list(self._norms)] = torch.stack(list(self._norms.values())).cpu().numpy() / (self._scale or 1.0)
        missing = [NO_GRADIENT if p.requires_grad else FROZEN for p in self._parameters.tensors]
        put_grad_norms(readings, self._parameters.positions, norms, self._parameters.numel, missing)
        total = math.hypot(*norms[~np.isnan(norms)].tolist()) if self._norms else math.nan
        readings.put("run", "grad_norm_total", [total], NO_GRADIENT)
