"""Tables for a paper, from the files of a report: degradation, evidence, and the shortcuts of He et al. 2016."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainres.analysis.rules import ITEMS, POINTS, ClaimStatus
from plainres.analysis.settings import ONLY_SETTING
from plainres.analysis.stats import Flag
from plainres.report.evidence_text import WORDS
from plainres.report.latex import TextTable
from plainres.report.numbers import Row, difference_text, error_text

if TYPE_CHECKING:
    import pandas as pd

STAR = "* all seeds equal: the interval is ± 1/N, N the number of examples."
INTERVALS = "Two-sided 95 % t intervals over seeds in brackets; number of pairs in round brackets."
CORRECTED = "Two-sided paired t intervals over seeds, Bonferroni-corrected for the comparisons of each claim."


def paper_tables(report: Path, shortcuts: "Mapping[str, pd.DataFrame]") -> Iterator[tuple[str, TextTable]]:
    """Name and table; those without a row are absent.

    Args:
        report: a report's folder, or a published copy of one.
        shortcuts: name of a table -> the rows of a figure ``shortcut_table``.
    """
    import pandas as pd

    if (path := report / "degradation.csv").is_file():
        table = pd.read_csv(path, low_memory=False).fillna({"gap_flag": "", "degradation_flag": ""})
        if table["n"].sum():
            yield "table_degradation", degradation_table(table)
    if (path := report / "evidence.json").is_file():
        document = json.loads(path.read_text())
        if document["claims"]:
            yield "table_evidence", evidence_table(document)
    for name, rows in shortcuts.items():
        yield name, shortcut_text_table(rows)


def degradation_table(table: "pd.DataFrame") -> TextTable:
    """Final errors, degradation and gap of every depth and connection.

    Args:
        table: degradation.csv.
    """
    several = table["setting"].nunique() > 1
    heads = [*(["setting"] if several else []), "depth", "connection", "n", "diverged", "training error (%)",
             "degradation (points)", "gap to plain (points)"]  # fmt: skip
    rows = [_degradation_row(row, several) for row in table.to_dict("records")]
    star = any("*" in cell for row in rows for cell in row)
    first = 1 if several else 0
    right = frozenset({first, *range(first + 2, len(heads))})
    return TextTable(heads, rows, right, f"{INTERVALS} {STAR}" if star else INTERVALS)


def _degradation_row(row: Row, several: bool) -> list[str]:
    cells = [str(row["depth"]), str(row["connection"]), str(row["n"]), str(row["n_diverged"])]
    cells += [error_text(row, "train_error"), difference_text(row, "degradation"), difference_text(row, "gap")]
    return [str(row["setting"]), *cells] if several else cells


def evidence_table(document: Mapping[str, Any]) -> TextTable:
    """Every claim with what it is about, its status, effect with interval, and n; of many connections the tested ones.

    Args:
        document: evidence.json.
    """
    many = len(document["verdict"]["parts"]) > 1
    claims = [claim for claim in document["claims"] if not many or claim["effect"] is not None]
    rows = []
    for claim in claims:
        arm = claim["connection"] or "plain"
        about = arm if claim["setting"] == ONLY_SETTING else f"{arm}, {claim['setting']}"
        about += f" ({claim['label']})" if claim["label"] else ""
        n = str(claim["n"]) if claim["effect"] is not None else ""
        rows.append([claim["id"], about, WORDS[ClaimStatus(claim["status"])], _effect(claim), n])
    star = f" {STAR}" if any(row[3].endswith("*") for row in rows) else ""
    return TextTable(["claim", "about", "status", "effect [interval]", "n"], rows, frozenset({4}), CORRECTED + star)


def _effect(claim: Mapping[str, Any]) -> str:
    if claim["effect"] is None:
        return "–"
    if claim["unit"] == ITEMS:
        return f"{round(claim['effect'] * claim['n'])} of {claim['n']} pairs"
    text = f"{claim['effect']:+.2f} {'points' if claim['unit'] == POINTS else claim['unit']}"
    if claim["low"] is None:
        return f"{text} (one seed)"
    same = [c["flag"] for c in claim["comparisons"] if (c["effect"], c["low"]) == (claim["effect"], claim["low"])]
    star = "*" if Flag.NO_SPREAD in same else ""
    return f"{text} [{claim['low']:+.2f}, {claim['high']:+.2f}]{star}"


def shortcut_text_table(table: "pd.DataFrame") -> TextTable:
    """Our errors beside those of He et al. 2016, table 1.

    Args:
        table: the rows of a figure ``shortcut_table``.
    """
    means = table[table["series"] == "mean"]
    seeds_of = table[(table["series"] == "seed") & (table["metric"] == "train_error")]
    rows = []
    for _, row in means.groupby("row"):
        both = row.set_index("metric")
        first = row.iloc[0]
        seeds = seeds_of[seeds_of["row"] == first["row"]]
        errors = [_mean_text(both.loc[metric]) for metric in ("train_error", "val_error")]
        counts = [str(int(first["n"])), str(int(seeds["diverged"].sum()))]
        rows.append([first["shortcut"], first["branch"], *counts, *errors, first["paper"] or "–"])
    heads = ["on the shortcut", "on F", "n", "diverged", "training error (%)", "validation error (%)",
             "He et al. 2016: test error (%)"]  # fmt: skip
    intervals = "; 95 % t intervals over seeds" if means["low"].notna().any() else ""
    note = (
        f"Depth {int(means['depth'].max())}{intervals}. The paper's numbers are of ResNet-110 on "
        "CIFAR-10 (median of 5; fail: above 20 %): compare the order of rows, not the numbers."
    )
    return TextTable(heads, rows, frozenset({2, 3, 4, 5, 6}), note)


def _mean_text(row: "pd.Series[Any]") -> str:
    mean, low, high = (100 * float(row[part]) for part in ("value", "low", "high"))
    return f"{mean:.2f}" if low != low else f"{mean:.2f} [{max(low, 0):.2f}, {min(high, 100):.2f}]"
