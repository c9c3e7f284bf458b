"""Errors of damaged networks: against the deleted block, or against the distance of the swapped ones."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.lesion import SPLITS, over_seeds
from plainres.analysis.settings import arm_order
from plainres.figures.axes import (
    Layout,
    arm_handles,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    panel_label,
    panels,
    root_scale,
    text_width,
    whole_axis,
)
from plainres.figures.canvas import NothingToDraw
from plainres.figures.style import GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

PANEL_HEIGHT = 1.5
LABELS = {"train": "training error (%)", "val": "validation error (%)"}
X_LABELS = {"block": "deleted block (0 = first)", "distance": "distance of the swapped blocks"}


def lesion(table: "pd.DataFrame", style: "Style", place: str) -> "Figure":
    """Error after each lesion, √ scale: a column for each depth, training error above, validation error below.

    Args:
        table: one row per run and lesion (``theory.lesion``), with run, connection, depth, seed and
            chance_error.
        style: of the figure.
        place: ``block`` for deletions, ``distance`` for swaps.
    """
    if table["train_error"].isna().all():
        raise NothingToDraw("no block can be deleted, or no two change places")
    means, chance = over_seeds(table, place), float(table["chance_error"].max())
    depths = sorted(means["depth"].unique())
    styles = arm_styles(arm_order(means["connection"]))
    handles = arm_handles(styles) + _notes(means, table, place)
    layout = Layout(left=0.5, wspace=0.16, hspace=0.2)
    room = style.scale * (layout.left + layout.right + (len(depths) - 1) * layout.wspace)
    least = text_width([X_LABELS[place]])
    width = max(style.page * (0.62 if len(depths) < 3 else 1), room + least * len(depths))
    columns = legend_columns(handles, 4, width)
    layout = replace(layout, top=layout.top + legend_rows(handles, columns))
    figure, axes = panels(style, len(SPLITS), len(depths), width, PANEL_HEIGHT, layout, sharex="col")
    root_scale(axes[0, 0])
    axes[0, 0].set_yticks([0, 1, 10, 25, 50, 75, 100], ["0", "1", "10", "25", "50", "75", "100"])
    for j, depth in enumerate(depths):
        for i, split in enumerate(SPLITS):
            part = means[(means["depth"] == depth) & (means["split"] == split)]
            axes[i, j].axhline(100 * chance, color=GREY, lw=0.7, ls=(0, (1, 1.5)), zorder=1)
            for name, arm in part.groupby("connection"):
                _arm(axes[i, j], arm, place, styles[str(name)])
        whole_axis(axes[0, j], int(means.loc[means["depth"] == depth, place].max()), 0 if place == "block" else 1)
        panel_label(axes[0, j], f"depth {depth}")
        axes[-1, j].set_xlabel(X_LABELS[place])
    for i, split in enumerate(SPLITS):
        axes[i, 0].set_ylabel(LABELS[split])
    legend_above(figure, handles, columns)
    return figure


def _arm(ax: Any, arm: "pd.DataFrame", place: str, style: ArmStyle) -> None:
    known = arm.set_index(place)
    if place == "block":
        known = known.reindex(np.arange(int(arm[place].max()) + 1))  # one that cannot be deleted leaves a gap
    x = known.index
    ax.fill_between(x, 100 * known["low"], 100 * known["high"], color=style.colour, alpha=0.18, lw=0)
    look = {"color": style.colour, "ls": style.line, "marker": style.marker}
    ax.plot(x, 100 * known["mean"], lw=1, ms=2.6, clip_on=False, **look)
    ax.axhline(100 * arm["intact"].iloc[0], color=style.colour, lw=0.8, ls=(0, (1, 1)), zorder=2)


def _notes(means: "pd.DataFrame", table: "pd.DataFrame", place: str) -> list[Any]:
    from matplotlib.patches import Patch

    notes: list[Any] = [grey_handle("intact, in its arm's colour", lw=0.8, ls=(0, (1, 1)))]
    if (means["n"] > 1).any():
        what = "range of the seeds" if place == "block" else "range of pairs and seeds"
        notes.append(Patch(color=GREY, alpha=0.3, lw=0, label=what))
    notes.append(grey_handle("chance level", lw=0.7, ls=(0, (1, 1.5))))
    if table["train_error"].isna().any():
        notes.append(grey_handle("gap: cannot be deleted (csv says why)", ls=""))
    return notes
