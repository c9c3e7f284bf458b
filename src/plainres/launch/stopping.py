"""Asking a run to stop at its next step: Ctrl-C and SIGTERM, in this process or handed to workers."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Set by the first signal; a second one is raised as KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within, SIGINT and SIGTERM ask to stop instead of ending the process."""
    request = StopRequest()
    before = {number: signal.signal(number, request.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
