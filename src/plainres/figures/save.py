"""One way to draw and to keep a figure: PDF, PNG and the CSV it drew, equal bytes for equal input."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.figures.style import PNG_DPI, RC
from plainres.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CSV_FLOATS = "%.7g"  # more digits than an error or a float32 norm carries, and the same text on every machine


class NothingToDraw(Exception):  # noqa: N818 - not an error: the study lacks what the figure shows
    """The tables hold nothing for this figure; the message says what is missing, in one line."""


@dataclass(frozen=True)
class Drawn:
    """A figure and the table that it shows."""

    figure: "Figure"
    table: "pd.DataFrame"


@contextmanager
def styled() -> Iterator[None]:
    """Draw with our settings and leave the user's as they were."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of the given size in inches. No pyplot, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def csv_bytes(table: "pd.DataFrame") -> bytes:
    """A table as CSV with a fixed number format; what does not exist is an empty cell."""
    text: str = table.to_csv(index=False, float_format=CSV_FLOATS, lineterminator="\n")
    return text.encode()


def save(drawn: Drawn, folder: Path, name: str) -> list[Path]:
    """Write ``name``.pdf, .png and .csv into ``folder``, each whole or not at all.

    Dates and versions stay out of the files, so that drawing the same table again gives the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"csv": csv_bytes(drawn.table)}
    with styled():
        png = io.BytesIO()
        drawn.figure.savefig(png, format="png", dpi=PNG_DPI, metadata={"Software": None})
        pdf = io.BytesIO()
        meta = {"Creator": None, "Producer": None, "CreationDate": None}
        drawn.figure.savefig(pdf, format="pdf", dpi=300, metadata=meta)
    content |= {"png": png.getvalue(), "pdf": pdf.getvalue()}
    paths = [folder / f"{name}.{suffix}" for suffix in content]
    for path, data in zip(paths, content.values(), strict=True):
        write_atomic(path, data)
    return paths
