"""A process that draws figures: a line of JSON in for each, a line out. See ``drawing.py``."""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from plainres.figures.drawing import draw_one


def main() -> None:
    """Draw until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # for the process that asks: with it the input ends
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(task: dict[str, str]) -> dict[str, Any]:
    """Draw one figure and say what became of it."""
    try:
        nothing = draw_one(task["kind"], task["csv"].encode(), Path(task["folder"]), task["name"], task["style"])
    except OSError as error:
        return {"errno": error.errno, "text": error.strerror or str(error)}
    except Exception:
        return {"trace": traceback.format_exc()}
    return {"nothing": nothing}


if __name__ == "__main__":
    main()
