"""Training curves in the style of He et al. 2015, Figures 1 and 6, and on a log axis: one shade per depth.

A run that stopped before its budget has a mark at its last finite value. A mean is over at least two seeds; the legend
says over how many.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.curves import DIVERGED, MEAN, UNFINISHED
from plainres.analysis.settings import PLAIN, arm_order
from plainres.figures.axes import LEGEND_WIDTH, Layout, grey_handle, legend_beside, panel_label, panels
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import COLUMNS, is_many
from plainres.figures.style import GREY, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

MAX_COLUMNS = 3
PANEL_HEIGHT, SMALL_HEIGHT = 2.1, 1.1
LAYOUT = Layout(left=0.5, right=LEGEND_WIDTH, wspace=0.24, hspace=0.46)
STOP_MARKS = {DIVERGED: "x", UNFINISHED: "|"}
DASHES = (0, (2.5, 1.5))
ONE_EXAMPLE = (0, (1, 1.5))
SPLITS = {"train_error": "training error (%)", "val_error": "validation error (%)"}


def training_curves(curves: "pd.DataFrame", style: "Style") -> "Figure":
    """Clean training error (solid) and validation error (dashed), in %, against the number of updates.

    Args:
        curves: the table of ``analysis.curves.curves`` for one setting.
        style: of the figure.
    """
    if curves.empty:
        raise NothingToDraw("no run has an evaluation yet")
    figure, axes, shades = _arms(curves, style, "error (%)")
    for connection, ax in axes.items():
        own = curves[curves["connection"] == connection]
        for (depth, metric), part in own.groupby(["depth", "metric"]):
            trained = metric == "train_error"
            look = {"color": shades[connection][depth], "ls": "-" if trained else DASHES}
            _lines(ax, part, 1.5 if trained else 0.9, seeds=trained, **look)
        ax.set_ylim(0, 100)
    _legend(figure, style, shades, [*_notes(curves), grey_handle("validation", ls=DASHES, lw=0.9)], curves)
    return figure


def training_curves_log(curves: "pd.DataFrame", style: "Style") -> "Figure":
    """Clean training error on a log axis: how small the errors are that the linear axis shows as nothing.

    An error of exactly 0 stands at the lower edge, at half of the least mean that is not 0, where the tick says 0. The
    dotted line is 1/N, one wrong example of N.

    Args:
        curves: ``tables.log_curve_rows``.
        style: of the figure.
    """
    count, most = int(curves["num_train"].max()), int(curves["n"].max())
    floor = 100 / count / most / 2
    figure, axes, shades = _arms(curves, style, "training error (%), log scale")
    ticks = {floor: "0", **{value: f"{value:g}" for value in (0.01, 0.1, 1.0, 10.0, 100.0) if value > 2 * floor}}
    for connection, ax in axes.items():
        ax.axhline(100 / count, color=GREY, lw=0.7, ls=ONE_EXAMPLE, zorder=1)
        for depth, part in curves[curves["connection"] == connection].groupby("depth"):
            _lines(ax, part, 1.5, floor=floor, color=shades[connection][depth], ls="-")
        ax.set_yscale("log")
        ax.set_yticks(list(ticks), list(ticks.values()))
        ax.set_yticks([], minor=True)
        ax.set_ylim(floor / 1.3, 130)
    notes = [grey_handle("0: no example wrong", ls=""), grey_handle(f"1/N, N = {count:,}", lw=0.7, ls=ONE_EXAMPLE)]
    _legend(figure, style, shades, [*_notes(curves), *notes], curves)
    return figure


def plain_curves(curves: "pd.DataFrame", style: "Style") -> "Figure":
    """The plain arm alone, as He et al. 2015, Figure 1: training error left, validation error right, a shade per depth.

    Args:
        curves: ``tables.plain_curve_rows``.
        style: of the figure.
    """
    layout = replace(LAYOUT, wspace=0.46)  # room for the label of the right panel
    figure, axes = panels(style, 1, len(SPLITS), style.page, PANEL_HEIGHT, layout, sharex=True)
    shades = depth_shades(arm_styles([PLAIN])[PLAIN].colour, sorted(curves["depth"].unique()))
    for ax, (metric, label) in zip(axes[0], SPLITS.items(), strict=True):
        for depth, part in curves[curves["metric"] == metric].groupby("depth"):
            _lines(ax, part, 1.5, color=shades[depth], ls="-")
        ax.set_ylabel(label)
        ax.set_ylim(0, 100)
        ax.set_xlim(0, max(1, curves["step"].max()))
        ax.set_xlabel(style.updates)
    legend_beside(figure, style, {PLAIN: shades}, [*_notes(curves, "plain"), *stop_handles(curves)])
    return figure


def _arms(curves: "pd.DataFrame", style: "Style", label: str) -> tuple["Figure", dict[str, Any], dict[str, Any]]:
    """A figure with a panel for each connection, and the shades of its depths."""
    connections, depths = arm_order(curves["connection"]), sorted(curves["depth"].unique())
    many = is_many(connections)
    columns = min(COLUMNS if many else MAX_COLUMNS, len(connections))
    rows = -(-len(connections) // columns)
    width = style.page if columns > 1 else style.page * 0.7
    figure, axes = panels(style, rows, columns, width, SMALL_HEIGHT if many else PANEL_HEIGHT, LAYOUT)
    axes = axes.ravel()
    for ax in axes[len(connections) :]:
        ax.remove()
    for i, (ax, connection) in enumerate(zip(axes, connections, strict=False)):
        panel_label(ax, connection)
        ax.set_xlim(0, max(1, curves["step"].max()))  # one for all: a run that stopped early is seen to be short
        if i % columns == 0:
            ax.set_ylabel(label)
        if i + columns >= len(connections):
            ax.set_xlabel(style.updates)
            ax.tick_params(labelbottom=True)
    shades = {name: depth_shades(arm.colour, depths) for name, arm in arm_styles(connections).items()}
    return figure, dict(zip(connections, axes, strict=False)), shades


def _legend(figure: Any, style: "Style", shades: dict[str, Any], notes: Sequence[Any], curves: "pd.DataFrame") -> None:
    """With many connections their colours do not fit a legend's line: grey stands for each of them."""
    depths = sorted(curves["depth"].unique())
    shown = {"any": depth_shades(GREY, depths)} if is_many(list(shades)) else shades
    legend_beside(figure, style, shown, [*notes, *stop_handles(curves)])


