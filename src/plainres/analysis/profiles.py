"""Layer profiles at a few moments, and layer × step maps: geometric means over seeds.

Norms and ratios of norms vary by orders of magnitude, so that they are averaged as logarithms. A value that
is exactly 0 has no logarithm: it is counted in ``n_zero`` and left out of the mean.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOMENTS = ("start", "early", "end")
EARLY = 0.05  # "early" is the probe step nearest to this share of the budget
MAP_STEPS = 120  # a map shows at most so many probe steps, spaced evenly in log(1 + step)
HEAD = "head."
CELL = ["connection", "depth"]


def moment_steps(probed: list[int], budget: int, start: int) -> dict[str, int]:
    """The probe steps of one run that stand for start, early and end.

    Args:
        probed: the run's probe steps, sorted.
        budget: updates the run was to make.
        start: the step that stands for the start.
    """
    later = [step for step in probed if step > start]
    found = {"start": start} if start in probed else {}
    if later:
        found["end"] = later[-1]
    between = later[:-1]
    if between:
        found["early"] = min(between, key=lambda step: abs(step - EARLY * budget))
    return found


def needed_steps(probed: list[int], budget: int) -> set[int]:
    """The steps to read of one run: its moments for either start, and the map's steps."""
    wanted = {step for start in probed[:2] for step in moment_steps(probed, budget, start).values()}
    return wanted | set(map_steps(probed))


def map_steps(probed: list[int]) -> list[int]:
    """At most ``MAP_STEPS`` of the probe steps (``spread``)."""
    return spread(probed, MAP_STEPS)


def spread(steps: list[int], most: int) -> list[int]:
    """At most ``most`` of the steps, spaced evenly in log(1 + step); first and last are kept."""
    if len(steps) <= most:
        return steps
    axis = np.log1p(np.array(steps, dtype=float))
    marks = np.linspace(axis[0], axis[-1], most)
    return sorted({steps[int(np.argmin(np.abs(axis - mark)))] for mark in marks})


def profiles(
    layers: "pd.DataFrame", probed: Mapping[str, list[int]], budget: Mapping[str, int], stopped: Collection[str]
) -> "pd.DataFrame":
    """Value of one metric against layer index at start, early and end.

    The start is step 0, or the second probe step where some run has no value at step 0 (a zero-initialised
    branch). The end is a run's last probed step, also if it diverged: ``n_stopped`` counts those.

    Args:
        layers: rows of one metric and scope (``load_layers``).
        probed: probe steps of each run, by run_id, sorted.
        budget: updates that each run was to make, by run_id.
        stopped: the runs that diverged, by run_id.

    Returns:
        One row per connection, depth, moment and layer: step (the largest of the seeds' steps), n, n_zero,
        n_stopped, value (geometric mean), low and high (least and greatest seed). Layers without a value are absent.
    """
    start = _start(layers, probed)
    at = [
        (run_id, moment, step, moment == "end" and run_id in stopped)
        for run_id, steps in probed.items()
        for moment, step in moment_steps(steps, budget[run_id], start).items()
    ]
    import pandas as pd

    wanted = pd.DataFrame(at, columns=["run_id", "moment", "step", "stopped"])
    rows = layers.merge(wanted, on=["run_id", "step"]).dropna(subset="value")
    return _over_seeds(rows, [*CELL, "moment", "layer_index", "layer_name"])


def _start(layers: "pd.DataFrame", probed: Mapping[str, list[int]]) -> int:
    """The first probe step, or the second if some run that has values at all has none at the first."""
    present = layers.dropna(subset="value")
    runs = present["run_id"].unique()
    firsts = sorted({step for run_id in runs for step in probed[run_id][:2]})
    for step in firsts[:1]:
        if present.loc[present["step"] == step, "run_id"].nunique() == len(runs):
            return step
    return firsts[1] if len(firsts) > 1 else 0


def maps(layers: "pd.DataFrame") -> "pd.DataFrame":
    """Value of one metric per layer and step: geometric mean over the seeds that have one.

    Returns:
        One row per connection, depth, step and layer: n, n_zero, value.
    """
    rows = layers.dropna(subset="value").assign(stopped=False)
    return _over_seeds(rows, [*CELL, "step", "layer_index", "layer_name"]).drop(columns=["n_stopped", "low", "high"])


def _over_seeds(rows: "pd.DataFrame", keys: list[str]) -> "pd.DataFrame":
    positive = rows["value"] > 0
    logs = np.log(rows["value"].astype(float).where(positive))
    rows = rows.assign(log=logs, zero=~positive, positive=positive)
    groups = rows.groupby(keys, observed=True)
    named = {
        "n": ("positive", "sum"),
        "n_zero": ("zero", "sum"),
        "n_stopped": ("stopped", "sum"),
        "value": ("log", "mean"),
        "low": ("log", "min"),
        "high": ("log", "max"),
    }
    if "step" not in keys:
        named["step"] = ("step", "max")
    table = groups.agg(**named).reset_index()
    table[["value", "low", "high"]] = np.exp(table[["value", "low", "high"]])
    table = table.astype({"connection": str, "layer_name": str})
    return table.sort_values([k for k in keys if k != "layer_name"], ignore_index=True)


def ranked(profile: "pd.DataFrame") -> "pd.DataFrame":
    """The ``end`` of a profile, with ``rank`` (0 = largest value; exact zeros last) within connection and depth.

    The head is left out: its response is the logits, which no norm follows (He et al. 2015, Figure 7, has none either).
    """
    end = profile[(profile["moment"] == "end") & ~profile["layer_name"].str.startswith(HEAD)]
    rank = end.groupby(CELL)["value"].rank(ascending=False, method="first", na_option="bottom") - 1
    return end.assign(rank=rank.astype(int))
