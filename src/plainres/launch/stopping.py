"""Asking a run to stop at its next step: Ctrl-C, SIGTERM and a cluster's signals, here or handed to workers."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


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
    """Within, SIGTERM ends the process as Ctrl-C does: by a KeyboardInterrupt, which cleans up and exits with 130."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
