"""Peak memory of one run, though a warm process trains many."""

from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak(device: str) -> str | None:
    """Begin a new peak; the reason why it cannot be known, or None."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return None
    try:
        _CLEAR.write_text("5")  # the kernel's request to begin the peak of resident memory anew
    except OSError:
        return "this system cannot reset the peak of a process, and earlier runs of it would count"
    return None


def peak_mib(device: str) -> float | None:
    """Peak since ``reset_peak``: of the device's allocator, or of the process (its libraries included)."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 2**20
    lines = _STATUS.read_text().splitlines()
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return peaks[0] / 1024 if peaks else None