def _lines(ax: Any, part: "pd.DataFrame", width: float, seeds: bool = True, floor: float = 0.0, **look: Any) -> None:
    """The mean of one depth, and (thin) each seed with a mark where it stopped; a seed alone is drawn as a mean."""
    means = part[part["series"] == MEAN]
    if len(means):
        ax.plot(means["step"], np.maximum(100 * means["value"], floor), lw=width, zorder=3, **look)
    for _, seed in part[part["series"] != MEAN].groupby("series"):
        thin = len(means) > 0
        if seeds or not thin:
            widths = {"lw": 0.4, "alpha": 0.6} if thin else {"lw": 1.3}
            ax.plot(seed["step"], np.maximum(100 * seed["value"], floor), **widths, **look)
        if seeds:
            mark_stop(ax, seed, look["color"], floor)


def mark_stop(ax: Any, seed: "pd.DataFrame", colour: Any, floor: float = 0.0) -> None:
    """A mark at the last finite value of a run that did not reach its budget, as ``stop_handles`` explains."""
    last = seed.iloc[-1]
    if last["stopped"]:
        mark, y = STOP_MARKS[last["stopped"]], max(100 * last["value"], floor)
        ax.plot(last["step"], y, mark, color=colour, ms=5, mew=1.4, zorder=4, clip_on=False)


def _notes(curves: "pd.DataFrame", what: str = "training") -> list[Any]:
    if not (curves["series"] == MEAN).any():
        return [grey_handle(what)]
    return [grey_handle(f"{what}, mean of\n{mean_of(curves)}"), grey_handle(f"{what}, each seed", lw=0.5)]


def mean_of(curves: "pd.DataFrame") -> str:
    """``5 seeds``, or ``2 to 5 seeds`` where some runs are shorter than others; a mean has at least two."""
    counts = curves.loc[curves["series"] == MEAN, "n"]
    low, high = int(counts.min()), int(counts.max())
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"


def stop_handles(curves: "pd.DataFrame") -> list[Any]:
    """A legend entry for each reason why some run stopped early."""
    found = [why for why in STOP_MARKS if (curves["stopped"] == why).any()]
    return [grey_handle(f"{why}: last value", ls="", marker=STOP_MARKS[why], mew=1.4) for why in found]
