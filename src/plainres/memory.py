"""Memory of one run, though a warm process trains many: its peak, and what the C library does with what is freed."""

import ctypes
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names of settings in glibc's malloc.h


def keep_freed() -> None:
    """Have what one step frees kept for the next; what earlier runs left goes back to the system first.

    Else glibc hands the activations of a step back to the kernel, which has to clear them page by page in the next one
    (docs/speed.md). Another C library is left as it is.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):
        return


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
