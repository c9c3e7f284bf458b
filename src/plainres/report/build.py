"""`plainres report`: every table and figure of a study, from its files alone.

    results/<study>/report/
        degradation.csv   one row per setting, depth and connection: errors, degradation, gap, with intervals
        runs.csv          one row per run
        audit.csv         one row per matched pair
        construction.csv  one row per run that starts from a trained network, where there are any (docs/construction.md)
        summary.md        the result in words, and how it was computed
        evidence.json     the verdict, and every claim with its interval, rule, runs and status
        evidence.md       the same for a reader
        diagnosis.json    what the numbers of each run show (docs/diagnosis.md), with layers, steps, what to try
        diagnosis.md      the same for a reader
        index.html        all of it on one page, with charts to explore; opens offline
        figures/          PDF, PNG and the CSV each figure drew

Every file is replaced as a whole. The CSVs have equal bytes for equal runs.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock

from plainres.analysis.load import identity_names
from plainres.analysis.settings import ONLY_SETTING
from plainres.errors import UserError
from plainres.figures.construction import NAME as CONSTRUCTION
from plainres.figures.drawing import Drawing
from plainres.figures.paper import FIGURES, FigureTables, paper_figures
from plainres.figures.save import csv_bytes
from plainres.report.across import ACROSS, draw_across, draw_figure, slug
from plainres.report.construction import write_construction
from plainres.report.diagnosis import write_diagnosis
from plainres.report.evidence import evidence_document
from plainres.report.evidence_text import evidence_text
from plainres.report.examine import Echo, ReportResult, examine
from plainres.report.page.write import report_page
from plainres.report.summary import summary_text
from plainres.store import Study, clear_partial, write_atomic, write_json

LOCK = ".report.lock"  # in the study's folder


def build_report(
    path: str | Path, echo: Echo = lambda line: None, beside: Sequence[str | Path] = (), processes: int = 0
) -> ReportResult:
    """Write ``<study>/report/`` anew.

    Args:
        path: the study's folder.
        beside: folders of other studies, whose runs test claims about this one.
        echo: called with a line for each thing that a user should know while it runs.
        processes: how many draw figures beside this one; with fewer than 2 they are drawn here. The bytes are the same.

    Raises:
        UserError: ``path`` is no study, or the report cannot be written (folder, disk).
    """
    start = time.perf_counter()
    folder = Study.open(path).report_dir
    # Of two commands that report on one study, one writes after the other.
    with writable(folder), FileLock(folder.with_name(LOCK)), Drawing(processes) as drawing:
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "figures"):
            clear_partial(place)
        result = examine(path, echo, beside, partial(_draw, drawing))
        _write_tables(result)
        draw_across(result, drawing)
        write_construction(result, drawing)
        write_json(folder / "evidence.json", evidence_document(result))
        write_atomic(folder / "evidence.md", evidence_text(result).encode())
        write_diagnosis(result)
        write_atomic(folder / "index.html", report_page([result], folder).encode())
        drawing.finish()
        _remove_stale(result)
        write_atomic(folder / "summary.md", summary_text(result).encode())
    for line in result.problems:
        echo(f"left out: {line}")
    result.seconds = time.perf_counter() - start
    return result


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """Say in one line why a report cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{place}: cannot write the report ({reason}); make room or the folder writable") from error


def _write_tables(result: ReportResult) -> None:
    runs = result.loaded.runs.drop(columns="folder")
    lists = {name: runs[name].map(_cell_text) for name in identity_names() if name not in ("depth", "seed")}
    first = ["name", "status", "setting", "depth", "connection", "seed", "model"]
    columns = [*first, *[name for name in runs.columns if name not in first]]
    tables = {"degradation": result.verdict.table, "runs": runs.assign(**lists)[columns], "audit": result.audit}
    for name, table in tables.items():
        write_atomic(result.folder / f"{name}.csv", csv_bytes(table))


def _cell_text(value: object) -> object:
    """A list as JSON; numbers by their shortest exact text, so that an id can be computed again from runs.csv."""
    return json.dumps(value) if isinstance(value, list | float) else value


def _draw(drawing: Drawing, result: ReportResult, setting: str, tables: FigureTables) -> None:
    """Every figure of one setting; with several settings each has its name in the file names."""
    suffix = "" if setting == ONLY_SETTING else f"-{slug(setting)}"
    for name, make in paper_figures(tables):
        draw_figure(drawing, result, name, make, f"{name}{suffix}")


def _remove_stale(result: ReportResult) -> None:
    """Delete figures of an earlier report that this one did not draw; files of other names are the user's."""
    known = re.compile(rf"({'|'.join([*FIGURES, *ACROSS, CONSTRUCTION])})(-.*)?")
    for path in sorted((result.folder / "figures").glob("*")):
        ours = path.suffix in (".pdf", ".png", ".csv") and known.fullmatch(path.stem)
        if ours and path.stem not in result.figures:
            path.unlink()
