"""Tensors on their way between the host and a GPU, without one waiting for the other."""

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
        self._copied.record()
        return known
