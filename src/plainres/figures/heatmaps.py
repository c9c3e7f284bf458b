"""Layer × step maps: one column per connection, one row per depth (the deepest), one colour scale."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import arm_order
from plainres.figures.axes import grid, panel_label, step_scale
from plainres.figures.save import Drawn, NothingToDraw, new_figure, styled
from plainres.figures.style import FULL_WIDTH

if TYPE_CHECKING:
    import pandas as pd

NO_VALUE = "#d9d9d9"
CLIP = (0.005, 0.995)  # quantiles that span the colours; the ends are marked as open


def heatmap(table: "pd.DataFrame", label: str, index_label: str) -> Drawn:
    """Values over layer (up) and step (right, log scale); grey: no value, exactly 0, or a run that has stopped.

    Args:
        table: the table of ``analysis.profiles.maps`` for one metric and setting.
        label: the metric with its unit, for the colour bar.
        index_label: what the y axis counts.
    """
    from matplotlib.colors import LogNorm

    drawn = table.dropna(subset="value")
    if drawn.empty:
        raise NothingToDraw("no finished run has this probe (probe=off, or no such value in these arms)")
    connections, depths = arm_order(drawn["connection"]), sorted(drawn["depth"].unique())
    low, high = (float(drawn["value"].quantile(q)) for q in CLIP)
    norm = LogNorm(low, high if high > low else low * 1.01)
    with styled():
        width = max(FULL_WIDTH if len(connections) > 1 else FULL_WIDTH * 0.62, 2.4 * len(connections))
        figure = new_figure(width, 0.5 + 1.75 * len(depths))
        axes = grid(figure, len(depths), len(connections), sharex=True, sharey="row")
        for i, depth in enumerate(depths):
            for j, name in enumerate(connections):
                part = drawn[(drawn["depth"] == depth) & (drawn["connection"] == name)]
                mesh = _panel(axes[i, j], part, norm)
                panel_label(axes[i, j], f"{name}, depth {depth}")
            axes[i, 0].set_ylabel(index_label)
        step_scale(axes[0, 0], int(drawn["step"].max()))
        axes[0, 0].set_xlim(0, None)
        for ax in axes[-1]:
            ax.set_xlabel("step, log(1 + step) scale")
        bar = figure.colorbar(mesh, ax=axes, extend="both", pad=0.02, aspect=30)
        bar.set_label(label)
        bar.outline.set_linewidth(0.5)
    return Drawn(figure, table)


def _panel(ax: Any, part: "pd.DataFrame", norm: Any) -> Any:
    ax.set_facecolor(NO_VALUE)
    ax.grid(False)
    layers = np.arange(int(part["layer_index"].max() if len(part) else 0) + 1)
    cells = part.pivot(index="layer_index", columns="step", values="value").reindex(layers)
    steps = cells.columns.to_numpy(dtype=float)
    values = np.ma.masked_invalid(cells.to_numpy(dtype=float)) if len(steps) else np.ma.masked_all((len(layers), 1))
    edges = _edges(steps) if len(steps) else np.array([0.0, 1.0])
    return ax.pcolormesh(
        edges, np.arange(len(layers) + 1) - 0.5, values, norm=norm, cmap="cividis", rasterized=True
    )


def _edges(steps: np.ndarray) -> np.ndarray:
    """Borders of the cells: half-way between two probe steps on the log(1 + step) axis."""
    axis = np.log1p(steps)
    middle = (axis[1:] + axis[:-1]) / 2
    return np.asarray(np.expm1(np.concatenate([axis[:1], middle, axis[-1:] + (0.02 if len(axis) == 1 else 0)])))
