"""The gap plain − residual of every matched pair against depth, in percentage points, with mean and interval."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import PLAIN, arm_order
from plainres.figures.axes import (
    Layout,
    axis_labels,
    depth_axis,
    depth_positions,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    panels,
)
from plainres.figures.many import colour_of, grid, is_many
from plainres.figures.style import GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

PANEL_HEIGHT = 2.1
LEGEND_COLUMNS = 2
LABEL = "gap plain − connection (points)"
DODGE, PAIRS = 0.16, 0.09  # in units of the least distance of two depths: between arms, and of the pairs of one arm
MARGIN_LINE = (0, (1, 1.5))


def paired_gap(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Above 0 the plain network of a pair has the larger training error: the connection helps.

    Args:
        table: ``tables.paired_gap_rows``.
        style: of the figure.
    """
    connections = arm_order(table["connection"])
    positions = depth_positions(sorted(int(depth) for depth in table["depth"].unique()))
    if is_many(connections):
        return _grid(table, style, connections, positions)
    styles = {name: look for name, look in arm_styles([PLAIN, *connections]).items() if name != PLAIN}
    handles = [grey_handle(f"{name}, mean", color=s.colour, ls=s.line, marker=s.marker) for name, s in styles.items()]
    handles += _notes(table)
    columns = legend_columns(handles, LEGEND_COLUMNS, style.column)
    layout = Layout(left=0.5, top=legend_rows(handles, columns) + 0.06)
    figure, axes = panels(style, 1, 1, style.column, PANEL_HEIGHT, layout)
    ax, unit = axes[0, 0], min(np.diff(list(positions.values())), default=1.0)
    _frame(ax, table, positions)
    for i, (name, look) in enumerate(styles.items()):
        shift = unit * DODGE * (i - (len(styles) - 1) / 2)
        _arm(ax, table[table["connection"] == name], positions, shift, unit * PAIRS, look)
    ax.set_ylabel(LABEL)
    legend_above(figure, handles, columns)
    return figure


def _grid(table: "pd.DataFrame", style: "Style", connections: list[str], positions: dict[int, float]) -> "Figure":
    figure, named = grid(style, connections, [grey_handle("mean", marker="o"), *_notes(table)])
    for name, ax in named.items():
        _frame(ax, table, positions)
        _arm(ax, table[table["connection"] == name], positions, 0.0, 0.2, ArmStyle(colour_of(name), "-", "o"))
        ax.set_xlabel("")
    axis_labels(figure, style, LABEL, "depth (weighted layers)")
    return figure


def _frame(ax: Any, table: "pd.DataFrame", positions: dict[int, float]) -> None:
    ax.axhline(0, color=GREY, lw=0.8, zorder=1)
    ax.axhline(100 * float(table["margin"].max()), color=GREY, lw=0.7, ls=MARGIN_LINE, zorder=1)
    depth_axis(ax, positions)
    ax.grid(False, axis="x")


def _arm(
    ax: Any, arm: "pd.DataFrame", positions: dict[int, float], shift: float, spread: float, style: ArmStyle
) -> None:
    means, pairs = (arm[arm["series"] == series].sort_values("depth") for series in ("mean", "pair"))
    x = np.array([positions[int(depth)] + shift for depth in means["depth"]])
    mean, low, high = (100 * means[part].to_numpy(dtype=float) for part in ("value", "low", "high"))
    known = ~np.isnan(low)
    bars = np.array([mean - low, high - mean])[:, known]
    ax.plot(x, mean, color=style.colour, ls=style.line, lw=1.1, marker=style.marker, ms=4.5, mec="white", mew=0.5,
            zorder=5)  # fmt: skip
    ax.errorbar(x[known], mean[known], yerr=bars, fmt="none", ecolor=style.colour, elinewidth=1.1, capsize=2.5,
                zorder=4)  # fmt: skip
    # Every pair stands left of its mean, in the order of the seeds.
    rank = pairs.groupby("depth")["seed"].rank(method="first") - 1
    count = pairs.groupby("depth")["seed"].transform("size")
    x = pairs["depth"].map(positions) + shift - spread * (0.6 + (count - 1 - rank) / count.clip(lower=2))
    y, diverged = 100 * pairs["value"].astype(float), pairs["diverged"].astype(bool)
    look = {"color": style.colour, "ls": "", "zorder": 2}
    ax.plot(x[~diverged], y[~diverged], marker=style.marker, ms=2.4, mfc="none", mew=0.6, **look)
    ax.plot(x[diverged], y[diverged], marker="x", ms=4, mew=1.1, **look)


def _notes(table: "pd.DataFrame") -> list[Any]:
    notes = [grey_handle("one pair", ls="", marker="o", ms=2.4, mfc="none", mew=0.6)]
    if table["low"].notna().any():
        notes.append(grey_handle("95 % interval", ls="", marker="|", ms=8, mew=1.1))
    if table["diverged"].any():
        notes.append(grey_handle("one of a pair diverged", ls="", marker="x", mew=1.1))
    return [*notes, grey_handle(f"margin, {100 * float(table['margin'].max()):g} point", lw=0.7, ls=MARGIN_LINE)]
