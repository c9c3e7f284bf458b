"""construction.csv and its figure, for a study with runs that start from a trained network; else nothing is written."""

from typing import TYPE_CHECKING

from plainres.analysis.construction import construction_curves, construction_table
from plainres.analysis.curves import curves
from plainres.analysis.settings import is_built
from plainres.figures.construction import NAME
from plainres.figures.drawing import Drawing
from plainres.figures.save import csv_bytes
from plainres.report.across import draw_figure
from plainres.store import write_atomic

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult


def write_construction(result: "ReportResult", drawing: Drawing) -> None:
    """Write the table and the figure over all settings, which are read side by side."""
    import pandas as pd

    runs = result.loaded.runs
    if not is_built(runs).any():
        (result.folder / f"{NAME}.csv").unlink(missing_ok=True)
        return
    write_atomic(result.folder / f"{NAME}.csv", csv_bytes(construction_table(result.loaded)[0]))
    found = [
        construction_curves(curves(result.loaded, part)[0]).assign(setting=setting)
        for setting, part in runs.groupby("setting")
        if is_built(part).any()
    ]
    draw_figure(drawing, result, NAME, lambda: pd.concat(found, ignore_index=True), NAME)
