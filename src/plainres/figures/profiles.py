"""Values against layer index: at three moments of training, along the trunk, and He et al. 2015, Figure 7."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.profiles import MOMENTS
from plainres.analysis.settings import arm_order
from plainres.figures.axes import (
    LEGEND_WIDTH,
    Layout,
    arm_handles,
    axis_labels,
    grey_handle,
    legend_above,
    legend_beside,
    legend_columns,
    legend_rows,
    log_y,
    panel_label,
    panels,
    text_width,
    whole_axis,
)
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import is_many, profile_grid, ranked_grid
from plainres.figures.style import GREY, ArmStyle, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

PANEL_HEIGHT = 1.25
LABEL_GAP = 0.12  # between the two labels above a panel
LEGEND_COLUMNS = 4
OUTPUT_NORM = "output norm ‖y‖"


def profiles(profile: "pd.DataFrame", style: "Style", label: str, index_label: str) -> "Figure":
    """One row of panels per moment, one column per depth; log axis; band: from the least to the greatest seed.

    Args:
        profile: ``analysis.profiles.profiles`` for one metric and setting; of one depth if there are many connections.
        style: of the figure.
        label: the metric with its unit, for the y axis.
        index_label: what the x axis counts.
    """
    low, high = _range(profile)
    if is_many(profile["connection"]):
        return profile_grid(profile, style, label, index_label, low, high)
    styles = arm_styles(arm_order(profile["connection"]))
    depths, moments = sorted(profile["depth"].unique()), _moments(profile)
    handles = arm_handles(styles) + _notes(profile)
    labels = [_moment_label(profile, moment) for moment in moments], [f"depth {depth}" for depth in depths]
    least = sum(map(text_width, labels)) + LABEL_GAP * style.scale
    figure, axes = _panels(style, len(moments), len(depths), least, handles, Layout(), sharex="col")
    log_y(axes[0, 0], low, high)
    for i, moment in enumerate(moments):
        for j, depth in enumerate(depths):
            part = profile[(profile["moment"] == moment) & (profile["depth"] == depth)]
            _panel(axes[i, j], part, "layer_index", styles)
            whole_axis(axes[i, j], int(profile.loc[profile["depth"] == depth, "layer_index"].max()))
        panel_label(axes[i, 0], _moment_label(profile, moment))
    for j, depth in enumerate(depths):
        panel_label(axes[0, j], f"depth {depth}", "right")
    axis_labels(figure, style, label, index_label)
    legend_above(figure, handles, legend_columns(handles, LEGEND_COLUMNS, figure.get_size_inches()[0]))
    return figure


def trunk_growth(profile: "pd.DataFrame", style: "Style") -> "Figure":
    """output_norm of each block along depth: one panel per moment, colour = arm, shade = depth."""
    _range(profile)
    low, high = float(profile["value"].min()), float(profile["value"].max())
    if is_many(profile["connection"]):
        return profile_grid(profile, style, OUTPUT_NORM, "block index (0 = first)", low, high)
    styles = arm_styles(arm_order(profile["connection"]))
    depths, moments = sorted(profile["depth"].unique()), _moments(profile)
    shades = {name: depth_shades(arm.colour, depths) for name, arm in styles.items()}
    layout = Layout(left=0.5, right=LEGEND_WIDTH, wspace=0.2)
    figure, axes = panels(style, 1, len(moments), style.page, 2.0, layout, sharex=True)
    log_y(axes[0, 0], low, high)
    for ax, moment in zip(axes[0], moments, strict=True):
        for (name, depth), part in profile[profile["moment"] == moment].groupby(["connection", "depth"]):
            ax.plot(part["layer_index"], part["value"], lw=1.1, color=shades[name][depth], ls=styles[name].line)
            last = part.iloc[-1]
            ax.plot(last["layer_index"], last["value"], ".", ms=5, color=shades[name][depth])
        panel_label(ax, _moment_label(profile, moment))
        whole_axis(ax, int(profile["layer_index"].max()))
        ax.set_xlabel("block index (0 = first)")
    axes[0, 0].set_ylabel(OUTPUT_NORM)
    legend_beside(figure, style, shades, arm_handles(styles) + _notes(profile, band=False, wrap="\n"))
    return figure


def response_std(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Std of every layer's response at the end of training, in layer order (top) and ranked (bottom)."""
    low, high = _range(table)
    if is_many(table["connection"]):
        return ranked_grid(table, style, low, high)
    styles = arm_styles(arm_order(table["connection"]))
    depths = sorted(table["depth"].unique())
    rows = {"layer_index": ("std of response", "layer index"), "rank": ("std, ranked", "rank (0 = largest)")}
    handles = arm_handles(styles) + _notes(table)
    least = text_width([label for _, label in rows.values()])
    figure, axes = _panels(style, 2, len(depths), least, handles, Layout(hspace=0.42))
    log_y(axes[0, 0], low, high)
    for i, (column, (y_label, x_label)) in enumerate(rows.items()):
        axes[i, 0].set_ylabel(y_label)
        for j, depth in enumerate(depths):
            part = table[table["depth"] == depth].sort_values(["connection", column])
            _panel(axes[i, j], part, column, styles)
            whole_axis(axes[i, j], int(part["layer_index"].max()))
            axes[i, j].set_xlabel(x_label)
    for j, depth in enumerate(depths):
        panel_label(axes[0, j], f"depth {depth}")
    legend_above(figure, handles, legend_columns(handles, LEGEND_COLUMNS, figure.get_size_inches()[0]))
    return figure


