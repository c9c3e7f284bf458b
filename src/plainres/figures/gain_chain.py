"""What the backward pass makes of a gradient over n blocks, over the lines dⁿ of a scalar chain."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.gain_chain import END, START, scalar_chain
from plainres.analysis.settings import arm_order
from plainres.figures.axes import (
    LEGEND_WIDTH,
    Layout,
    arm_handles,
    axis_labels,
    grey_handle,
    legend_beside,
    log_y,
    panel_label,
    panels,
    whole_axis,
)
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import colour_of, grid, is_many
from plainres.figures.style import GREY, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

SCALARS = (0.8, 0.9, 0.98, 1.0, 1.02, 1.1, 1.25)  # the d of the lines dⁿ
LEAST_RANGE = 3.0  # factor around 1 that is always shown: slopes near 1 look alike on a taller axis
GREATEST_RANGE = 1e12  # beyond, a chain leaves the panel: the csv has its numbers
LABEL_GAP = 0.075  # of the panel's width: labels along an edge closer than that would print over each other
LABEL_STEP, LABEL_SHIFT = 0.045, 0.05  # of the panel's height: two labels beside it, and how far one is moved for that
LABEL_ROOM = 0.3  # inches beside a panel
PANEL_HEIGHT = 2.4
X_LABEL = "blocks passed backwards, n"
Y_LABEL = "cumulative block gain"
END_RULE = "last probe with ≥ 10 % of peak lr"
LINE = "#b8b8b8"


def gain_chain(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Cumulative block_gain of every depth and arm against n, on a log axis, at the start and at the end of training.

    Args:
        table: ``tables.gain_chain_rows``.
        style: of the figure.
    """
    connections, depths = arm_order(table["connection"]), sorted(table["depth"].unique())
    limits = _limits(table)
    if is_many(connections):
        return _grid(table, style, connections, depths, limits)
    styles = arm_styles(connections)
    shades = {name: depth_shades(arm.colour, depths) for name, arm in styles.items()}
    moments = [moment for moment in (START, END) if (table["moment"] == moment).any()]
    layout = Layout(left=0.53, right=LEGEND_WIDTH + LABEL_ROOM, wspace=LABEL_ROOM + 0.14)
    figure, axes = panels(style, 1, len(moments), style.page, PANEL_HEIGHT, layout)
    log_y(axes[0, 0], *limits)
    for ax, moment in zip(axes[0], moments, strict=True):
        part = table[table["moment"] == moment]
        whole_axis(ax, int(table["num_blocks"].max()))
        _scalar_lines(ax, int(table["num_blocks"].max()), 0.8 * style.points)
        for (name, depth), chain in part.groupby(["connection", "depth"]):
            _chain(ax, chain, shades[name][depth], styles[name].line)
        panel_label(ax, f"{moment}: step {part['step'].max()}")
        ax.set_xlabel(X_LABEL)
    axes[0, 0].set_ylabel(Y_LABEL)
    legend_beside(figure, style, shades, arm_handles(styles) + _notes(table, limits))
    return figure


def _limits(table: "pd.DataFrame") -> tuple[float, float]:
    """Least and greatest value that the log axis shows; what lies beyond is cut, and the legend says so."""
    if table.empty:
        raise NothingToDraw("no finished run has block_gain (probe=off)")
    known = table[(table["num_blocks"] > 0) & (table["n_seeds"] > 0)]
    if known.empty:
        raise NothingToDraw("no gradient passes a block: every block_gain is 0 or does not exist")
    low, high = (
        float(np.clip(value, 1 / GREATEST_RANGE, GREATEST_RANGE)) for value in (known["low"].min(), known["high"].max())
    )
    return min(low, 1 / LEAST_RANGE), max(high, LEAST_RANGE)


def _grid(
    table: "pd.DataFrame", style: "Style", connections: list[str], depths: list[int], limits: tuple[float, float]
) -> "Figure":
    """A panel for each connection; the step stands above those that ended at another one than most."""
    notes = [grey_handle(f"depth {depth}", color=shade) for depth, shade in depth_shades(GREY, depths).items()]
    lines = grey_handle(f"dⁿ, d = {_list(SCALARS)}", color=LINE, lw=0.8)
    figure, named = grid(style, connections, [*notes, lines])
    log_y(next(iter(named.values())), *limits)
    usual = int(table["step"].mode()[0])
    for name, ax in named.items():
        whole_axis(ax, int(table["num_blocks"].max()))
        _scalar_lines(ax, int(table["num_blocks"].max()), None)
        shades = depth_shades(colour_of(name), depths)
        own = table[table["connection"] == name]
        for depth, chain in own.groupby("depth"):
            _chain(ax, chain, shades[depth], "-")
        others = ", ".join(str(step) for step in sorted(set(own["step"]) - {usual}))
        panel_label(ax, f"step {others}" if others else "", "right")
    cut = "; bands cut at an edge go on" if _is_cut(table, limits) else ""
    axis_labels(figure, style, Y_LABEL, f"{X_LABEL}, at step {usual}, {END_RULE}{cut}")
    return figure


