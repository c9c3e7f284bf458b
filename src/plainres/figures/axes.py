"""Panels, scales and legends that several figures share.

Lengths are in inches at the report's font size; ``Style.scale`` turns them into those of a style. Widths of figures are
true inches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.figures.canvas import new_figure
from plainres.figures.style import GREY, ArmStyle
from plainres.figures.styles import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_GAP = 0.07  # of the axis: depths closer than that on a log axis would print over each other
LEGEND_ROW = 0.155
LEGEND_WIDTH = 1.6
LEGEND_MARGIN = 0.04  # texts are a little wider at one resolution than at another
MAX_TICKS = 7
LABEL_LETTERS, LABEL_SMALL = 25, 2 / 3  # what fits above a quarter of the page, and the share of the size beyond
MANTISSAS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(m / 10 for m in range(10, 100)))  # coarse to fine


@dataclass(frozen=True)
class Layout:
    """Room around and between panels. Fixed, so that nothing is solved at drawing time and nothing overlaps."""

    left: float = 0.66
    right: float = 0.1
    bottom: float = 0.42
    top: float = 0.24
    wspace: float = 0.14
    hspace: float = 0.3

    def scaled(self, factor: float) -> "Layout":
        """The same with every length times ``factor``."""
        return Layout(**{item.name: factor * getattr(self, item.name) for item in fields(self)})


def panels(
    style: Style,
    rows: int,
    columns: int,
    width: float,
    panel_height: float,
    layout: Layout,
    sharex: Any = False,
    sharey: Any = True,
) -> tuple["Figure", Any]:
    """A figure of ``width`` with rows × columns panels, and the array of its axes."""
    layout, panel_height = layout.scaled(style.scale), panel_height * style.scale
    height = layout.bottom + layout.top + rows * panel_height + (rows - 1) * layout.hspace
    panel_width = (width - layout.left - layout.right - (columns - 1) * layout.wspace) / columns
    figure = new_figure(width, height)
    where = {
        "left": layout.left / width,
        "right": 1 - layout.right / width,
        "bottom": layout.bottom / height,
        "top": 1 - layout.top / height,
        "wspace": layout.wspace / panel_width,
        "hspace": layout.hspace / panel_height,
    }
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey, gridspec_kw=where)


def depth_positions(depths: Sequence[int]) -> dict[int, float]:
    """Where each depth stands on the x axis: by its logarithm, or evenly where labels would collide."""
    logs = [math.log2(d) for d in depths]
    if len(logs) == 1:
        return {depths[0]: 0.0}
    span = logs[-1] - logs[0]
    if min(np.diff(logs)) / span < MIN_GAP:
        return {d: float(i) for i, d in enumerate(depths)}
    return {d: (x - logs[0]) / span * (len(depths) - 1) for d, x in zip(depths, logs, strict=True)}


def depth_axis(ax: Any, positions: dict[int, float]) -> None:
    """Ticks exactly at the depths."""
    ax.set_xticks(list(positions.values()), [str(d) for d in positions])
    ax.set_xlim(min(positions.values()) - 0.5, max(positions.values()) + 0.5)
    ax.set_xlabel("depth (weighted layers)")


def root_scale(ax: Any) -> None:
    """Square-root scale for errors in %: it has a 0, and separates 0.1 from 0 as well as 65 from 88."""
    ax.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0)), np.square))
    ticks = [0, 1, 5, 10, 25, 50, 75, 100]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.set_ylim(0, 104)


def root_x(ax: Any) -> None:
    """``root_scale`` for the other axis."""
    ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    ticks = [0, 1, 5, 10, 25, 50, 75, 100]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xlim(0, 104)


def step_scale(ax: Any, last: int) -> None:
    """log(1 + step) scale: shows step 0 and the dense early steps at their true places."""
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    marks = [0, *[10**k for k in range(1, 9) if 10**k < last * 0.5], *([last] if last else [])]
    ax.set_xticks(marks, [str(s) for s in marks])
    ax.set_xlim(0, max(last, 1))


def log_y(ax: Any, low: float, high: float) -> None:
    """Log axis that spans the positive values low … high; labels are powers of 10, or 1-2-5 on a short axis."""
    from matplotlib.ticker import NullLocator

    low, high = low / 1.25, high * 1.25
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ticks = log_ticks(low, high)
    ax.set_yticks([value for value, _ in ticks], [text for _, text in ticks])
    ax.yaxis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Ticks of a log axis with their labels."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if last - first < 2:
        exponents = range(first - 2, last + 2)
        for mantissas in MANTISSAS:
            values = [m * 10.0**k for k in exponents for m in mantissas if low <= m * 10.0**k <= high]
            if len(values) >= 3:
                break
        thin = max(1, -(-len(values) // MAX_TICKS))
        return [(value, f"{value:.6g}") for value in values[::thin]]
    stride = -(-(last - first + 1) // MAX_TICKS)
    return [(10.0**k, f"$\\mathregular{{10^{{{k}}}}}$") for k in range(first, last + 1, stride)]


def whole_axis(ax: Any, last: int, first: int = 0) -> None:
    """A whole-number axis from ``first`` to ``last`` with few ticks."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True, min_n_ticks=2))
    room = 0.03 * max(last - first, 1) + 0.1
    ax.set_xlim(first - room, max(last, first + 1) + room)


