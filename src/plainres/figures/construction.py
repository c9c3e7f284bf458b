"""Training error over updates of networks that start from a shallow one's solution, beside those from scratch."""

from typing import TYPE_CHECKING, Any

from plainres.analysis.curves import MEAN
from plainres.analysis.settings import ONLY_SETTING, arm_order, legend_words
from plainres.figures.axes import (
    Layout,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    panel_label,
    panels,
    step_scale,
)
from plainres.figures.canvas import NothingToDraw
from plainres.figures.curves import mark_stop, stop_handles
from plainres.figures.style import ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

NAME = "construction"
MAX_COLUMNS = 4
PANEL_HEIGHT = 1.5


def construction(curves: "pd.DataFrame", style: "Style") -> "Figure":
    """A panel for each setting (across) and depth (down); x is log(1 + updates), because a solution is lost early.

    Args:
        curves: ``analysis.construction.construction_curves`` with a column ``setting``.
        style: of the figure.
    """
    if curves.empty:
        raise NothingToDraw("no run that starts from a trained network has an evaluation yet")
    cells = sorted({(int(d), str(s)) for d, s in zip(curves["depth"], curves["setting"], strict=True)})
    columns = min(MAX_COLUMNS, curves["setting"].nunique())
    styles = arm_styles(arm_order(curves["connection"]))
    width = style.page if columns > 1 else style.page * 0.7
    handles = _handles(styles, curves)
    across = legend_columns(handles, MAX_COLUMNS, width)
    layout = Layout(left=0.5, top=legend_rows(handles, across) + 0.24, wspace=0.24, hspace=0.36)
    figure, axes = panels(style, -(-len(cells) // columns), columns, width, PANEL_HEIGHT, layout, sharex=True)
    axes = axes.ravel()
    step_scale(axes[0], int(curves["step"].max()))
    axes[0].set_ylim(-2, 100)  # a line at 0 is drawn whole
    for i, (ax, (depth, setting)) in enumerate(zip(axes, cells, strict=False)):
        panel = curves[(curves["depth"] == depth) & (curves["setting"] == setting)]
        for name, look in styles.items():
            _curves(ax, panel[panel["connection"] == name], look)
        where = "" if setting == ONLY_SETTING else f", {setting}"
        panel_label(ax, f"depth {depth}{where}")
        if i % columns == 0:
            ax.set_ylabel("training error (%)")
        if i + columns >= len(cells):
            ax.set_xlabel(style.updates)
            ax.tick_params(labelbottom=True)
    for ax in axes[len(cells) :]:
        ax.remove()
    legend_above(figure, handles, across)
    return figure


def _curves(ax: Any, arm: "pd.DataFrame", style: ArmStyle) -> None:
    means = arm[arm["series"] == MEAN]
    if len(means):
        ax.plot(means["step"], 100 * means["value"], color=style.colour, ls=style.line, lw=1.3, zorder=3)
    for _, seed in arm[arm["series"] != MEAN].groupby("series"):
        alone = not len(means)
        look = {"ls": style.line, "lw": 1.3} if alone else {"ls": "-", "lw": 0.4, "alpha": 0.6}
        ax.plot(seed["step"], 100 * seed["value"], color=style.colour, **look)
        mark_stop(ax, seed, style.colour)


def _handles(styles: dict[str, ArmStyle], curves: "pd.DataFrame") -> list[Any]:
    handles = [grey_handle(legend_words(name), color=s.colour, ls=s.line) for name, s in styles.items()]
    if (curves["series"] == MEAN).any():
        handles.append(grey_handle("one seed", lw=0.4))
    return [*handles, *stop_handles(curves)]
