"""A GPU for every job: a slot on a device is a locked file, which the kernel frees when its process dies.

The files lie in one folder a user, so that two sweeps on one machine share its devices.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from plainres.errors import Interrupted

POLL_SECONDS = 0.2


def slots_folder() -> Path:
    """Where the slots of this user's processes on this machine are."""
    return Path(tempfile.gettempdir()) / f"plainres-gpus-{os.getuid()}"


def visible_gpus(device: str, count: int) -> dict[str, str]:
    """The devices that a run may take, as torch calls them, each with the machine's own name.

    Args:
        device: ``trainer.device``: ``cuda:N`` is that one, ``cuda`` and ``auto`` are all, ``cpu`` none.
        count: of visible CUDA devices.
    """
    if device == "cpu":
        return {}
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in given.split(",")] if given else [str(i) for i in range(count)]
    found = {f"cuda:{i}": names[i] for i in range(count)}
    return {device: found[device]} if device in found else found


@contextmanager
def lease(gpus: Mapping[str, str], jobs_per_gpu: int, folder: Path, should_stop: Callable[[], bool]) -> Iterator[str]:
    """Hold a slot on the least used device; wait while all are taken.

    Args:
        gpus: as ``visible_gpus`` gives them.
        jobs_per_gpu: slots a device.
        folder: of the lock files.
        should_stop: asked while waiting.

    Yields:
        the device, as torch calls it.

    Raises:
        Interrupted: it was asked to stop before there was a slot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Slot 0 of every device before slot 1 of any: no device has two jobs while another has none.
    slots = [(device, f"{name}.{slot}.lock") for slot in range(jobs_per_gpu) for device, name in gpus.items()]
    while True:
        for device, name in slots:
            lock = FileLock(folder / name)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                yield device
            finally:
                lock.release()
            return
        if should_stop():
            raise Interrupted
        time.sleep(POLL_SECONDS)
