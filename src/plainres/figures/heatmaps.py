"""Layer × step maps: one column per connection, one row per depth (the deepest), one colour scale.

With many connections only the deepest nets are shown, and the columns wrap.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import arm_order
from plainres.figures.axes import Layout, log_ticks, panel_label, panels, step_scale, text_width
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import COLUMNS, is_many

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

NO_VALUE = "#d9d9d9"
COLOURS = "cividis"  # even in lightness: reads in grey, and alike for the colour-blind
CLIP = (0.001, 0.999)  # quantiles that span the colours; the ends are marked as open
PANEL_HEIGHT = 1.5
BAR_WIDTH = 0.12
X_LABEL = "step, log(1 + step) scale"
LAYOUT = Layout(left=0.5, right=0.92, wspace=0.24)


def heatmap(table: "pd.DataFrame", style: "Style", label: str, index_label: str) -> "Figure":
    """Values over layer (up) and step (right, log scale); grey: no value, exactly 0, or a run that has stopped.

    Args:
        table: ``analysis.profiles.maps`` for one metric and setting; of one depth if there are many connections.
        style: of the figure.
        label: the metric with its unit, for the colour bar.
        index_label: what the y axis counts.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    drawn = table.dropna(subset="value")
    if drawn.empty:
        raise NothingToDraw("no finished run has this probe (probe=off, or no such value in these arms)")
    connections, depths = arm_order(drawn["connection"]), sorted(drawn["depth"].unique())
    low, high = (float(drawn["value"].quantile(q)) for q in CLIP)
    norm = LogNorm(low, high if high > low else low * 1.01)
    cells = [(depth, name) for depth in depths for name in connections]
    columns = COLUMNS if is_many(connections) else len(connections)
    rows = -(-len(cells) // columns)
    titles = [f"{name}, depth {depth}" for depth, name in cells]
    room = style.scale * (LAYOUT.left + LAYOUT.right + (columns - 1) * LAYOUT.wspace)
    width = max(style.page if columns > 1 else style.page * 0.62, room + columns * text_width([X_LABEL, *titles]))
    figure, axes = panels(style, rows, columns, width, PANEL_HEIGHT, LAYOUT, sharex=True, sharey="row")
    step_scale(axes[0, 0], int(drawn["step"].max()))
    for ax in axes.ravel()[len(cells) :]:
        ax.remove()
    for i, ((depth, name), ax) in enumerate(zip(cells, axes.ravel(), strict=False)):
        mesh = _panel(ax, drawn[(drawn["depth"] == depth) & (drawn["connection"] == name)], norm)
        panel_label(ax, f"{name}, depth {depth}")
        if i % columns == 0:
            ax.set_ylabel(index_label)
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        if i + columns >= len(cells):
            ax.set_xlabel(X_LABEL)
            ax.tick_params(labelbottom=True)
    _colour_bar(figure, style, mesh, norm, label)
    return figure


def _colour_bar(figure: Any, style: "Style", mesh: Any, norm: Any, label: str) -> None:
    from matplotlib.ticker import NullLocator

    width, height = figure.get_size_inches()
    room, thick = LAYOUT.scaled(style.scale), BAR_WIDTH * style.scale
    bottom, top = room.bottom / height, 1 - room.top / height
    place = figure.add_axes((1 - (room.right - thick) / width, bottom, thick / width, top - bottom))
    bar = figure.colorbar(mesh, cax=place, extend="both", extendfrac=0.03)
    ticks = log_ticks(norm.vmin, norm.vmax)
    bar.set_ticks([value for value, _ in ticks], labels=[text for _, text in ticks])
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.grid(False)
    bar.set_label(label)
    bar.outline.set_linewidth(0.5)


def _panel(ax: Any, part: "pd.DataFrame", norm: Any) -> Any:
    ax.set_facecolor(NO_VALUE)
    ax.grid(False)
    if part.empty:  # this arm has no net of this depth: an all-grey panel says so
        return ax.pcolormesh([[np.nan]], norm=norm, cmap=COLOURS)
    layers = np.arange(int(part["layer_index"].max()) + 1)
    cells = part.pivot(index="layer_index", columns="step", values="value").reindex(layers)
    edges = _edges(cells.columns.to_numpy(dtype=float))
    rows = np.arange(len(layers) + 1) - 0.5
    return ax.pcolormesh(edges, rows, cells.to_numpy(dtype=float), norm=norm, cmap=COLOURS, rasterized=True)


def _edges(steps: np.ndarray) -> np.ndarray:
    """Borders of the cells: half-way between two probe steps on the log(1 + step) axis."""
    axis = np.log1p(steps)
    middle = (axis[1:] + axis[:-1]) / 2
    return np.asarray(np.expm1(np.concatenate([axis[:1], middle, axis[-1:] + (0.02 if len(axis) == 1 else 0)])))
