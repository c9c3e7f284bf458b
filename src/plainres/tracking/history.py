"""Rows of a run as W&B gets them: one row of few scalars a step, and now and then a profile over depth. No torch.

Everything stands under ``step``, the one axis: an evaluation under the number of updates made, a reading under the step
it was taken in (METRICS: time). Values that do not exist are left out; W&B knows no reasons.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PROFILES = {"grad_norm": "layer", "update_ratio": "layer", "branch_ratio": "block"}  # metric -> its scope
OF_RUN = ("lr", "grad_norm_total")  # beside all errors and losses
MOMENTS = 3  # parts of the budget, at whose ends profiles are sent: a chart costs 9 ms


@dataclass
class Step:
    """What W&B gets of one step.

    Attributes:
        scalars: by name.
        profiles: metric -> (index of layer or block, value) pairs, where this step has them sent.
    """

    scalars: dict[str, float] = field(default_factory=dict)
    profiles: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


class History:
    """Turns the lines of a run into rows by step; remembers which profiles it has sent."""

    def __init__(self, steps: int) -> None:
        """
        Args:
            steps: the run's budget.
        """
        self._moments = [math.ceil(part * steps / MOMENTS) for part in range(MOMENTS)] + [steps - 1]

    def rows(self, steps: list[dict[str, Any]], layers: list[dict[str, Any]]) -> Iterator[tuple[int, Step]]:
        """(step, what it has), in order of step.

        Args:
            steps, layers: lines of both files that end before the same step.
        """
        found: dict[int, Step] = {}
        for line in steps:
            scalars = {name: v for name, v in line["values"].items() if v is not None and _is_sent(line["kind"], name)}
            found.setdefault(line["step"], Step()).scalars |= scalars
        for line in layers:
            step = found.setdefault(line["step"], Step())
            sends = line["step"] >= self._moments[0]
            while self._moments and line["step"] >= self._moments[0]:
                del self._moments[0]
            for metric, scope in PROFILES.items():
                values = line["values"].get(scope, {}).get(metric)
                if values is not None:
                    pairs = _pairs(values)
                    step.scalars |= profile_scalars(metric, pairs)
                    if sends and pairs:
                        step.profiles[metric] = pairs
        for number in sorted(found):
            yield number, found[number]


def _is_sent(kind: str, name: str) -> bool:
    return kind == "eval" or name in OF_RUN


def _pairs(values: list[float | None]) -> list[tuple[int, float]]:
    """Index and value of what exists, in the float32 that the tables keep."""
    return [(i, float(np.float32(v))) for i, v in enumerate(values) if v is not None]


def profile_scalars(metric: str, pairs: list[tuple[int, float]]) -> dict[str, float]:
    """First, last, smallest and largest member of a profile, and of grad_norm the slope of its logarithm a layer.

    The slope is that of the least-squares line through ln(grad_norm) over the layer's index: above 0 where gradients
    shrink on their way back to the stem, below 0 where they grow. Layers whose gradient is 0 are left out of it.
    """
    if not pairs:
        return {}
    values = [value for _, value in pairs]
    named = {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
    if metric == "grad_norm":
        positive = [(i, math.log(v)) for i, v in pairs if v > 0]
        if len(positive) > 1:
            x, y = np.array(positive).T
            x = x - x.mean()
            named["log_slope"] = float(x @ (y - y.mean()) / (x @ x))
    return {f"{metric}/{name}": value for name, value in named.items()}