def _scalar_lines(ax: Any, last: int, points: float | None) -> None:
    """The lines dⁿ; with a font size also their d where they leave the panel; a label that has no room is left out."""
    n = np.linspace(0, last, 200)
    taken: list[tuple[float, float]] = []
    for d in sorted(SCALARS, key=lambda d: abs(np.log(d))):
        ax.plot(n, scalar_chain(d, n), color=LINE, lw=0.8, zorder=1)
        x, line_end, look = _exit(ax, d, last)
        y = _apart(line_end, d, [b for a, b in taken if a > 1]) if x > 1 else line_end
        near = abs(y - line_end) <= LABEL_SHIFT and 0.01 < y < 0.99
        if points and near and all(abs(x - a) > LABEL_GAP or abs(y - b) > 0.99 * LABEL_STEP for a, b in taken):
            taken.append((x, y))
            ax.text(x, y, f"{d:g}ⁿ", transform=ax.transAxes, color=GREY, fontsize=points, clip_on=False, **look)


def _apart(y: float, d: float, taken: Sequence[float]) -> float:
    """Height of a label beside the panel: at its line, or just beyond those of the d that are nearer to 1."""
    if not taken:
        return y
    return max(y, max(taken) + LABEL_STEP) if d > 1 else min(y, min(taken) - LABEL_STEP)


def _exit(ax: Any, d: float, last: int) -> tuple[float, float, dict[str, Any]]:
    """Where dⁿ leaves the panel, as shares of its width and height, and how its label stands there."""
    low, high = np.log(ax.get_ylim())
    left, right = ax.get_xlim()
    slope = float(np.log(d))
    end = (slope * last - low) / (high - low)
    if 0.02 < end < 0.98:
        return 1.01, end, {"va": "center", "ha": "left"}
    edge = high if slope > 0 else low
    x = (edge / slope - left) / (right - left)
    y, va = (0.985, "top") if slope > 0 else (0.015, "bottom")
    return x - 0.05, y, {"va": va, "ha": "right"}


def _chain(ax: Any, chain: "pd.DataFrame", colour: Any, line: Any) -> None:
    shown = chain[chain["n_seeds"] > 0]
    ax.fill_between(shown["num_blocks"], shown["low"], shown["high"], color=colour, alpha=0.15, lw=0, zorder=2)
    ax.plot(shown["num_blocks"], shown["value"], color=colour, ls=line, lw=1.2, zorder=3)
    last = shown.iloc[-1]
    mark = "x" if len(shown) < len(chain) else "."
    ax.plot(last["num_blocks"], last["value"], mark, ms=4.5, color=colour, zorder=4)


def _is_cut(table: "pd.DataFrame", limits: tuple[float, float]) -> bool:
    return bool((table["low"] < limits[0]).any() or (table["high"] > limits[1]).any())


def _notes(table: "pd.DataFrame", limits: tuple[float, float]) -> list[Any]:
    from matplotlib.patches import Patch

    half = len(SCALARS) // 2
    scalars = f"scalar chain dⁿ,\nd = {_list(SCALARS[:half])},\n{_list(SCALARS[half:])}"
    notes: list[Any] = [grey_handle(scalars, color=LINE, lw=0.8)]
    if (table["n_seeds"] > 1).any():
        notes.append(Patch(color=GREY, alpha=0.3, lw=0, label="range of the seeds"))
    if (table["n_ended"] > 0).any():
        notes.append(grey_handle("from here on exactly 0\nin every seed", ls="", marker="x", ms=4))
    if _is_cut(table, limits):
        notes.append(grey_handle("bands cut at an edge\ngo on (see the csv)", ls=""))
    notes.append(grey_handle(f"end: {END_RULE.replace(' with ', chr(10) + 'with ')}", ls=""))
    return notes


def _list(numbers: Sequence[float]) -> str:
    return ", ".join(f"{d:g}" for d in numbers)