def panel_label(ax: Any, text: str, side: str = "left") -> None:
    """A short label above a corner of a panel; a long one in smaller letters."""
    import matplotlib as mpl

    usual = float(mpl.rcParams["axes.titlesize"])
    fits = max(map(len, text.split("\n"))) <= LABEL_LETTERS
    ax.set_title(text, loc=side, pad=0.4 * usual, fontsize=usual if fits else LABEL_SMALL * usual)


def axis_labels(figure: Any, style: Style, y_label: str, x_label: str) -> None:
    """One label for all y axes, and one for all x axes."""
    width, height = figure.get_size_inches()
    figure.supylabel(y_label, fontsize=style.points, x=0.09 * style.scale / width)
    figure.supxlabel(x_label, fontsize=style.points, y=0.05 * style.scale / height)


def arm_handles(styles: dict[str, ArmStyle]) -> list[Any]:
    """A legend entry per connection."""
    return [grey_handle(name, color=s.colour, ls=s.line) for name, s in styles.items()]


def grey_handle(label: str, **look: Any) -> Any:
    """A legend entry, in grey unless a colour is given."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **({"color": GREY} | look), label=label)


def text_width(texts: Sequence[str]) -> float:
    """Inches that the longest of these labels takes in the style that is being drawn in."""
    trial = new_figure(1, 1)
    return max(float(trial.text(0, 0, text).get_window_extent().width) for text in texts) / trial.dpi


def legend_rows(handles: list[Any], columns: int) -> float:
    """Inches that ``legend_above`` needs on top of a layout."""
    return LEGEND_ROW * -(-len(handles) // columns)


def legend_columns(handles: list[Any], most: int, width: float) -> int:
    """As many columns, up to ``most``, as fit into a figure of this width; measured on the legend that is drawn."""
    for columns in range(most, 1, -1):
        trial = new_figure(width, 1)
        drawn = legend_above(trial, handles, columns).get_window_extent()
        if drawn.width <= trial.bbox.width - LEGEND_MARGIN * trial.dpi:
            return columns
    return 1


def legend_above(figure: Any, handles: list[Any], columns: int) -> Any:
    """One legend for all panels, along the upper edge."""
    return figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 1), ncols=columns, borderaxespad=0.2, borderpad=0.2,
        labelspacing=0.45, columnspacing=1.4,
    )  # fmt: skip


def legend_beside(figure: Any, style: Style, shades: dict[str, dict[int, Any]], extra: list[Any]) -> None:
    """One legend right of the panels: for each depth its shade in every arm, then the rest."""
    from matplotlib.legend_handler import HandlerTuple

    depths = list(next(iter(shades.values())))
    handles: list[Any] = [
        tuple(grey_handle("", color=arm[depth], lw=1.8, solid_capstyle="butt") for arm in shades.values())
        for depth in depths
    ]
    figure.legend(
        handles=handles + extra,
        labels=[f"depth {depth}" for depth in depths] + [handle.get_label() for handle in extra],
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        loc="upper left",
        bbox_to_anchor=(1 - LEGEND_WIDTH * style.scale / figure.get_size_inches()[0], 1),
        handlelength=3,
        alignment="left",
    )
