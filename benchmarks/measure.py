"""How everything here is timed: loops take turns in one process, and a ratio is taken within each round.

A machine whose speed drifts, or that others use too, slows all loops of a round alike. Reported is the median over the
rounds, with the least and the greatest as spread.
"""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

Loop = Callable[[int], object]  # one step; its argument is the step's number
TURNS = 6  # of a loop within a round


@dataclass(frozen=True)
class Setup:
    """Where and how long to measure.

    Attributes:
        device: "cpu" or "cuda".
        rounds: how often the loops of a comparison take turns.
        full: also what takes many minutes (all 40 runs of the sweep, a report of 400 runs).
        share: of the steps that a round has otherwise; a test makes it small.
    """

    device: str = "cpu"
    rounds: int = 7
    full: bool = False
    share: float = 1.0

    def steps(self, usual: int) -> int:
        return max(1, round(usual * self.share))


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured, against what.
        value, unit: the median.
        spread: (least, greatest) over the rounds; None where there is one value.
        target: in words, or "" where the value is only shown.
        met: whether the median meets it; None without a target.
        note: what a reader has to know.
    """

    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    def json(self) -> dict[str, Any]:
        return asdict(self)


def row(
    name: str,
    values: Sequence[float],
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
    between: tuple[float, float] | None = None,
    note: str = "",
) -> Row:
    """The median of ``values`` beside its target."""
    value = statistics.median(values)
    spread = (min(values), max(values)) if len(values) > 1 else None
    if at_least is not None:
        return Row(name, value, unit, spread, f"≥ {at_least:g} {unit}".strip(), value >= at_least, note)
    if at_most is not None:
        return Row(name, value, unit, spread, f"≤ {at_most:g} {unit}".strip(), value <= at_most, note)
    if between is not None:
        low, high = between
        return Row(name, value, unit, spread, f"{low:g} to {high:g} {unit}".strip(), low <= value <= high, note)
    return Row(name, value, unit, spread, note=note)


def take_turns(setup: Setup, loops: dict[str, Loop], steps: int) -> dict[str, list[float]]:
    """Seconds a step of each loop, one value a round; every loop is warmed up first.

    Within a round loops take several short turns, their order turned round each time: what slows the machine for a
    second slows all of them.

    Args:
        setup: rounds and device.
        loops: by name.
        steps: of each loop in each round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    position = 0
    for number in range(-1, setup.rounds):
        spent = dict.fromkeys(loops, 0.0)
        for turn, count in enumerate(_split(setup.steps(steps))):
            for name, loop in list(loops.items())[:: -1 if turn % 2 else 1]:
                wait(setup.device)
                began = time.perf_counter()
                for i in range(count):
                    loop(position + i)
                wait(setup.device)
                spent[name] += time.perf_counter() - began
            position += count
        if number >= 0:
            for name in loops:
                seconds[name].append(spent[name] / setup.steps(steps))
    return seconds


def _split(steps: int) -> list[int]:
    """Into up to TURNS parts, as equal as can be."""
    turns = min(TURNS, steps)
    return [steps // turns + (i < steps % turns) for i in range(turns)]


def wait(device: str) -> None:
    """Until a GPU has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def speed(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """How many times as fast ``fast`` is as ``slow``, round by round."""
    return [s / f for s, f in zip(slow, fast, strict=True)]


def machine(device: str) -> dict[str, Any]:
    """What the numbers belong to."""
    chip = torch.cuda.get_device_name() if device == "cuda" else _processor()
    return {
        "device": chip, "cores": os.cpu_count(), "torch": torch.__version__, "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"), "commit": _commit(),
    }  # fmt: skip


def _commit() -> str:
    here = ["git", "-C", str(Path(__file__).parent)]
    found = subprocess.run([*here, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*here, "status", "--porcelain"], capture_output=True, text=True).stdout.strip()
    return f"{found}, changed" if changed else found or "unknown"


def _processor() -> str:
    with open("/proc/cpuinfo") as file:  # noqa: PTH123
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()
