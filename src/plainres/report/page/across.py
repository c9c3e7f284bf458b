"""Charts that lay settings, or studies read beside this one, next to each other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from plainres.analysis.across import by_rate, by_start, by_steps
from plainres.analysis.cells import Cells
from plainres.analysis.settings import setting_order
from plainres.report.page.looks import looks
from plainres.report.page.numbers import columns

if TYPE_CHECKING:
    import pandas as pd

    from plainres.report.examine import ReportResult

RUNS = ["connection", "depth", "seed", "x", "train_error", "diverged", "chosen"]
STARTS = ["connection", "depth", "seed", "early", "end", "diverged", "lr"]


def across(result: "ReportResult") -> Iterator[dict[str, Any]]:
    """Error against learning rate and against steps, and the ablation of initial scales, where there are such runs."""
    runs, pool = result.loaded.runs, result.pool
    cells = {key: Cells.of(runs, key) for key in setting_order(runs["setting"])}
    for kind, families in (("learning rate", by_rate), ("steps", by_steps)):
        for setting, table in families(cells, pool):
            varied = table.groupby("depth")["x"].transform("nunique") > 1  # one value alone says nothing here
            if varied.any():
                yield _chart(result, kind, setting, table[varied], RUNS, float(table["chance_error"].max()))
    for setting, table in by_start(cells, pool):
        yield _chart(result, "start", setting, table, STARTS, float(table["chance"].max()))


def _chart(
    result: "ReportResult", kind: str, setting: str, table: "pd.DataFrame", names: list[str], chance: float
) -> dict[str, Any]:
    study = result.loaded.study.name
    head = {"kind": kind, "study": study, "setting": setting, "chance": chance, "looks": looks(table["connection"])}
    return head | columns(table, names)
