"""Extreme singular values of Jacobians: of each block, before and after its post, and of the trunk from end to end."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import arm_order
from plainres.figures.axes import (
    Layout,
    arm_handles,
    depth_axis,
    depth_positions,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    log_y,
    panel_label,
    panels,
    whole_axis,
)
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import is_many, profile_grid
from plainres.figures.style import GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

SUM, BLOCK, TRUNK = "jacobian_sum", "jacobian", "end_to_end"
TITLES = {SUM: "sum before post (I + J)", BLOCK: "whole block", TRUNK: "end to end"}
METRICS = [(scope, f"{name}_{end}") for name, scope in ((SUM, "block"), (BLOCK, "block"), (TRUNK, "trunk"))
           for end in ("top", "bottom")]  # fmt: skip
MOMENTS = ("start", "end")
PANEL_HEIGHT = 1.5
LABEL = "largest singular value of the sum before post (I + J)"
LOOKS: dict[str, Any] = {"top": {"lw": 1.3}, "bottom": {"lw": 0.7, "mfc": "none"}}


def jacobian(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Largest (thick) and smallest (thin) singular values at the first and the last probed step, log axes.

    Left and middle: each block of the deepest networks; right: the trunk as a whole against depth.

    Args:
        table: ``tables.jacobian_rows``.
        style: of the figure.
    """
    if table.empty:
        raise NothingToDraw("no finished run has this probe (probe=jacobian)")
    if table["value"].isna().all():
        raise NothingToDraw("every singular value is exactly 0")
    if is_many(table["connection"]):
        return profile_grid(table, style, LABEL, "block index (0 = first)", *_range(table))
    styles, depth = arm_styles(arm_order(table["connection"])), int(table["depth"].max())
    moments = [moment for moment in MOMENTS if (table["moment"] == moment).any()]
    handles = arm_handles(styles) + _notes(table)
    columns = legend_columns(handles, 5, style.page)
    layout = Layout(wspace=0.42, hspace=0.22, top=Layout.top + legend_rows(handles, columns))
    figure, axes = panels(style, len(moments), 3, style.page, PANEL_HEIGHT, layout, sharex="col", sharey="col")
    for j, name in enumerate(TITLES):
        own = table[table["metric"].str.fullmatch(f"{name}_(top|bottom)")]
        shown = own if name == TRUNK else own[own["depth"] == depth]
        log_y(axes[0, j], *_range(shown))
        for i, moment in enumerate(moments):
            axes[i, j].axhline(1, color=GREY, lw=0.6, zorder=1)
            _panel(axes[i, j], shown[shown["moment"] == moment], name, styles)
        _x_axis(axes[-1, j], shown, name)
        panel_label(axes[0, j], TITLES[name] if name == TRUNK else f"{TITLES[name]}, depth {depth}")
    for i, moment in enumerate(moments):
        axes[i, 0].set_ylabel(f"singular value\n{moment}: step {table.loc[table['moment'] == moment, 'step'].max()}")
    legend_above(figure, handles, columns)
    return figure


def _range(table: "pd.DataFrame") -> tuple[float, float]:
    """Least and greatest value, 1 among them."""
    return float(np.nanmin([1, table["low"].min()])), float(np.nanmax([1, table["high"].max()]))


def _x_axis(ax: Any, shown: "pd.DataFrame", name: str) -> None:
    if name == TRUNK:
        depth_axis(ax, depth_positions(sorted(shown["depth"].unique())))
    else:
        whole_axis(ax, int(shown["layer_index"].max()))
        ax.set_xlabel("block index (0 = first)")


def _panel(ax: Any, part: "pd.DataFrame", name: str, styles: dict[str, ArmStyle]) -> None:
    positions = depth_positions(sorted(part["depth"].unique())) if name == TRUNK else {}
    for (connection, metric), arm in part.groupby(["connection", "metric"]):
        style, look = styles[str(connection)], LOOKS[str(metric).rpartition("_")[2]]
        if name == TRUNK:
            arm, look = arm.sort_values("depth"), look | {"marker": style.marker, "ms": 3.5, "clip_on": False}
            x = np.array([positions[depth] for depth in arm["depth"]])
        else:
            x = arm["layer_index"].to_numpy()
        ax.plot(x, arm["value"], color=style.colour, ls=style.line, **look)
        ax.fill_between(
            x, arm["low"].to_numpy(float), arm["high"].to_numpy(float), color=style.colour, alpha=0.18, lw=0
        )
        zeros = x[(arm["n_zero"] > 0).to_numpy()]
        ax.plot(zeros, np.full(len(zeros), 0.02), "v", ms=2.5, mfc="none", mew=0.5, color=style.colour,
                transform=ax.get_xaxis_transform())  # fmt: skip


def _notes(table: "pd.DataFrame") -> list[Any]:
    from matplotlib.patches import Patch

    notes: list[Any] = [grey_handle("largest", **LOOKS["top"]), grey_handle("smallest", **LOOKS["bottom"])]
    if (table["n"] > 1).any():
        notes.append(Patch(color=GREY, alpha=0.3, lw=0, label="range of the seeds"))
    if (table["n_zero"] > 0).any():
        notes.append(grey_handle("smallest is 0 in some seed", ls="", marker="v", mfc="none", ms=3))
    return notes
