"""Axes and legends that several figures share."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from plainres.figures.style import GREY, ArmStyle

MIN_GAP = 0.07  # of the axis: depths closer than that on a log axis would print over each other


def grid(figure: Any, rows: int, columns: int, sharex: Any = False, sharey: Any = True) -> Any:
    """A rows × columns array of axes that shares its scales as asked."""
    return figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)


def depth_positions(depths: Sequence[int]) -> dict[int, float]:
    """Where each depth stands on the x axis: by its logarithm, or evenly where labels would collide."""
    logs = [math.log2(d) for d in depths]
    span = logs[-1] - logs[0] if len(logs) > 1 else 1.0
    steps = np.diff(logs) / span if len(logs) > 1 else np.array([1.0])
    if steps.min() < MIN_GAP:
        return {d: float(i) for i, d in enumerate(depths)}
    scale = (len(depths) - 1) / span if len(logs) > 1 else 1.0
    return {d: (x - logs[0]) * scale for d, x in zip(depths, logs, strict=True)}


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


def step_scale(ax: Any, last: int) -> None:
    """log(1 + step) scale: shows step 0 and the dense early steps at their true places."""
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    decades = [0, *[10**k for k in range(1, 9) if 10**k < last * 0.6], last]
    ax.set_xticks(decades, [str(s) for s in decades])


def log_y(ax: Any) -> None:
    """Log axis with decades labelled as powers of 10; half-decades where there is less than one."""
    ax.set_yscale("log")
    ax.grid(True, which="major")


def layer_axis(ax: Any, last: int) -> None:
    """A whole-number axis from 0 to ``last`` with few ticks."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, min_n_ticks=2))
    ax.set_xlim(-0.03 * max(last, 1) - 0.2, max(last, 1) * 1.03 + 0.2)


def panel_label(ax: Any, text: str) -> None:
    """A short label above the top left corner of a panel."""
    ax.set_title(text, loc="left", pad=3)


def arm_handles(styles: dict[str, ArmStyle]) -> list[Any]:
    """A legend entry per connection."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=s.colour, ls=s.line, label=name) for name, s in styles.items()]


def plain_handle(label: str, **look: Any) -> Any:
    """A legend entry in grey, for what is not an arm."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **({"color": GREY} | look), label=label)


def legend_below(figure: Any, handles: list[Any], columns: int = 6, **options: Any) -> None:
    """One legend for all panels, outside them."""
    figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), **options)
