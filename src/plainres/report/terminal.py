"""What the terminal shows at the end of a sweep or a report: a compact table, onsets, counts, paths."""

import sys
from typing import TYPE_CHECKING, Any

from plainres.analysis.declared import Declaration, declared_lines
from plainres.analysis.settings import ONLY_SETTING, PLAIN, arm_order, built_of
from plainres.analysis.stats import Flag
from plainres.report.diagnosis import diagnosis_lines
from plainres.report.evidence import verdict_sentences
from plainres.report.evidence_text import evidence_table
from plainres.report.numbers import MANY, Row, difference_text, error_text, seconds_line, status_counts, verdict_lines

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from plainres.report.examine import ReportResult

GAP = "gap, points (pairs)"
WIDTH = 100  # of plain output, when there is no terminal to ask


def make_console(**options: object) -> "Console":
    """A console that wraps nothing away when its output is a file or a pipe; plain lines in a notebook."""
    from rich.console import Console

    # In a notebook rich would make a block of HTML of every line, and a cell says of itself that it is a terminal,
    # though nothing in it can be drawn again.
    settings: dict[str, Any] = {"highlight": False, "soft_wrap": False, "force_jupyter": False}
    if type(sys.stdout).__module__.startswith("ipykernel"):
        settings["force_terminal"] = False
    console = Console(**(settings | options))
    if not console.is_terminal:
        console.width = WIDTH
    return console


def print_report(result: "ReportResult", console: "Console | None" = None) -> None:
    """Print the result of a study: one table per setting and arm, then onsets, counts, problems and paths."""
    console = console or make_console()
    for table in result_tables(result):
        print_wide(console, table)
    for line in evidence_lines(result):
        console.print(line, markup=False, soft_wrap=True)
    if result.verdict.table["n"].sum():
        print_wide(console, evidence_table(result))
    for line in closing_lines(result):
        console.print(line, markup=False, soft_wrap=True)


def print_wide(console: "Console", table: "Table") -> None:
    """Print a table whole, however narrow a file or a pipe says it is."""
    from rich.measure import Measurement

    if not console.is_terminal:  # a file or a pipe has no edge to wrap at
        console.width = max(WIDTH, Measurement.get(console, console.options.update(max_width=10_000), table).maximum)
    console.print(table)


def evidence_lines(result: "ReportResult") -> list[str]:
    """The verdict in two sentences; nothing while no run has ended."""
    return verdict_sentences(result) if result.verdict.table["n"].sum() else []


def result_tables(result: "ReportResult") -> "list[Table]":
    """Depth × connection: final training error, and the gap to plain.

    One table per setting and non-plain arm; with more than ``MANY`` arms, or networks built from trained ones, one per
    setting, with a row for each.
    """
    tables = []
    for setting, part in result.verdict.table.groupby("setting"):
        if not part["n"].sum():
            continue
        arms = arm_order(part["connection"])
        declared = result.declared.get(str(setting), {})
        if len(arms) > MANY or any(map(built_of, arms)):
            tables.append(_long_table(str(setting), part, declared))
            continue
        others = [name for name in arms if name != PLAIN]
        shown = [[name for name in arms if name in (PLAIN, other)] for other in others or [PLAIN]]
        tables += [_table(str(setting), part, pair, declared) for pair in shown]
    return tables


def _empty_table(setting: str) -> "Table":
    from rich import box
    from rich.table import Table

    title = "Final training error, % [95 % interval]" + ("" if setting == ONLY_SETTING else f" · {setting}")
    table = Table(title=title, min_width=len(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("depth", justify="right", no_wrap=True)
    return table


def _long_table(setting: str, part: "pd.DataFrame", declared: dict[str, Declaration]) -> "Table":
    table = _empty_table(setting)
    table.add_column("connection", no_wrap=True)
    for name in ("training error", "n", GAP):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("declares", no_wrap=True)
    for row in part.to_dict("records"):
        name = row["connection"]
        mark = declared[name].mark if name in declared else ""
        cells = [error_text(row, "train_error"), _count(row), difference_text(row, "gap"), mark]
        table.add_row(str(row["depth"]), name, *cells)
    return table


def _table(setting: str, part: "pd.DataFrame", arms: list[str], declared: dict[str, Declaration]) -> "Table":
    table = _empty_table(setting)
    for name in arms:
        mark = declared[name].mark if name in declared else ""
        table.add_column(f"{name} ({mark})" if mark else name, justify="right", no_wrap=True)
        table.add_column("n", justify="right", no_wrap=True)
    paired = arms[0] == PLAIN and len(arms) > 1
    if paired:
        table.add_column(GAP, justify="right", no_wrap=True)
    for depth, rows in part.groupby("depth"):
        by_arm = {row["connection"]: row for row in rows.to_dict("records")}
        cells = [str(depth)]
        for name in arms:
            cells += [error_text(by_arm[name], "train_error"), _count(by_arm[name])] if name in by_arm else ["–", "0"]
        if paired:
            cells.append(difference_text(by_arm[arms[-1]], "gap") if arms[-1] in by_arm else "")
        table.add_row(*cells)
    return table


def _count(row: Row) -> str:
    return f"{row['n']}" + (f" ({row['n_diverged']} div)" if row["n_diverged"] else "")


def closing_lines(result: "ReportResult") -> list[str]:
    """Onset depths, status counts, what was left out, where the files are, where the seconds went."""
    runs, table = result.loaded.runs, result.verdict.table
    lines = []
    if (table[["train_error_flag", "gap_flag"]] == Flag.NO_SPREAD).any(axis=None):
        lines.append("* all values equal: the interval is ± 1/N (N training examples)")
    for setting, onsets in result.verdict.onsets.groupby("setting"):
        where = "" if setting == ONLY_SETTING else f" ({setting})"
        lines += [f"onset of degradation{where}: {text}" for text in verdict_lines(onsets.to_dict("records"))]
        lines += [f"declared{where}: {text}" for text in declared_lines(result.declared.get(str(setting), {}))]
    lines.append(f"runs: {status_counts(runs) or 'none'}")
    if not table["n"].sum():
        lines.append("no run is complete or diverged yet: there is no result to show")
    lines += _missing(result)
    lines += diagnosis_lines(result)
    lines.append(
        f"tables:  {result.folder}/degradation.csv, runs.csv, audit.csv, summary.md, evidence.md, evidence.json, "
        "diagnosis.md, diagnosis.json"
    )
    lines.append(f"figures: {result.folder}/figures ({len(result.figures)} as PDF, PNG and CSV)")
    lines.append(f"page:    {result.folder}/index.html (opens offline in a browser)")
    lines.append(seconds_line(runs, result.seconds))
    return lines


def _missing(result: "ReportResult") -> list[str]:
    counts = {
        "runs left out or without a partner": len(result.verdict.left_out),
        "folders or tables that cannot be read": len(result.problems),
        "figures without data": len(result.skipped),
    }
    return [f"{what}: {number}, see summary.md" for what, number in counts.items() if number]
