"""summary.md: the result in words and in a table, and how it was computed."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from plainres.analysis.audit import audit_in_words
from plainres.analysis.declared import Declaration, declared_lines
from plainres.analysis.degradation import MARGIN
from plainres.analysis.inside import SLOW
from plainres.analysis.rules import FLOOR_MARGIN, MIN_N
from plainres.analysis.settings import ONLY_SETTING
from plainres.report.numbers import Row, difference_text, error_text, seconds_line, status_counts, verdict_lines

if TYPE_CHECKING:
    import pandas as pd

    from plainres.report.examine import ReportResult

COLUMNS = (
    "depth",
    "connection",
    "n",
    "diverged",
    "training error %",
    "validation error %",
    "degradation, points (pairs)",
    "gap to plain, points (pairs)",
)
METHOD = f"""\
- Errors are the clean training error (whole training set, no augmentation, evaluation mode) of the final weights.
- Intervals are two-sided 95 % t intervals over seeds. Where all values are equal the interval is ± 1/N, N the
  number of examples ("no spread"). With one seed there is none. Intervals of an error are cut at 0 and 100 % here,
  not in the CSV.
- Gap = plain − this connection at equal depth; degradation = this depth − the shallowest one of the same
  connection, or − its source for a network that was built from a trained one. Both are paired: two runs are compared
  only if they are equal in every other identity field, seed included; the number of pairs stands in brackets.
- A run that diverged counts as an error at chance level.
- Onset = the least depth whose degradation interval lies wholly above a margin of {100 * MARGIN:g} percentage
  point. "No degradation" = all intervals lie wholly at or below it; else the study is undecided. These intervals are
  wider than those of the table: all depths of a connection hold together with 95 % (Bonferroni), from {MIN_N} seeds on.
  Where no run errs on more than one example, training loss decides, with a margin of a factor of {10**FLOOR_MARGIN:g}.
  evidence.md has these intervals.
- Figures of the inside: geometric means over seeds of complete and diverged runs. Update
  ratios are shown up to the last probe step with at least {100 * SLOW:g} % of the peak learning rate."""


def summary_text(result: "ReportResult") -> str:
    """The text of summary.md. It holds nothing of the moment of writing: equal runs give equal text."""
    runs, onsets = result.loaded.runs, result.verdict.onsets
    count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    parts = [f"# {result.loaded.study.name}", f"{count}: {status_counts(runs) or 'none'}."]
    for setting, table in result.verdict.table.groupby("setting"):
        words = onsets[onsets["setting"] == setting].to_dict("records")
        parts.append(f"## Result{'' if setting == ONLY_SETTING else f' ({setting})'}")
        declared = result.declared.get(str(setting), {})
        parts += [_result_table(table, declared), _bullets(verdict_lines(words))]
        if declared:
            lines = _bullets(declared_lines(declared))
            parts.append(f"Beside the addition, these results compare what the connection declares:\n\n{lines}")
    parts += ["## Audit of the pairs", _bullets(audit_in_words(result.audit))]
    parts += ["## Left out", _bullets(_left_out(result)) or "Nothing."]
    parts += ["## How it was computed", METHOD + "\n" + _bullets(_provenance(runs))]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _result_table(table: "pd.DataFrame", declared: dict[str, Declaration]) -> str:
    marked = any(declaration.mark for declaration in declared.values())
    columns = [*COLUMNS, *(["declares"] if marked else [])]
    lines = [columns, ["---:", "---", *["---:"] * (len(COLUMNS) - 2), *(["---"] if marked else [])]]
    for row in table.to_dict("records"):
        mark = declared[row["connection"]].mark if row["connection"] in declared else ""
        lines.append([*_result_row(row), *([mark] if marked else [])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _result_row(row: Row) -> list[str]:
    counts = [str(row["depth"]), row["connection"], str(row["n"]), str(row["n_diverged"])]
    errors = [error_text(row, "train_error"), error_text(row, "val_error")]
    return [*counts, *errors, difference_text(row, "degradation"), difference_text(row, "gap")]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _left_out(result: "ReportResult") -> Iterator[str]:
    for row in result.verdict.left_out.to_dict("records"):
        yield f"{row['name']}: {row['why']}"
    yield from result.problems
    for reason in dict.fromkeys(reason for _, reason in result.skipped):
        names = ", ".join(name for name, why in result.skipped if why == reason)
        yield f"not drawn ({reason}): {names}"


def _provenance(runs: "pd.DataFrame") -> Iterator[str]:
    known = runs[runs["code_hash"].notna()]
    if known.empty:
        return
    dirty = int(known["dirty_hash"].fillna("").astype(bool).sum())
    changed = f"; {dirty} runs with uncommitted changes" if dirty else ""
    yield f"commit {_each(known['commit']) or 'unknown (no git checkout)'}{changed}"
    yield f"hardware: {_each(known['device_name'])}; threads per run: {_each(known['threads'])}"
    yield seconds_line(runs)


def _each(values: "pd.Series[str]") -> str:
    return ", ".join(sorted({f"{v:g}" if isinstance(v, float) else str(v) for v in values.dropna()}))
