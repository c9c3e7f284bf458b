"""The figures of a report that lay several settings, or several studies, beside each other."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from plainres.analysis.across import by_rate, by_start, by_steps
from plainres.analysis.cells import Cells
from plainres.analysis.results import usable
from plainres.analysis.settings import setting_order
from plainres.figures.canvas import NothingToDraw
from plainres.figures.drawing import Drawing
from plainres.figures.tables import error_against_rows, settings_rows

if TYPE_CHECKING:
    import pandas as pd

    from plainres.report.examine import ReportResult

ACROSS = ("error_by_learning_rate", "error_by_steps", "near_identity", "settings")


def draw_across(result: "ReportResult", drawing: Drawing) -> None:
    """The figures that lay settings beside each other; those that there is nothing for are not missed."""
    runs = result.loaded.runs
    all_cells = {key: Cells.of(runs, key) for key in setting_order(runs["setting"])}
    made: list[tuple[str, str, Callable[[], pd.DataFrame]]] = []
    for name, families, rows in (
        ("error_by_learning_rate", by_rate, partial(error_against_rows, label="learning rate")),
        ("error_by_steps", by_steps, partial(error_against_rows, label="steps")),
        ("near_identity", by_start, lambda table: table.sort_values(["connection", "seed"])),
    ):
        found = list(families(all_cells, result.pool))
        for setting, table in found:
            suffix = "" if len(found) == 1 else f"-{slug(setting)}"
            made.append((name, f"{name}{suffix}", partial(rows, table)))
    if len(all_cells) > 1:
        made.append(("settings", "settings", lambda: settings_rows(result.verdict.table, usable(runs))))
    for kind, name, make in made:
        draw_figure(drawing, result, kind, make, name)


def draw_figure(
    drawing: Drawing, result: "ReportResult", kind: str, make: "Callable[[], pd.DataFrame]", name: str
) -> None:
    """Draw one figure into the report; it is named in the result, or why there is nothing to draw."""

    def done(nothing: str) -> None:
        if nothing:
            result.skipped.append((name, nothing))
        else:
            result.figures.append(name)

    try:
        table = make()
    except NothingToDraw as nothing:
        result.skipped.append((name, str(nothing)))
        return
    drawing.save(kind, table, result.folder / "figures", name, done)


def slug(setting: str) -> str:
    """A setting's label as a part of a file name: ``lr=0.1, steps=300`` -> ``lr=0.1_steps=300``."""
    return re.sub(r"[^A-Za-z0-9=.+-]+", "_", setting).strip("_")
