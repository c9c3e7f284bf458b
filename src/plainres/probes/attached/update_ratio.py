"""weight_norm, update_ratio and weight_grad_product of every parameter, around the optimizer's own step.

Definitions and arithmetic are those of ``plainres.probes.update_ratio``. torch calls the hooks used here around
``step`` of every optimizer, so none has to be named; one that a gradient scaler leaves out is no update.
"""

from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from plainres.errors import UserError
from plainres.probes.attached.grad_norm import FROZEN
from plainres.probes.attached.parameters import ParameterList
from plainres.probes.readings import Readings
from plainres.probes.update_ratio import put_update_ratios

NO_STEP = "no step of a torch optimizer that holds it in the measured step, or a gradient scaler left it out"


class ParameterUpdates:
    """One copy of what an optimizer is about to change, one subtraction and norm after it."""

    def __init__(self, parameters: ParameterList) -> None:
        self._parameters = parameters
        self._where = {id(p): i for i, p in enumerate(parameters.tensors)}
        self._before: dict[int, torch.Tensor] = {}
        self._norms: dict[int, torch.Tensor] = {}  # position -> (‖W(t)‖, ‖W(t+1) − W(t)‖)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def arm(self) -> None:
        self._norms = {}
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._before = {}

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        held = [self._where[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in self._where]
        twice = next((i for i in held if i in self._norms), None)
        if twice is not None:
            raise UserError(
                f"{self._parameters.names[twice]}: two optimizer steps inside one measure(); give each step its own"
            )
        self._before = {i: self._parameters.tensors[i].detach().clone() for i in held}

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        found_inf = getattr(optimizer, "found_inf", None)  # how a scaler makes a fused optimizer skip its step
        for i, before in self._before.items():
            weight_norm = _norm(before)
            update = before.sub_(self._parameters.tensors[i])  # up to its sign; the copy is ours to overwrite
            norms = torch.stack([weight_norm, _norm(update)])
            if found_inf is not None:
                norms[1] = torch.where(found_inf.to(norms.device).squeeze() > 0, torch.nan, norms[1])
            self._norms[i] = norms
        self._before = {}

    @torch.no_grad()
    def read(self, readings: Readings) -> None:
        tensors = self._parameters.tensors
        unmoved = {i: _norm(p) for i, p in enumerate(tensors) if i not in self._norms}
        nothing = {i: torch.stack([n, torch.full_like(n, torch.nan)]) for i, n in unmoved.items()}
        found = self._norms | nothing
        norms = torch.stack([found[i] for i in range(len(tensors))]).cpu().numpy()
        missing = [NO_STEP if p.requires_grad else FROZEN for p in tensors]
        put_update_ratios(readings, self._parameters.positions, np.ascontiguousarray(norms[:, 0]), norms[:, 1], missing)


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float32)
    return norm
