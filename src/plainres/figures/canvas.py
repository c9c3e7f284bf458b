"""An empty figure, matplotlib's settings while one is drawn, and the reason why one is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plainres.figures.styles import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NothingToDraw(Exception):  # noqa: N818 - not an error: the study lacks what the figure shows
    """The tables hold nothing for this figure; the message says what is missing, in one line."""


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Draw with a style's settings and leave the user's as they were."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(style.params)
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of the given size in inches. No pyplot, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure
