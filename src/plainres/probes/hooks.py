"""Forward hooks on many modules, put on for a step and taken off again. Registering them anew takes milliseconds."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

Hook = Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]


class ForwardHooks:
    """Prepared once; hooks of others on the same modules stay as they are."""

    def __init__(self, hooks: Sequence[tuple[nn.Module, Hook]]) -> None:
        # The numbers are torch's own, so that nobody else's hook has one of them.
        self._hooks = [(module, RemovableHandle(module._forward_hooks).id, hook) for module, hook in hooks]

    def put_on(self) -> None:
        """From now on they are called, after those that are there."""
        for module, number, hook in self._hooks:
            module._forward_hooks[number] = hook

    def take_off(self) -> None:
        """They are not called any more."""
        for module, number, _ in self._hooks:
            module._forward_hooks.pop(number, None)
