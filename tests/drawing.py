"""Drawing the figures of fake studies, and looking at the texts in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from plainres.analysis.curves import curves
from plainres.analysis.degradation import judge
from plainres.analysis.gain_chain import gain_chain
from plainres.analysis.inside import Inside
from plainres.analysis.load import load_study
from plainres.analysis.results import usable
from plainres.figures.canvas import styled
from plainres.figures.gallery import draw as draw_kind
from plainres.figures.paper import METRICS, FigureTables, paper_figures
from plainres.figures.save import csv_bytes, read_csv
from plainres.figures.styles import REPORT, Style


@dataclass(frozen=True)
class Drawn:
    """A figure and the table it shows."""

    figure: Figure
    table: pd.DataFrame
    style: Style = REPORT


def tables_of(study: Path) -> FigureTables:
    loaded = load_study(study)
    inside = Inside(loaded, loaded.runs, METRICS)
    drawn, _ = curves(loaded, loaded.runs)
    verdict, seeds = judge(loaded.runs), usable(loaded.runs)
    return FigureTables(
        drawn, verdict.table, verdict.pairs, seeds, inside.profile, inside.map, lambda: gain_chain(inside)
    )


def draw(tables: FigureTables, wanted: str, style: Style = REPORT) -> Drawn:
    return drawn_of(wanted, table_of(tables, wanted), style)


def table_of(tables: FigureTables, wanted: str) -> pd.DataFrame:
    """As the CSV holds it."""
    return read_csv(csv_bytes(next(make for name, make in paper_figures(tables) if name == wanted)()))


def drawn_of(kind: str, table: pd.DataFrame, style: Style = REPORT) -> Drawn:
    return Drawn(draw_kind(kind, table, style), table, style)


def drawn_texts(drawn: Drawn) -> Iterator[tuple[str, Any]]:
    """Every text that is drawn, with its box in pixels."""
    seen: list[Text] = []
    real = Text.draw

    def record(self: Text, renderer: Any) -> None:
        if self.get_visible() and self.get_text().strip():
            seen.append(self)
        real(self, renderer)

    with styled(drawn.style), mock.patch.object(Text, "draw", record):
        drawn.figure.canvas.draw()
        for text in seen:
            yield text.get_text(), text.get_window_extent()


def check_texts(drawn: Drawn) -> None:
    boxes = list(drawn_texts(drawn))
    for text, box in boxes:
        assert drawn.figure.bbox.x0 <= box.x0 and box.x1 <= drawn.figure.bbox.x1, f"{text} is cut off"
        assert drawn.figure.bbox.y0 <= box.y0 and box.y1 <= drawn.figure.bbox.y1, f"{text} is cut off"
    for legend in drawn.figure.legends:
        box = legend.get_window_extent().padded(-0.5)
        assert box.x0 >= drawn.figure.bbox.x0 and box.x1 <= drawn.figure.bbox.x1, "the legend is cut off"
    for (text, box), (other, other_box) in combinations(boxes, 2):
        inside = box.padded(-0.5)
        assert not inside.overlaps(other_box), f"{text!r} lies over {other!r}"
