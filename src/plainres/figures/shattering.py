"""Autocorrelation of input gradients along a line, between white and brown noise (Balduzzi et al. 2017, Figure 1)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.noise import brown, white
from plainres.analysis.settings import arm_order
from plainres.figures.axes import LEGEND_WIDTH, Layout, arm_handles, grey_handle, legend_beside, panel_label, panels
from plainres.figures.canvas import NothingToDraw
from plainres.figures.style import GREY, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

PANEL_HEIGHT = 2.2
TICKS = (1, 2, 5, 10, 20, 50, 100)
TITLES = {"start": "before training", "end": "trained"}
NOISES: dict[str, Any] = {"brown noise": (brown, (0, (5, 2))), "white noise": (white, (0, (1, 1.5)))}


def shattering(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Mean over seeds for each depth and arm, on a log axis of the lag.

    Args:
        table: connection, depth, seed, moment (start or end), lag, autocorrelation, points (of the line).
        style: of the figure.
    """
    known = table.dropna(subset="autocorrelation")
    if known.empty:
        raise NothingToDraw("every gradient is constant along every line")
    means = known.groupby(["moment", "connection", "depth", "lag"])["autocorrelation"].mean().reset_index()
    points, last, depths = int(known["points"].max()), int(known["lag"].max()), sorted(known["depth"].unique())
    styles = arm_styles(arm_order(known["connection"]))
    shades = {name: depth_shades(arm.colour, depths) for name, arm in styles.items()}
    moments = [moment for moment in TITLES if (known["moment"] == moment).any()]
    width = style.page if len(moments) > 1 else style.page * 0.72
    layout = Layout(left=0.5, right=LEGEND_WIDTH, wspace=0.16)
    figure, axes = panels(style, 1, len(moments), width, PANEL_HEIGHT, layout)
    lags = np.arange(1, last + 1)
    for ax, moment in zip(axes[0], moments, strict=True):
        for noise, line in NOISES.values():
            ax.plot(lags, noise(points, last)[1:], color=GREY, ls=line, lw=0.9, zorder=2)
        for (name, depth), part in means[means["moment"] == moment].groupby(["connection", "depth"]):
            shown = part[part["lag"] > 0]
            look = {"color": shades[name][depth], "ls": styles[name].line}
            ax.plot(shown["lag"], shown["autocorrelation"], lw=1.2, zorder=3, **look)
        ax.set_xscale("log")
        ax.set_xlim(1, last)
        ticks = [tick for tick in TICKS if tick <= last]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.set_xticks([], minor=True)
        ax.set_ylim(-0.35, 1.02)
        ax.set_xlabel(f"lag (of {points} points)")
        panel_label(ax, TITLES[moment])
    axes[0, 0].set_ylabel("autocorrelation of ∂ logit / ∂ input")
    notes = [grey_handle(name, ls=line, lw=0.9) for name, (_, line) in NOISES.items()]
    legend_beside(figure, style, shades, arm_handles(styles) + notes)
    return figure
