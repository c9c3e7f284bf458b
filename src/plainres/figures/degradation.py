"""Final training error against depth: every seed, the mean and its interval."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import arm_order, built_of, legend_words
from plainres.figures.axes import (
    Layout,
    depth_axis,
    depth_positions,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    panels,
    root_scale,
)
from plainres.figures.many import degradation_grid, degradation_list, is_many
from plainres.figures.style import GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

# In units of the least distance of two depths. Means stay at their depth; seeds stand beside them, plain left.
MEAN_DODGE, SEED_SHIFT, SEED_WIDTH = 0.05, 0.12, 0.15
BUILT_DODGE = 0.11  # with networks that start as good as their source: many lie on 0
PANEL_HEIGHT = 2.1
LEGEND_COLUMNS = 3
CHANCE_LINE = (0, (1, 1.5))


def degradation(rows: "pd.DataFrame", style: "Style") -> "Figure":
    """Final clean training error in % against depth.

    Args:
        rows: ``tables.degradation_rows``.
        style: of the figure.
    """
    table, seeds = (rows[rows["series"] == series] for series in ("mean", "seed"))
    chance, connections = float(rows["chance_error"].max()), arm_order(seeds["connection"])
    if is_many(connections):
        one_depth = seeds["depth"].nunique() == 1
        return (
            degradation_list(table, seeds, style, chance)
            if one_depth
            else degradation_grid(table, seeds, style, chance)
        )
    positions = depth_positions(sorted(seeds["depth"].unique()))
    unit = min(np.diff(list(positions.values())), default=1.0)
    styles = arm_styles(connections)
    apart = BUILT_DODGE if any(map(built_of, connections)) else MEAN_DODGE
    handles = _handles(styles, bool(seeds["diverged"].any()), bool(table["low"].notna().any()))
    columns = legend_columns(handles, LEGEND_COLUMNS, style.column)
    layout = Layout(left=0.5, top=legend_rows(handles, columns) + 0.06)
    figure, axes = panels(style, 1, 1, style.column, PANEL_HEIGHT, layout)
    ax = axes[0, 0]
    ax.axhline(100 * chance, color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)
    depth_axis(ax, positions)
    root_scale(ax)
    ax.grid(False, axis="x")
    for i, (name, look) in enumerate(styles.items()):
        dodge = unit * apart * (i - (len(connections) - 1) / 2)
        _means(ax, table[table["connection"] == name], positions, dodge, look)
        _from_source(ax, table, name, positions, dodge, look)
        beside = unit * (SEED_SHIFT + SEED_WIDTH * (0.5 + 1.15 * (i // 2))) * (1 if i % 2 else -1)
        _seeds(ax, seeds[seeds["connection"] == name], positions, beside, unit * SEED_WIDTH, look)
    ax.set_ylabel("final training error (%), √ scale")
    legend_above(figure, handles, columns)
    return figure


def _means(ax: Any, arm: "pd.DataFrame", positions: dict[int, float], shift: float, style: ArmStyle) -> None:
    x = np.array([positions[d] + shift for d in arm["depth"]])
    mean, low, high = (100 * arm[part].to_numpy(dtype=float) for part in ("value", "low", "high"))
    ax.plot(x, mean, color=style.colour, ls=style.line, lw=1.1, zorder=3)
    known = ~np.isnan(low)
    below = mean - np.clip(low, 0, 100)  # an error is in 0 … 100 %: the rest of the interval is not drawn
    above = np.clip(high, 0, 100) - mean
    bars = np.array([below[known], above[known]])
    ax.errorbar(
        x[known], mean[known], yerr=bars, fmt="none", ecolor=style.colour, elinewidth=1.1, capsize=2.5, zorder=4
    )
    ax.plot(x, mean, style.marker, color=style.colour, ms=4.5, mec="white", mew=0.5, zorder=5, clip_on=False)


def _from_source(
    ax: Any, table: "pd.DataFrame", name: str, positions: dict[int, float], shift: float, style: ArmStyle
) -> None:
    """The line of networks that were built begins at the one that they were built from."""
    built, known = built_of(name), table.set_index(["connection", "depth"])["value"]
    mine = sorted(depth for connection, depth in known.index if connection == name)
    if built is not None and mine and (built.arm, built.depth) in known.index:
        ends = [known[built.arm, built.depth], known[name, mine[0]]]
        x = [positions[built.depth] + shift, positions[mine[0]] + shift]
        ax.plot(x, [100 * end for end in ends], color=style.colour, ls=style.line, lw=1.1, zorder=3)


def _seeds(
    ax: Any, runs: "pd.DataFrame", positions: dict[int, float], shift: float, width: float, style: ArmStyle
) -> None:
    alone = runs.groupby("depth")["seed"].transform("size") == 1
    runs = runs[~alone | runs["diverged"].astype(bool)]  # a single seed is the mean, and stands there
    ranks = runs.groupby("depth")["seed"].rank(method="first") - 1
    counts = runs.groupby("depth")["seed"].transform("size")
    spread = ((ranks + 0.5) / counts - 0.5) * width
    x = runs["depth"].map(positions) + shift + spread
    y = 100 * runs["value"].astype(float)
    diverged = runs["diverged"].astype(bool)
    look = {"color": style.colour, "zorder": 2, "clip_on": False, "ls": ""}
    ax.plot(x[~diverged], y[~diverged], marker=style.marker, ms=2.4, mfc="none", mew=0.6, **look)
    ax.plot(x[diverged], y[diverged], marker="x", ms=4, mew=1.1, **look)


def _handles(styles: dict[str, ArmStyle], diverged: bool, interval: bool) -> list[Any]:
    handles: list[Any] = [
        grey_handle(f"{legend_words(name)}, mean", color=s.colour, ls=s.line, marker=s.marker)
        for name, s in styles.items()
    ]
    if interval:
        handles.append(grey_handle("95 % interval", ls="", marker="|", ms=8, mew=1.1))
    handles.append(grey_handle("one seed", ls="", marker="o", ms=2.4, mfc="none", mew=0.6))
    if diverged:
        handles.append(grey_handle("diverged", ls="", marker="x", mew=1.1))
    handles.append(grey_handle("chance level", lw=0.7, ls=CHANCE_LINE))
    return handles
