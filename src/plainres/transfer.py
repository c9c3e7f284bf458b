"""Tensors on their way between the host and a GPU, without one waiting for the other."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(tensor: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """The tensor on a device; to a GPU from pinned memory, in the order of the stream, so that the host goes on."""
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class LateScalar:
    """A number of the device that is asked for now and then: on a GPU the answer is that of an earlier question."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")
        self._kept = torch.zeros((), pin_memory=self._on_gpu)
        self._copied: torch.cuda.Event | None = None

    def ask(self, value: torch.Tensor) -> float | None:
        """``value`` itself on a CPU. On a GPU, what was asked for last, if it has arrived, else None."""
        if not self._on_gpu:
            return value.item()
        if self._copied is not None and not self._copied.query():
            return None
        known = None if self._copied is None else self._kept.item()
        self._kept.copy_(value, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record(torch.cuda.current_stream(value.device))
        return known


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All their numbers one after the other, float32, in memory of their own."""
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


class Arriving:
    """Numbers of the device on their way to the host: from a GPU into pinned memory, behind what is queued already."""

    def __init__(self, packed: torch.Tensor) -> None:
        """
        Args:
            packed: (n,) float32. On a GPU it may be overwritten by what is queued after this.
        """
        self._host = packed
        self._copied: torch.cuda.Event | None = None
        if packed.is_cuda:
            self._host = torch.empty(packed.shape, pin_memory=True)
            self._host.copy_(packed, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(packed.device))

    def array(self) -> npt.NDArray[np.float32]:
        """All of them, once they are there."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host.numpy()


@cache
def index_on(numbers: tuple[Any, ...], device: torch.device) -> torch.Tensor:
    """Whole numbers (nested tuples) on a device: brought there once and kept, because graphs record their use."""
    return to_device(torch.tensor(numbers), device)