def _range(profile: "pd.DataFrame") -> tuple[float, float]:
    """Least and greatest positive value."""
    if profile.empty:
        raise NothingToDraw("no finished run has this probe (probe=off, or no such value in these arms)")
    if profile["value"].isna().all():
        raise NothingToDraw("every value is exactly 0")
    return float(profile["low"].min()), float(profile["high"].max())


def _moments(profile: "pd.DataFrame") -> list[str]:
    return [m for m in MOMENTS if (profile["moment"] == m).any()]


def _moment_label(profile: "pd.DataFrame", moment: str) -> str:
    steps = profile.loc[(profile["moment"] == moment) & (profile["n_stopped"] == 0), "step"]
    return moment if steps.empty else f"{moment}: step {steps.max()}"


def _panels(
    style: "Style", rows: int, columns: int, least: float, handles: list[Any], layout: Layout, sharex: Any = False
) -> tuple["Figure", Any]:
    room = style.scale * (layout.left + layout.right + (columns - 1) * layout.wspace)
    width = max(style.page if columns > 2 else style.page * 0.62, room + columns * least)
    top = layout.top + legend_rows(handles, legend_columns(handles, LEGEND_COLUMNS, width))
    return panels(style, rows, columns, width, PANEL_HEIGHT, replace(layout, top=top), sharex=sharex)


def _panel(ax: Any, part: "pd.DataFrame", column: str, styles: dict[str, ArmStyle]) -> None:
    for name, arm in part.groupby("connection"):
        style = styles[name]
        # A layer without a value leaves a gap; it is not bridged.
        x = np.arange(int(arm[column].max()) + 1)
        arm = arm.set_index(column).reindex(x)
        ax.fill_between(x, arm["low"], arm["high"], color=style.colour, alpha=0.22, lw=0)
        ax.plot(x, arm["value"], color=style.colour, ls=style.line, lw=1.1)
        zeros = x[(arm["n_zero"] > 0).to_numpy()]
        ax.plot(zeros, np.full(len(zeros), 0.02), "v", ms=2.5, mfc="none", mew=0.5, color=style.colour,
                transform=ax.get_xaxis_transform())  # fmt: skip


def _notes(profile: "pd.DataFrame", band: bool = True, wrap: str = " ") -> list[Any]:
    from matplotlib.patches import Patch

    notes: list[Any] = []
    if band and (profile["n"] > 1).any():
        notes.append(Patch(color=GREY, alpha=0.3, lw=0, label="range of the seeds"))
    if (profile["n_zero"] > 0).any():
        notes.append(grey_handle(f"exactly 0{wrap}in some seed", ls="", marker="v", mfc="none", ms=3))
    # An entry for each arm: one for all of them would be wider than a narrow figure.
    for name, stopped in profile[profile["n_stopped"] > 0].groupby("connection"):
        depths = ", ".join(str(depth) for depth in sorted(stopped["depth"].unique()))
        notes.append(grey_handle(f"some seeds diverged:{wrap}{name} {depths}", ls=""))
    return notes
