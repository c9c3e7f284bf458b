"""Numbers of each run's inside that the claims ``signal`` and ``scales`` rest on, as log10 of a ratio (decades).

All are read at one moment: the last probed step with at least 10 % of the peak learning rate (later, an update
ratio shows the schedule's end and nothing of the net). A ratio beyond a factor of 1,000 counts as 1,000: a layer
that gets a thousandth of the signal gets none, and an average over seeds must not hang on how far below.
"""

from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.inside import Inside

if TYPE_CHECKING:
    import pandas as pd

CUT = 3.0  # decades
END_SHARE = 4  # "early" and "late" are the first and the last quarter of the layers (or blocks)
LEAST = 1e-38  # about the smallest float32, in place of an exact 0
EARLY_TO_LATE = {
    "activation_grad_norm": "activation_grad_norm_input",
    "grad_norm": "grad_norm",
    "update_ratio": "update_ratio",
}
GAIN = "block_gain"
SIGNAL = (*EARLY_TO_LATE, f"cumulative {GAIN}")
SCALES = ("largest ratio", "smallest ratio", "growth along depth", "growth in time")
METRICS = [
    ("block", "activation_grad_norm_input"),
    ("block", GAIN),
    ("layer", "grad_norm"),
    ("layer", "update_ratio"),
    ("block", "branch_ratio"),
    ("block", "output_norm"),
]


def measured(inside: Inside) -> "pd.DataFrame":
    """One row per run and quantity (``SIGNAL``, ``SCALES``): run_id, quantity, value in decades; absent if unknown."""
    import pandas as pd

    rows: list[tuple[str, str, float | None]] = []
    for name, metric in EARLY_TO_LATE.items():
        rows += [(key, name, early_to_late(_values(run))) for key, run in _by_run(inside.at_end(metric))]
    gains = _by_run(inside.at_end(GAIN))
    rows += [(key, SIGNAL[-1], cumulative_gain(_values(run), run["reason"].tolist())) for key, run in gains]
    for key, run in _by_run(inside.at_end("branch_ratio")):
        known = _values(run)[~np.isnan(_values(run))]
        if known.size:
            rows += [(key, SCALES[0], _cut(_log(known.max()))), (key, SCALES[1], _cut(_log(known.min())))]
    starts = {key: _values(run) for key, run in _by_run(inside.at_start("output_norm"))}
    for key, run in _by_run(inside.at_end("output_norm")):
        trunk = _values(run)
        rows.append((key, SCALES[2], _ratio(trunk[-1], trunk[0])))
        if key in starts:
            rows.append((key, SCALES[3], _ratio(trunk[-1], starts[key][-1])))
    table = pd.DataFrame(rows, columns=["run_id", "quantity", "value"])
    return table.astype({"value": float}).dropna(subset="value")


def early_to_late(values: np.ndarray) -> float | None:
    """log10 of the geometric mean over the first quarter ÷ that over the last quarter; −3 if the first is all 0.

    Args:
        values: one per layer in forward order, nan where there is none.
    """
    known = values[~np.isnan(values)]
    if known.size < 2:
        return None
    count = max(1, known.size // END_SHARE)
    if known[:count].max() <= LEAST:
        return -CUT
    logs = np.log10(np.maximum(known, LEAST))
    return _cut(float(logs[:count].mean() - logs[-count:].mean()))


def cumulative_gain(values: np.ndarray, reasons: list[str | None]) -> float | None:
    """log10 of the product of all block gains: the gradient at the first block's input ÷ that at the last's output.

    A block without a gradient has no gain, and then nothing arrives (−3); another missing value leaves it unknown.
    """
    missing = np.isnan(values)
    if any(str(why).startswith("no gradient") for why, gone in zip(reasons, missing, strict=True) if gone):
        return -CUT
    return None if missing.any() or not values.size else _cut(float(np.log10(np.maximum(values, LEAST)).sum()))


def _ratio(this: float, other: float) -> float | None:
    return None if np.isnan(this) or np.isnan(other) else _cut(_log(this) - _log(other))


def _log(value: float) -> float:
    return float(np.log10(max(value, LEAST)))


def _cut(value: float) -> float:
    return float(np.clip(value, -CUT, CUT))


def _by_run(rows: "pd.DataFrame") -> "list[tuple[str, pd.DataFrame]]":
    return [(str(key), run.sort_values("layer_index")) for key, run in rows.groupby("run_id", observed=True)]


def _values(run: "pd.DataFrame") -> np.ndarray:
    return np.asarray(run["value"], dtype=float)
