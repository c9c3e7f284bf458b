"""Values against layer index: at three moments of training, along the trunk, and He et al. 2015, Figure 7."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.profiles import MOMENTS, ranked
from plainres.analysis.settings import arm_order
from plainres.figures.axes import arm_handles, grid, layer_axis, legend_below, log_y, panel_label, plain_handle
from plainres.figures.save import Drawn, NothingToDraw, new_figure, styled
from plainres.figures.style import FULL_WIDTH, PANEL_HEIGHT, ArmStyle, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd

COLUMN_INCHES = 1.55


def profiles(profile: "pd.DataFrame", label: str, index_label: str) -> Drawn:
    """One row of panels per moment, one column per depth; log axis; band: from the least to the greatest seed.

    Args:
        profile: the table of ``analysis.profiles.profiles`` for one metric and setting.
        label: the metric with its unit, for the y axis.
        index_label: what the x axis counts.
    """
    _require(profile)
    styles = arm_styles(arm_order(profile["connection"]))
    depths = sorted(profile["depth"].unique())
    moments = [m for m in MOMENTS if (profile["moment"] == m).any()]
    with styled():
        figure = _figure(len(moments), len(depths))
        axes = grid(figure, len(moments), len(depths), sharex="col")
        log_y(axes[0, 0])
        for i, moment in enumerate(moments):
            for j, depth in enumerate(depths):
                part = profile[(profile["moment"] == moment) & (profile["depth"] == depth)]
                _panel(axes[i, j], part, "layer_index", styles)
                layer_axis(axes[i, j], int(profile.loc[profile["depth"] == depth, "layer_index"].max()))
            steps = profile.loc[(profile["moment"] == moment) & (profile["n_stopped"] == 0), "step"]
            panel_label(axes[i, 0], moment if steps.empty else f"{moment}: step {steps.max()}")
        for j, depth in enumerate(depths):
            axes[0, j].set_title(f"depth {depth}", loc="right", pad=3)
        figure.supylabel(label, fontsize=7.5)
        figure.supxlabel(index_label, fontsize=7.5)
        legend_below(figure, arm_handles(styles) + _notes(profile))
    return Drawn(figure, profile)


def trunk_growth(profile: "pd.DataFrame") -> Drawn:
    """output_norm of each block along depth: one panel per moment, colour = arm, shade = depth."""
    _require(profile)
    styles = arm_styles(arm_order(profile["connection"]))
    depths = sorted(profile["depth"].unique())
    moments = [m for m in MOMENTS if (profile["moment"] == m).any()]
    shades = {name: depth_shades(style.colour, depths) for name, style in styles.items()}
    with styled():
        figure = new_figure(FULL_WIDTH, 2.5)
        axes = grid(figure, 1, len(moments), sharex=True)[0]
        log_y(axes[0])
        for ax, moment in zip(axes, moments, strict=True):
            for (name, depth), part in profile[profile["moment"] == moment].groupby(["connection", "depth"]):
                look = {"color": shades[name][depth], "ls": styles[name].line}
                ax.plot(part["layer_index"] + 1, part["value"], lw=1.2, **look)
                ax.plot(part["layer_index"].iloc[-1] + 1, part["value"].iloc[-1], ".", color=shades[name][depth])
            panel_label(ax, moment)
            layer_axis(ax, int(profile["layer_index"].max()) + 1)
            ax.set_xlabel("block (1 = first after the stem)")
        axes[0].set_ylabel("output norm ‖y‖ (mean over samples)")
        handles = [
            plain_handle(f"{name}, depth {depth}", color=shades[name][depth], ls=style.line)
            for name, style in styles.items()
            for depth in depths
        ]
        legend_below(figure, handles + _notes(profile, band=False), columns=len(depths) if len(styles) > 1 else 6)
    return Drawn(figure, profile)


def response_std(profile: "pd.DataFrame") -> Drawn:
    """Std of every layer's response at the end of training, in layer order (top) and ranked (bottom)."""
    table = ranked(profile)
    _require(table)
    styles = arm_styles(arm_order(table["connection"]))
    depths = sorted(table["depth"].unique())
    rows = {"layer_index": "layer, in forward order", "rank": "layer, ranked by value"}
    with styled():
        figure = _figure(2, len(depths))
        axes = grid(figure, 2, len(depths), sharex="col")
        for i, (column, text) in enumerate(rows.items()):
            for j, depth in enumerate(depths):
                part = table[table["depth"] == depth].sort_values(["connection", column])
                _panel(axes[i, j], part, column, styles)
                layer_axis(axes[i, j], int(table.loc[table["depth"] == depth, "layer_index"].max()))
            panel_label(axes[i, 0], text)
        for j, depth in enumerate(depths):
            axes[0, j].set_title(f"depth {depth}", loc="right", pad=16 if j == 0 else 3)
        axes[0, 0].set_ylim(bottom=0)
        figure.supylabel("std of response", fontsize=7.5)
        figure.supxlabel("layer index, or rank", fontsize=7.5)
        legend_below(figure, arm_handles(styles) + _notes(table))
    return Drawn(figure, table)


def _require(profile: "pd.DataFrame") -> None:
    if profile.empty:
        raise NothingToDraw("no finished run has this probe (probe=off, or no such value in these arms)")


def _figure(rows: int, columns: int) -> Any:
    width = max(FULL_WIDTH if columns > 2 else FULL_WIDTH * 0.62, COLUMN_INCHES * columns)
    return new_figure(width, 0.7 + PANEL_HEIGHT * rows)


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


def _notes(profile: "pd.DataFrame", band: bool = True) -> list[Any]:
    from matplotlib.patches import Patch

    notes: list[Any] = []
    if band and (profile["n"] > 1).any():
        notes.append(Patch(color="#555555", alpha=0.3, lw=0, label="range of the seeds"))
    if (profile["n_zero"] > 0).any():
        notes.append(plain_handle("exactly 0 in some seed", ls="", marker="v", mfc="none", ms=3))
    for name, arm in profile[profile["n_stopped"] > 0].groupby("connection"):
        depths = ", ".join(str(d) for d in sorted(arm["depth"].unique()))
        notes.append(plain_handle(f"{name}, depth {depths}: diverged, ends early", ls=""))
    return notes
