"""A CUDA graph's stand-in on a CPU: the operations of a function are written down once and then done again, on the same
memory, without any of its Python."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default, torch.ops.aten.equal.default)


class Tape(TorchDispatchMode):
    """Writes operations down, and keeps what they changed of the tensors that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        assert func not in WAITS, f"a recorded update waits for the device: {func}"
        for tensor in _written(func, args, kwargs):
            storage = tensor.untyped_storage().data_ptr()
            if storage not in self._made and storage not in self._before:
                whole = torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
                self._before[storage] = whole, whole.clone()
        out = func(*args, **kwargs)
        if not func.is_view:
            known = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
            new = [t for t in _tensors(out) if t.untyped_storage().data_ptr() not in known]
            self._made |= {t.untyped_storage().data_ptr() for t in new}
            self.calls.append((func, args, kwargs, new))
        return out

    def undo(self) -> None:
        """As before the function: recording computes nothing."""
        for tensor, value in self._before.values():
            tensor.copy_(value)

    def replay(self) -> None:
        for func, args, kwargs, made in self.calls:
            again = func(*args, **kwargs)
            known = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
            new = [t for t in _tensors(again) if t.untyped_storage().data_ptr() not in known]
            for kept, value in zip(made, new, strict=True):
                kept.copy_(value)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += _tensors(kwargs[argument.name] if argument.name in kwargs else args[i] if i < len(args) else None)
    if func is torch.ops.aten.native_batch_norm.default:  # its schema does not say that it moves running statistics
        found += _tensors(args[3:5])
    return found


def record(body: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """As ``engine.record_graph``."""
    tape = Tape()
    with tape:
        out = body()
    with torch.no_grad():
        tape.undo()

    def replay() -> None:
        with torch.no_grad():
            tape.replay()

    return replay, out
