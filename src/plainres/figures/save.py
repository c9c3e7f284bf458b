"""One way to keep a figure: the CSV it draws, PDF and PNG; equal bytes for equal tables.

A figure is always drawn from its CSV as read back, so that the CSV alone gives the same figure again, in any style.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.figures.gallery import draw
from plainres.figures.styles import REPORT, Style
from plainres.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd

CSV_FLOATS = "%.7g"  # more digits than an error or a float32 norm carries, and the same text on every machine
# Columns that hold text also where it reads like a number (seeds) or like nothing at all.
TEXT = (
    "setting", "connection", "series", "metric", "moment", "layer_name", "stopped", "run", "kept", "reason", "shortcut",
    "branch", "paper",
)  # fmt: skip
TRUTH = ("diverged", "chosen")


def csv_bytes(table: "pd.DataFrame") -> bytes:
    """A table as CSV with a fixed number format; what does not exist is an empty cell."""
    text: str = table.to_csv(index=False, float_format=CSV_FLOATS, lineterminator="\n")
    return text.encode()


def read_csv(data: bytes) -> "pd.DataFrame":
    """A table that ``csv_bytes`` wrote: numbers are numbers, ``TEXT`` is text, ``TRUTH`` is true or (also empty) false.

    Raises:
        ValueError: the bytes are no such table (pandas says what is wrong).
    """
    import pandas as pd

    head = data.split(b"\n", 1)[0].decode().split(",")
    texts = [name for name in head if name in (*TEXT, *TRUTH)]
    numbers: dict[str, list[str]] = {name: [""] for name in head if name not in texts}
    table = pd.read_csv(io.BytesIO(data), dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=numbers)
    return table.assign(**{name: table[name] == "True" for name in TRUTH if name in table})


def save(kind: str, table: "pd.DataFrame", folder: Path, name: str) -> list[Path]:
    """Write ``name``.csv, .pdf and .png of a figure in the report's style into ``folder``.

    Args:
        kind: which figure, a key of ``gallery.KINDS``.
        table: what it draws.
        folder: made if it is not there.
        name: of the files, without suffix.
    """
    return save_csv(kind, csv_bytes(table), folder, name, REPORT)


def save_csv(kind: str, data: bytes, folder: Path, name: str, style: Style) -> list[Path]:
    """The same from the CSV alone, in any style. Each file is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"csv": data} | images(kind, read_csv(data), style)
    paths = [folder / f"{name}.{suffix}" for suffix in content]
    for path, kept in zip(paths, content.values(), strict=True):
        write_atomic(path, kept)
    return paths


def images(kind: str, table: "pd.DataFrame", style: Style) -> dict[str, bytes]:
    """PNG and PDF, by suffix. Dates and versions stay out of them: equal tables give equal bytes."""
    from plainres.figures.canvas import styled

    figure = draw(kind, table, style)
    with styled(style):
        png, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=style.dpi, metadata={"Software": None})
        meta = {"Creator": None, "Producer": None, "CreationDate": None}
        figure.savefig(pdf, format="pdf", dpi=300, metadata=meta)
    return {"png": png.getvalue(), "pdf": pdf.getvalue()}
