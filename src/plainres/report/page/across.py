"""Charts that lay settings, or studies read beside this one, next to each other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from plainres.analysis.across import by_rate, by_start, by_steps
from plainres.analysis.cells import Cells
from plainres.report.page.numbers import columns

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult

RUNS = ["connection", "depth", "seed", "x", "train_error", "diverged", "chosen"]
STARTS = ["connection", "depth", "seed", "early", "end"]


def across(result: "ReportResult") -> Iterator[dict[str, Any]]:
    """Error against learning rate and against steps, and the ablation of initial scales, where there are such runs."""
    runs, pool = result.loaded.runs, result.pool
    cells = {str(key): Cells.of(runs, str(key)) for key in sorted(runs["setting"].unique())}
    study = result.loaded.study.name
    for kind, families in (("learning rate", by_rate), ("steps", by_steps)):
        for setting, table in families(cells, pool):
            varied = table.groupby("depth")["x"].transform("nunique") > 1  # one value alone says nothing here
            if varied.any():
                chance = float(table["chance_error"].max())
                yield {"kind": kind, "study": study, "setting": setting, "chance": chance} | columns(
                    table[varied], RUNS
                )
    for setting, table in by_start(cells, pool):
        chance = float(table["chance"].max())
        yield {"kind": "start", "study": study, "setting": setting, "chance": chance} | columns(table, STARTS)
