"""Figures of studies with many connections: a small panel for each, with plain in grey behind it.

More than ``MANY_ARMS`` lines in one panel cannot be told apart, and their legend has no room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.profiles import MOMENTS
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
    log_y,
    panel_label,
    panels,
    root_scale,
    root_x,
    whole_axis,
)
from plainres.figures.style import GREY, KNOWN_COLOURS
from plainres.figures.styles import Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MANY_ARMS = 6  # as many as there are colours beside plain's
COLUMNS = 4
PANEL_HEIGHT = 0.95
LAYOUT = Layout(left=0.68, bottom=0.42, top=0.26, wspace=0.16, hspace=0.34)
ROW_HEIGHT = 0.2
BEHIND = "#b0b0b0"  # plain, where it is shown for comparison
MOMENT_LINES: dict[str, Any] = {"start": (0, (1, 1)), "early": (0, (4, 1.3)), "end": "-"}


def is_many(connections: Sequence[str]) -> bool:
    """Whether there are more connections than one panel can show."""
    return len(set(connections)) > MANY_ARMS


def colour_of(name: str) -> str:
    """Plain and residual keep their colours; a panel of its own needs no further ones."""
    return KNOWN_COLOURS.get(name, "#009E73")


def grid(style: Style, connections: Sequence[str], handles: list[Any]) -> tuple["Figure", dict[str, Any]]:
    """A panel for each connection, with its name above it, and a legend on top. One y axis for all."""
    rows, across = -(-len(connections) // COLUMNS), legend_columns(handles, len(handles), style.page)
    layout = replace(LAYOUT, top=LAYOUT.top + legend_rows(handles, across))
    figure, axes = panels(style, rows, COLUMNS, style.page, PANEL_HEIGHT, layout)
    legend_above(figure, handles, across)
    flat = list(axes.ravel())
    for ax in flat[len(connections) :]:
        ax.remove()
    named = dict(zip(connections, flat, strict=False))
    for i, (name, ax) in enumerate(named.items()):
        panel_label(ax, name)
        ax.tick_params(labelbottom=i + COLUMNS >= len(connections))
    return figure, named


def deepest_of_many(table: "pd.DataFrame") -> "pd.DataFrame":
    """With many connections, the rows of the deepest networks: those that a grid has room for."""
    return table[table["depth"] == table["depth"].max()] if is_many(table["connection"]) else table


def profile_grid(
    deepest: "pd.DataFrame", style: Style, label: str, index_label: str, low: float, high: float
) -> "Figure":
    """Start, early and end of networks of one depth, as line styles."""
    connections, depth = arm_order(deepest["connection"]), int(deepest["depth"].max())
    moments = [m for m in MOMENTS if (deepest["moment"] == m).any()]
    gap = "; no line: exactly 0" if (deepest["n_zero"] > 0).any() else ""
    lines = [grey_handle(moment, ls=MOMENT_LINES[moment]) for moment in moments]
    figure, named = grid(style, connections, _handles(lines, connections, f"depth {depth}{gap}"))
    log_y(next(iter(named.values())), low, high)
    for name, ax in named.items():
        for moment in moments:
            part = deepest[deepest["moment"] == moment]
            if name != PLAIN and moment == "end":
                _line(ax, part[part["connection"] == PLAIN], "layer_index", BEHIND, "-")
            _line(ax, part[part["connection"] == name], "layer_index", colour_of(name), MOMENT_LINES[moment])
        whole_axis(ax, int(deepest["layer_index"].max()))
        stopped = deepest.loc[deepest["connection"] == name, "n_stopped"].max()
        panel_label(ax, f"{stopped:g} diverged" if stopped else "", "right")
    axis_labels(figure, style, label, index_label)
    return figure


def ranked_grid(deepest: "pd.DataFrame", style: Style, low: float, high: float) -> "Figure":
    """Std of the responses at the end of training, of networks of one depth: in layer order (thin) and ranked."""
    connections, depth = arm_order(deepest["connection"]), int(deepest["depth"].max())
    lines = [grey_handle("layer order", ls=(0, (1, 1))), grey_handle("ranked, largest first")]
    figure, named = grid(style, connections, _handles(lines, connections, f"depth {depth}, end of training"))
    log_y(next(iter(named.values())), low, high)
    for name, ax in named.items():
        arm = deepest[deepest["connection"] == name]
        if name != PLAIN:
            _line(ax, deepest[deepest["connection"] == PLAIN], "rank", BEHIND, "-")
        _line(ax, arm, "layer_index", colour_of(name), (0, (1, 1)))
        _line(ax, arm, "rank", colour_of(name), "-")
        whole_axis(ax, int(deepest["layer_index"].max()))
    axis_labels(figure, style, "std of response", "layer index, or rank")
    return figure


def _line(ax: Any, arm: "pd.DataFrame", column: str, colour: str, style: Any) -> None:
    if len(arm):
        values = arm.set_index(column)["value"].reindex(np.arange(int(arm[column].max()) + 1))  # a gap stays a gap
        ax.plot(values.index, values, color=colour, ls=style, lw=1.0)


def _handles(handles: list[Any], connections: Sequence[str], where: str) -> list[Any]:
    behind = [grey_handle("plain", color=BEHIND)] if PLAIN in connections else []
    return [*handles, *behind, grey_handle(where, ls="")]


def degradation_grid(table: "pd.DataFrame", seeds: "pd.DataFrame", style: Style, chance: float) -> "Figure":
    """Means with their intervals over depth, and the runs that diverged, a panel for each connection."""
    connections = arm_order(table["connection"])
    positions = depth_positions(sorted(table["depth"].unique()))
    lines = [grey_handle("mean", marker="o", ms=3), *_diverged(seeds)]
    lines.append(grey_handle("chance level", lw=0.7, ls=(0, (1, 1.5))))
    figure, named = grid(style, connections, _handles(lines, connections, "95 % intervals"))
    root_scale(next(iter(named.values())))
    for name, ax in named.items():
        ax.axhline(100 * chance, color=GREY, lw=0.7, ls=(0, (1, 1.5)), zorder=1)
        for shown, colour in ((PLAIN, BEHIND), (name, colour_of(name))):  # plain's own panel draws over the grey
            arm = table[table["connection"] == shown]
            _interval(ax, arm, [positions[d] for d in arm["depth"]], colour)
        stopped = seeds[(seeds["connection"] == name) & seeds["diverged"]]
        ax.plot(stopped["depth"].map(positions), 100 * stopped["value"].astype(float), "x", ms=6.5, mew=1.1,
                color=colour_of(name), zorder=4, clip_on=False)  # fmt: skip
        depth_axis(ax, positions)
        ax.set_yticks([0, 1, 10, 25, 50, 100], ["0", "1", "10", "25", "50", "100"])
        ax.set_xlabel("")
    axis_labels(figure, style, "final training error (%), √ scale", "depth (weighted layers)")
    return figure


def _interval(ax: Any, arm: "pd.DataFrame", x: list[float], colour: str) -> None:
    mean, low, high = (100 * arm[part].to_numpy(dtype=float) for part in ("value", "low", "high"))
    known = ~np.isnan(low)
    bars = np.array([mean - np.clip(low, 0, 100), np.clip(high, 0, 100) - mean])[:, known]
    ax.plot(x, mean, "o-", color=colour, lw=1.0, ms=2.8, clip_on=False)
    ax.errorbar(np.array(x)[known], mean[known], yerr=bars, fmt="none", ecolor=colour, elinewidth=0.8, capsize=1.5)


def degradation_list(table: "pd.DataFrame", seeds: "pd.DataFrame", style: Style, chance: float) -> "Figure":
    """One depth: a row for each connection, sorted by its mean; every seed, the mean and its interval."""
    rows = table.sort_values(["value", "connection"], ascending=False)
    names = list(rows["connection"])
    handles = error_handles(table, seeds)
    width = style.page * 0.75
    columns = legend_columns(handles, len(handles), width)
    layout = Layout(left=1.75, bottom=0.42, top=0.12 + legend_rows(handles, columns))
    figure, axes = panels(style, 1, 1, width, ROW_HEIGHT * len(names) + 0.1, layout)
    ax = axes[0, 0]
    for y, row in enumerate(rows.to_dict("records")):
        error_row(ax, y, row, seeds[seeds["connection"] == row["connection"]], colour_of(row["connection"]))
    _horizontal(ax, names, chance)
    legend_above(figure, handles, columns)
    return figure


def error_row(ax: Any, y: int, mean: Mapping[Any, Any], seeds: "pd.DataFrame", colour: str) -> None:
    """One line of a list: the mean with its interval (cut at 0 and 100 %), every seed, those that diverged as ×."""
    ends = np.clip([100 * float(mean["low"]), 100 * float(mean["high"])], 0, 100)
    ax.plot(ends, [y, y], color=colour, lw=1.3, zorder=2)
    stopped = seeds["diverged"].astype(bool)
    for own, look in ((seeds[~stopped], {"marker": "o", "ms": 2.6, "mfc": "none", "mew": 0.6}),
                      (seeds[stopped], {"marker": "x", "ms": 6.5, "mew": 1.1})):  # fmt: skip
        ax.plot(100 * own["value"].astype(float), [y] * len(own), color=colour, ls="", clip_on=False, zorder=3, **look)
    ax.plot(100 * float(mean["value"]), y, "o", ms=4.5, mec="white", mew=0.5, color=colour, clip_on=False, zorder=4)


def error_handles(means: "pd.DataFrame", seeds: "pd.DataFrame") -> list[Any]:
    """The legend of a list of ``error_row``."""
    interval = ", 95 % interval" if means["low"].notna().any() else ""
    handles = [grey_handle(f"mean{interval}", marker="o"), grey_handle("one seed", ls="", marker="o", mfc="none")]
    return [*handles, *_diverged(seeds), grey_handle("chance level", lw=0.7, ls=(0, (1, 1.5)))]


def _diverged(seeds: "pd.DataFrame") -> list[Any]:
    return [grey_handle("diverged", ls="", marker="x", mew=1.1)] if seeds["diverged"].any() else []


def _horizontal(ax: Any, names: list[str], chance: float) -> None:
    ax.axvline(100 * chance, color=GREY, lw=0.7, ls=(0, (1, 1.5)), zorder=1)
    root_x(ax)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlabel("final training error (%), √ scale")
