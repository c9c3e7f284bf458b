"""Training curves in the style of He et al. 2015, Figures 1 and 6: one panel per connection, one shade per depth."""

from typing import TYPE_CHECKING, Any

from plainres.analysis.curves import DIVERGED, MEAN, UNFINISHED
from plainres.analysis.settings import arm_order
from plainres.figures.axes import LEGEND_WIDTH, Layout, grey_handle, legend_beside, panel_label, panels
from plainres.figures.many import COLUMNS, is_many
from plainres.figures.save import Drawn, NothingToDraw, styled
from plainres.figures.style import FULL_WIDTH, GREY, arm_styles, depth_shades

if TYPE_CHECKING:
    import pandas as pd

MAX_COLUMNS = 3
PANEL_HEIGHT, SMALL_HEIGHT = 2.1, 1.1
LAYOUT = Layout(left=0.5, right=LEGEND_WIDTH, wspace=0.24, hspace=0.46)
STOP_MARKS = {DIVERGED: "x", UNFINISHED: "|"}


def training_curves(curves: "pd.DataFrame") -> Drawn:
    """Clean training error (solid) and validation error (dashed), in %, against the number of updates.

    Args:
        curves: the table of ``analysis.curves.curves`` for one setting.
    """
    if curves.empty:
        raise NothingToDraw("no run has an evaluation yet")
    connections = arm_order(curves["connection"])
    depths = sorted(curves["depth"].unique())
    many = is_many(connections)
    columns = min(COLUMNS if many else MAX_COLUMNS, len(connections))
    rows = -(-len(connections) // columns)
    with styled():
        width = FULL_WIDTH if columns > 1 else FULL_WIDTH * 0.7
        figure, axes = panels(rows, columns, width, SMALL_HEIGHT if many else PANEL_HEIGHT, LAYOUT)
        axes = axes.ravel()
        shades = {name: depth_shades(style.colour, depths) for name, style in arm_styles(connections).items()}
        for ax, connection in zip(axes, connections, strict=False):
            _panel(ax, curves[curves["connection"] == connection], shades[connection])
            panel_label(ax, connection)
        for ax in axes[len(connections) :]:
            ax.remove()
        for i, ax in enumerate(axes[: len(connections)]):
            if i % columns == 0:
                ax.set_ylabel("error (%)")
            if i + columns >= len(connections):
                ax.set_xlabel("updates")
                ax.tick_params(labelbottom=True)
        # With many connections their colours do not fit a legend's line: grey stands for each of them.
        legend_beside(figure, {"any": depth_shades(GREY, depths)} if many else shades, _notes(curves))
    return Drawn(figure, curves)


def _panel(ax: Any, curves: "pd.DataFrame", shades: dict[int, Any]) -> None:
    for (depth, metric), part in curves.groupby(["depth", "metric"]):
        trained = metric == "train_error"
        look = {"color": shades[depth], "ls": "-" if trained else (0, (2.5, 1.5))}
        means = part[part["series"] == MEAN]
        if len(means):
            ax.plot(means["step"], 100 * means["value"], lw=1.5 if trained else 0.9, zorder=3, **look)
        for _, seed in part[part["series"] != MEAN].groupby("series"):
            thin = len(means) > 0
            if trained or not thin:
                ax.plot(seed["step"], 100 * seed["value"], lw=0.4 if thin else 1.3, alpha=0.6 if thin else 1, **look)
            if trained:
                _mark_stop(ax, seed, shades[depth])
    ax.set_ylim(0, 100)
    ax.set_xlim(0, max(1, curves["step"].max()))


def _mark_stop(ax: Any, seed: "pd.DataFrame", colour: Any) -> None:
    last = seed.iloc[-1]
    if last["stopped"]:
        mark = STOP_MARKS[last["stopped"]]
        ax.plot(last["step"], 100 * last["value"], mark, color=colour, ms=5, mew=1.4, zorder=4, clip_on=False)


def _notes(curves: "pd.DataFrame") -> list[Any]:
    several = bool((curves["series"] == MEAN).any())
    notes = [grey_handle("training, mean of seeds" if several else "training")]
    if several:
        notes.append(grey_handle("training, each seed", lw=0.5))
    notes.append(grey_handle("validation", ls=(0, (2.5, 1.5)), lw=0.9))
    for why, mark in STOP_MARKS.items():
        if (curves["stopped"] == why).any():
            notes.append(grey_handle(f"{why}: last value", ls="", marker=mark, mew=1.4))
    return notes
