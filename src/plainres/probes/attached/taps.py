"""Hooks on the places of a model during a measured step, and the check that each was passed as it should be."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from plainres.errors import UserError
from plainres.probes.attached.sites import Place

Listener = Callable[[torch.Tensor], None]


class Taps:
    """Hands the tensor at every place to those that listen there.

    Calls during the backward pass are those of activation checkpointing, which repeats a forward pass: left out.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._listeners: dict[str, dict[Place, list[Listener]]] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._calls: dict[tuple[str, bool], int] = {}
        self._seen: set[Place] = set()
        self._repeated: set[Place] = set()

    def listen(self, place: Place, listener: Listener) -> None:
        """Call ``listener`` with the tensor at a place, in every pass of a measured step."""
        self._listeners.setdefault(place.path, {}).setdefault(place, []).append(listener)

    def arm(self) -> None:
        """Put the hooks on."""
        self._seen, self._repeated = set(), set()
        self._calls = {}
        self._handles = [self._model.register_forward_pre_hook(self._begin_pass)]
        for path, places in self._listeners.items():
            module = self._model.get_submodule(path)
            if any(place.received for place in places):
                hook = module.register_forward_pre_hook(self._on_input(path), with_kwargs=True)
                self._handles.append(hook)
            if not all(place.received for place in places):
                self._handles.append(module.register_forward_hook(self._on_output(path)))

    def disarm(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def check(self, labels: dict[Place, str]) -> None:
        """
        Args:
            labels: for every place, the site that it belongs to.

        Raises:
            UserError: a place was never passed, or more than once in one forward pass.
        """
        for place, label in labels.items():
            if place in self._repeated:
                raise UserError(
                    f"site {label}: {place.path!r} was called more than once in one pass of the model; say which call "
                    f"is meant, as in {place.path}#0 (with micro-batches, call the attached model itself for each)"
                )
            if place not in self._seen:
                raise UserError(
                    f"site {label}: '{place}' was never passed in the measured step; call the model inside measure(), "
                    "and give paths of modules that its forward pass calls (a fused or exported model calls none)"
                )

    def _begin_pass(self, model: nn.Module, args: Any) -> None:
        if not _in_backward():
            self._calls = {}

    def _on_input(self, path: str) -> Callable[[nn.Module, Any, dict[str, Any]], None]:
        def hook(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            self._pass(path, True, [*args, *kwargs.values()])

        return hook

    def _on_output(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self._pass(path, False, output if isinstance(output, (tuple, list)) else [output])

        return hook

    def _pass(self, path: str, received: bool, values: Any) -> None:
        if _in_backward():
            return
        call = self._calls.get((path, received), 0)
        self._calls[path, received] = call + 1
        for place, listeners in self._listeners[path].items():
            if place.received is not received or (place.call is not None and place.call != call):
                continue
            if place.call is None and call > 0:
                self._repeated.add(place)
                continue
            tensor = next((v for v in values if isinstance(v, torch.Tensor)), None)
            if tensor is None or tensor.dim() < 2:
                raise UserError(
                    f"'{place}' is no tensor with examples first and their values after; give another place"
                )
            self._seen.add(place)
            for listener in listeners:
                listener(tensor)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
