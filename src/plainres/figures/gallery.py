"""Every figure there is, by name: how its table is drawn. One way to draw for the report and for every style."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from plainres.figures.across import error_against, near_identity, settings
from plainres.figures.canvas import styled
from plainres.figures.construction import construction
from plainres.figures.curves import plain_curves, training_curves, training_curves_log
from plainres.figures.degradation import degradation
from plainres.figures.gain_chain import gain_chain
from plainres.figures.gap import paired_gap
from plainres.figures.heatmaps import heatmap
from plainres.figures.jacobian import jacobian
from plainres.figures.lesion import lesion
from plainres.figures.profiles import profiles, response_std, trunk_growth
from plainres.figures.shattering import shattering
from plainres.figures.shortcuts import shortcut_table
from plainres.figures.styles import REPORT, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Draw = Callable[["pd.DataFrame", Style], "Figure"]
LAYER = "layer index (0 = stem)"
BLOCK = "block index (0 = first)"
PER_LAYER = {
    "grad_norm": ("layer", "gradient norm ‖∂L/∂W‖", LAYER),
    "update_ratio": ("layer", "update ratio ‖ΔW‖ / ‖W‖", LAYER),
    "branch_ratio": ("block", "branch ratio ‖F(x)‖ / ‖h(x)‖", BLOCK),
}
NOT_A_RATIO = "‖F(x)‖ / ‖x‖ (no addition: not a residual ratio)"
KINDS: dict[str, Draw] = {
    "training_curves": training_curves,
    "training_curves_log": training_curves_log,
    "plain_curves": plain_curves,
    "degradation": degradation,
    "paired_gap": paired_gap,
    "shortcut_table": shortcut_table,
    **{f"profiles_{m}": partial(profiles, label=label, index_label=i) for m, (_, label, i) in PER_LAYER.items()},
    **{f"heatmap_{m}": partial(heatmap, label=label, index_label=i) for m, (_, label, i) in PER_LAYER.items()},
    "profiles_branch_over_input": partial(profiles, label=NOT_A_RATIO, index_label=BLOCK),
    "trunk_growth": trunk_growth,
    "response_std": response_std,
    "gain_chain": gain_chain,
    "jacobian": jacobian,
    "error_by_learning_rate": partial(error_against, label="learning rate"),
    "error_by_steps": partial(error_against, label="steps"),
    "near_identity": near_identity,
    "settings": settings,
    "construction": construction,
    "lesion_delete": partial(lesion, place="block"),
    "lesion_swap": partial(lesion, place="distance"),
    "shattering": shattering,
}


def draw(kind: str, table: "pd.DataFrame", style: Style = REPORT) -> "Figure":
    """Draw a table.

    Args:
        kind: a key of ``KINDS``.
        table: the figure's own, as its CSV holds it (``save.read_csv``).
        style: its sizes and fonts.

    Raises:
        NothingToDraw: the table holds nothing that could be shown.
    """
    with styled(style):
        figure = KINDS[kind](table, style)
        _widen_lines(figure, style.lines)
        _thin_ticks(figure, style.ticks)
    return figure


def _widen_lines(figure: "Figure", factor: float) -> None:
    """Widths of lines and sizes of markers are written in the code as the report has them."""
    from matplotlib.lines import Line2D

    lines = [line for ax in figure.axes for line in ax.lines]
    lines += [line for legend in figure.legends for line in legend.findobj(Line2D)]
    for line in lines:
        line.set_linewidth(factor * line.get_linewidth())
        line.set_markersize(factor * line.get_markersize())
        line.set_markeredgewidth(factor * line.get_markeredgewidth())
    for collection in (one for ax in figure.axes for one in ax.collections):
        collection.set_linewidth([factor * width for width in np.atleast_1d(collection.get_linewidth())])


def _thin_ticks(figure: "Figure", most: int | None) -> None:
    """At most so many intervals on axes whose ticks matplotlib has chosen."""
    from matplotlib.ticker import AutoLocator, MaxNLocator

    if most is None:
        return
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        if type(axis.get_major_locator()) is AutoLocator:
            axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))
