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
from plainres.figures.save import Drawn, NothingToDraw, styled
from plainres.figures.style import COLUMN_WIDTH, GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd

# In units of the least distance of two depths. Means stay at their depth; seeds stand beside them, plain left.
MEAN_DODGE, SEED_SHIFT, SEED_WIDTH = 0.05, 0.12, 0.15
BUILT_DODGE = 0.11  # with networks that start as good as their source: many lie on 0
PANEL_HEIGHT = 2.1
LEGEND_COLUMNS = 3
CHANCE_LINE = (0, (1, 1.5))


def degradation(table: "pd.DataFrame", seeds: "pd.DataFrame") -> Drawn:
    """Final clean training error in % against depth.

    Args:
        table: rows of degradation.csv for one setting.
        seeds: one row per finished run: connection, depth, seed, train_error (chance if diverged), diverged,
            chance_error.
    """
    if seeds.empty:
        raise NothingToDraw("no run is complete or diverged")
    connections = arm_order(seeds["connection"])
    if is_many(connections):
        return Drawn(_many(table, seeds), _drawn(table, seeds))
    positions = depth_positions(sorted(seeds["depth"].unique()))
    unit = min(np.diff(list(positions.values())), default=1.0)
    styles = arm_styles(connections)
    apart = BUILT_DODGE if any(map(built_of, connections)) else MEAN_DODGE
    with styled():
        handles = _handles(styles, bool(seeds["diverged"].any()), bool(table["train_error_low"].notna().any()))
        columns = legend_columns(handles, LEGEND_COLUMNS, COLUMN_WIDTH)
        layout = Layout(left=0.5, top=legend_rows(handles, columns) + 0.06)
        figure, axes = panels(1, 1, COLUMN_WIDTH, PANEL_HEIGHT, layout)
        ax = axes[0, 0]
        ax.axhline(100 * float(seeds["chance_error"].max()), color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)
        depth_axis(ax, positions)
        root_scale(ax)
        ax.grid(False, axis="x")
        for i, (name, style) in enumerate(styles.items()):
            dodge = unit * apart * (i - (len(connections) - 1) / 2)
            _means(ax, table[(table["connection"] == name) & (table["n"] > 0)], positions, dodge, style)
            _from_source(ax, table, name, positions, dodge, style)
            beside = unit * (SEED_SHIFT + SEED_WIDTH * (0.5 + 1.15 * (i // 2))) * (1 if i % 2 else -1)
            _seeds(ax, seeds[seeds["connection"] == name], positions, beside, unit * SEED_WIDTH, style)
        ax.set_ylabel("final training error (%), √ scale")
        legend_above(figure, handles, columns)
    return Drawn(figure, _drawn(table, seeds))


def _many(table: "pd.DataFrame", seeds: "pd.DataFrame") -> Any:
    chance = float(seeds["chance_error"].max())
    with styled():
        one_depth = seeds["depth"].nunique() == 1
        return degradation_list(table, seeds, chance) if one_depth else degradation_grid(table, chance)


def _means(ax: Any, arm: "pd.DataFrame", positions: dict[int, float], shift: float, style: ArmStyle) -> None:
    x = np.array([positions[d] + shift for d in arm["depth"]])
    mean, low, high = (100 * arm[f"train_error_{part}"].to_numpy(dtype=float) for part in ("mean", "low", "high"))
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
    built, known = built_of(name), table[table["n"] > 0].set_index(["connection", "depth"])["train_error_mean"]
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
    y = 100 * runs["train_error"].astype(float)
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


def _drawn(table: "pd.DataFrame", seeds: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    points = seeds[["connection", "depth", "seed", "train_error", "diverged"]]
    points = points.rename(columns={"train_error": "value"}).assign(series="seed", n=1)
    means = table[table["n"] > 0].rename(
        columns={f"train_error_{part}": name for part, name in (("mean", "value"), ("low", "low"), ("high", "high"))}
    )
    means = means[["connection", "depth", "n", "value", "low", "high"]].assign(series="mean")
    both = pd.concat([means, points])
    columns = ["connection", "depth", "series", "seed", "n", "value", "low", "high", "diverged"]
    return both[columns].astype({"seed": "Int64"}).sort_values(["connection", "depth", "series", "seed"])
