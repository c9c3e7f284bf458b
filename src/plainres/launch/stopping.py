"""Asking a run to stop at its next step: Ctrl-C, SIGTERM and a cluster's signals, here or handed to workers."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

RETRY_SECONDS = 0.05
IMPORTER = "<frozen importlib._bootstrap>"


class StopRequest:
    """Set by the first signal. A second one is raised as KeyboardInterrupt at once, unless it is patient.

    Attributes:
        received: the signals so far.
    """

    def __init__(self, patient: bool = False) -> None:
        """
        Args:
            patient: for a cluster, which may send several: none of them is a user who has lost patience.
        """
        self.received: set[int] = set()
        self._patient = patient

    def __call__(self) -> bool:
        return bool(self.received)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received and not self._patient:
            raise KeyboardInterrupt
        self.received.add(number)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Within, SIGTERM ends the process as Ctrl-C does: by a KeyboardInterrupt, which cleans up and exits with 130.

    Neither comes in the middle of an import: a library that is half imported fails later in words of its own.
    """
    outside = sys._getframe(2)  # of whoever is within; 1 is contextlib's

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _importing(frame, outside):
            again = threading.Timer(RETRY_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job hears no Ctrl-C
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _importing(frame: FrameType | None, outside: FrameType) -> bool:
    """Whether what is interrupted is an import that began within."""
    while frame is not None and frame is not outside:
        if frame.f_code.co_filename == IMPORTER:
            return True
        frame = frame.f_back
    return False


@contextmanager
def stop_on_signals(
    numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM), patient: bool = False
) -> Iterator[StopRequest]:
    """Within, these signals ask to stop instead of ending the process."""
    request = StopRequest(patient)
    before = {number: signal.signal(number, request.on_signal) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
