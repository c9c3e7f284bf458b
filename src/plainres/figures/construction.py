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
from plainres.figures.save import Drawn, NothingToDraw, styled
from plainres.figures.style import FULL_WIDTH, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd

NAME = "construction"
MAX_COLUMNS = 4
PANEL_HEIGHT = 1.5


def construction(curves: "pd.DataFrame") -> Drawn:
    """A panel for each setting (across) and depth (down); x is log(1 + updates), because a solution is lost early.

    Args:
        curves: ``analysis.construction.construction_curves`` with a column ``setting``.
    """
    if curves.empty:
        raise NothingToDraw("no run that starts from a trained network has an evaluation yet")
    cells = sorted({(int(d), str(s)) for d, s in zip(curves["depth"], curves["setting"], strict=True)})
    columns = min(MAX_COLUMNS, curves["setting"].nunique())
    styles = arm_styles(arm_order(curves["connection"]))
    with styled():
        width = FULL_WIDTH if columns > 1 else FULL_WIDTH * 0.7
        handles = _handles(styles, bool((curves["series"] == MEAN).any()))
        across = legend_columns(handles, MAX_COLUMNS, width)
        layout = Layout(left=0.5, top=legend_rows(handles, across) + 0.24, wspace=0.24, hspace=0.36)
        figure, axes = panels(-(-len(cells) // columns), columns, width, PANEL_HEIGHT, layout, sharex=True)
        axes = axes.ravel()
        step_scale(axes[0], int(curves["step"].max()))
        axes[0].set_ylim(-2, 100)  # a line at 0 is drawn whole
        for i, (ax, (depth, setting)) in enumerate(zip(axes, cells, strict=False)):
            panel = curves[(curves["depth"] == depth) & (curves["setting"] == setting)]
            for name, style in styles.items():
                _curves(ax, panel[panel["connection"] == name], style)
            where = "" if setting == ONLY_SETTING else f", {setting}"
            panel_label(ax, f"depth {depth}{where}")
            if i % columns == 0:
                ax.set_ylabel("training error (%)")
            if i + columns >= len(cells):
                ax.set_xlabel("updates")
                ax.tick_params(labelbottom=True)
        for ax in axes[len(cells) :]:
            ax.remove()
        legend_above(figure, handles, across)
    return Drawn(figure, curves)


def _curves(ax: Any, arm: "pd.DataFrame", style: ArmStyle) -> None:
    means = arm[arm["series"] == MEAN]
    if len(means):
        ax.plot(means["step"], 100 * means["value"], color=style.colour, ls=style.line, lw=1.3, zorder=3)
    for _, seed in arm[arm["series"] != MEAN].groupby("series"):
        alone = not len(means)
        look = {"ls": style.line, "lw": 1.3} if alone else {"ls": "-", "lw": 0.4, "alpha": 0.6}
        ax.plot(seed["step"], 100 * seed["value"], color=style.colour, **look)


def _handles(styles: dict[str, ArmStyle], several: bool) -> list[Any]:
    handles = [grey_handle(legend_words(name), color=s.colour, ls=s.line) for name, s in styles.items()]
    return [*handles, grey_handle("one seed", lw=0.4)] if several else handles
