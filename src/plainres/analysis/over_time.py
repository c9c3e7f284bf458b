"""Layer × step tables of every depth and arm, for the report page: its step slider and its heat maps.

Geometric means over seeds where a quantity varies by orders of magnitude (``profiles``), arithmetic ones where it
is a share or a cosine. So that a page stays small, only as many probe steps are kept as ``MOST_VALUES`` allow.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.inside import Inside
from plainres.analysis.profiles import spread

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 300_000  # of all metrics, arms, depths and settings together; about 2 MB of text
CELL = ["connection", "depth"]


@dataclass(frozen=True)
class Quantity:
    """A metric of layers or blocks as a page shows it.

    Attributes:
        scope: ``layer`` or ``block``.
        label: with its formula.
        log: whether its axis and its mean over seeds are logarithmic.
    """

    scope: str
    label: str
    log: bool = True


QUANTITIES = {
    "grad_norm": Quantity("layer", "gradient norm ‖∂L/∂W‖"),
    "update_ratio": Quantity("layer", "update ratio ‖ΔW‖ / ‖W‖"),
    "branch_ratio": Quantity("block", "branch ratio ‖F(x)‖ / ‖h(x)‖"),
    "branch_over_input": Quantity("block", "‖F(x)‖ / ‖x‖ of a block without addition (no residual ratio)"),
    "activation_grad_norm_input": Quantity("block", "gradient of the loss by the block's input ‖∂L/∂x‖"),
    "block_gain": Quantity("block", "backward gain of a block"),
    "forward_gain": Quantity("block", "forward gain of a block ‖y‖ / ‖x‖"),
    "output_norm": Quantity("block", "trunk norm after the block ‖y‖"),
    "branch_cosine": Quantity("block", "cosine of F(x) and h(x)", log=False),
    "response_std": Quantity("layer", "standard deviation of responses"),
    "dead_fraction": Quantity("layer", "share of dead units", log=False),
    "weight_norm": Quantity("layer", "weight norm ‖W‖"),
}
METRICS = [(quantity.scope, name) for name, quantity in QUANTITIES.items()]


@dataclass(frozen=True)
class OverTime:
    """The tables of one setting.

    Attributes:
        tables: metric -> one row per connection, depth, step and layer: layer_index, layer_name, n, n_zero, value.
            Metrics that no run has are absent.
        num_steps: how many probe steps the runs have.
        kept_steps: how many of them are in the tables.
    """

    tables: "dict[str, pd.DataFrame]"
    num_steps: int
    kept_steps: int


def over_time(inside: Inside, most_values: int) -> OverTime:
    """Every metric of ``QUANTITIES`` over layers and steps.

    Args:
        inside: read with ``METRICS`` among its metrics.
        most_values: more are not kept: steps are left out, evenly in log(1 + step).
    """
    rows = {name: inside.rows(q.scope, name).dropna(subset="value") for name, q in QUANTITIES.items()}
    rows = {name: table for name, table in rows.items() if len(table)}
    steps = sorted({int(step) for table in rows.values() for step in table["step"].unique()})
    per_step = sum(_layers(table) for table in rows.values())
    kept = spread(steps, max(2, most_values // max(per_step, 1)))
    tables = {}
    for name, table in rows.items():
        tables[name] = means(table[table["step"].isin(kept)], QUANTITIES[name].log)
    return OverTime(tables, len(steps), len(kept))


def _layers(rows: "pd.DataFrame") -> int:
    """How many layers the arms and depths have in all."""
    return int(rows.groupby(CELL, observed=True)["layer_index"].nunique().sum())


def means(rows: "pd.DataFrame", log: bool) -> "pd.DataFrame":
    """Mean over seeds for each connection, depth, step and layer; exact zeros have no logarithm and are counted."""
    values = rows["value"].astype(float)
    zero = (values <= 0) & log
    keys = [*CELL, "step", "layer_index", "layer_name"]
    groups = rows.assign(used=np.log(values.where(~zero)) if log else values, zero=zero).groupby(keys, observed=True)
    table = groups.agg(n=("used", "count"), n_zero=("zero", "sum"), value=("used", "mean")).reset_index()
    if log:
        table["value"] = np.exp(table["value"])
    return table.astype({"connection": str, "layer_name": str}).sort_values(keys[:-1], ignore_index=True)
