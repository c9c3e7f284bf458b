"""`plainres compare`: several studies on one page, aligned by depth and connection."""

from collections.abc import Sequence
from pathlib import Path

from plainres.analysis.settings import ONLY_SETTING, arm_order, setting_order
from plainres.analysis.stats import Flag
from plainres.errors import UserError
from plainres.report.build import writable
from plainres.report.evidence import verdict_sentences
from plainres.report.examine import Echo, ReportResult, examine
from plainres.report.numbers import error_text
from plainres.report.page.write import report_page
from plainres.report.terminal import make_console, print_wide
from plainres.store import write_atomic


def compare(paths: Sequence[str | Path], out: str | Path | None, echo: Echo) -> tuple[Path, list[ReportResult]]:
    """Write a page with all of these studies; their own reports stay as they are.

    Args:
        paths: two or more studies' folders.
        out: where to write it; by default ``compare-<name>-<name>.html`` beside the first study.
        echo: called with a line for each thing that a user should know while it runs.

    Returns:
        The page, and what each study says.

    Raises:
        UserError: a path is no study, is named twice, or the page cannot be written.
    """
    places = [Path(path).resolve() for path in paths]
    twice = _repeated([str(place) for place in places])
    if twice or len(paths) < 2:
        raise UserError(f"compare {twice or paths[0]}: name two or more different studies")
    results = [examine(path, echo, num_studies=len(paths)) for path in paths]
    names = [result.loaded.study.name for result in results]
    if same := _repeated(names):
        raise UserError(f"compare: two studies are called {same}; the page could not tell them apart")
    for result in results:
        for line in result.problems:
            echo(f"left out: {result.loaded.study.name}: {line}")
    page = Path(out) if out else places[0].parent / f"compare-{'-'.join(names)}.html"
    with writable(page):
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(page, report_page(results, page.parent.resolve()).encode())
    return page, results


def print_comparison(page: Path, results: Sequence[ReportResult]) -> None:
    """Final training errors of all studies side by side, each study's verdict, and where the page is."""
    from rich import box
    from rich.table import Table

    title = "Final training error %, mean with 95 % interval"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    columns = [(result, setting) for result in results for setting in setting_order(result.verdict.table["setting"])]
    for name in ("depth", "connection"):
        table.add_column(name, no_wrap=True)
    for result, setting in columns:
        where = "" if setting == ONLY_SETTING else f" ({setting})"
        table.add_column(f"{result.loaded.study.name}{where}", justify="right")
    rows = {(row["depth"], row["connection"]) for r in results for row in r.verdict.table.to_dict("records")}
    order = arm_order(connection for _, connection in rows)
    for depth, connection in sorted(rows, key=lambda key: (key[0], order.index(key[1]))):
        cells = [_error(result, setting, depth, connection) for result, setting in columns]
        table.add_row(str(depth), connection, *cells)
    console = make_console()
    print_wide(console, table)
    if any((r.verdict.table["train_error_flag"] == Flag.NO_SPREAD).any() for r in results):
        console.print("* all values equal: the interval is ± 1/N (N training examples)")
    for result in results:
        words = " ".join(verdict_sentences(result))
        console.print(f"{result.loaded.study.name}: {words}", soft_wrap=True, markup=False)
    console.print(f"page: {page}", soft_wrap=True, markup=False)


def _error(result: ReportResult, setting: str, depth: int, connection: str) -> str:
    table = result.verdict.table
    mine = (table["setting"] == setting) & (table["depth"] == depth) & (table["connection"] == connection)
    rows = table[mine].to_dict("records")
    return error_text(rows[0], "train_error").replace("[", r"\[") if rows else "–"


def _repeated(values: Sequence[str]) -> str:
    """The first value that is there twice, or nothing."""
    return next((value for value in values if values.count(value) > 1), "")
