"""Python imports this by itself where its folder is on PYTHONPATH: a command as a user gives it meets its fault at a
chosen write.

PLAINRES_FAULT="SIGNAL WHO WHEN CALL PATTERN N": in the N-th call (of this process) of CALL on a path that PATTERN is
found in, ``before`` or ``after`` it, send SIGNAL to the ``group`` of processes or to its ``leader``. The file
PLAINRES_FAULT_ONCE says that it has been sent.
"""

import os
import pathlib
import re
import signal
from collections.abc import Callable
from typing import Any

NUMBER, WHO, WHEN, CALL, PATTERN, N = os.environ["PLAINRES_FAULT"].split(" ")
_seen = 0


def _fault() -> None:
    try:  # once: the processes that draw figures begin before the signal reaches them, and count by themselves
        os.close(os.open(os.environ["PLAINRES_FAULT_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    number = signal.Signals[NUMBER]
    if WHO == "group":
        os.killpg(0, number)
    else:
        os.kill(os.getpgrp(), number)


def _watched(call: Callable[..., Any], path_of: Callable[[Any], str]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        global _seen
        hit = re.search(PATTERN, path_of(args[0])) is not None
        _seen += hit
        now = hit and _seen == int(N)
        if now and WHEN == "before":
            _fault()
        value = call(*args, **kwargs)
        if now and WHEN == "after":
            _fault()
        return value

    return watched


if CALL == "fsync":
    os.fsync = _watched(os.fsync, lambda fd: str(pathlib.Path(f"/proc/self/fd/{fd}").readlink()))
else:
    setattr(pathlib.Path, CALL, _watched(getattr(pathlib.Path, CALL), str))
