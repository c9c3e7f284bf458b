"""Fractions as the text a person reads: percent, percentage points, seconds, counts."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plainres.analysis.load import SECONDS
from plainres.store import Status

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Hashable, Any]
MANY = 4  # with more connections than that, one table holds them all and verdicts are grouped


def error_text(row: Row, metric: str) -> str:
    """``65.07 [60.21, 69.90]`` in %; the interval of an error is cut at 0 and 100."""
    if row["n"] == 0:
        return "–"
    ends = [min(max(100 * row[f"{metric}_{end}"], 0.0), 100.0) for end in ("low", "high")]
    return _with_interval(f"{100 * row[f'{metric}_mean']:.2f}", [f"{end:.2f}" for end in ends], row[f"{metric}_flag"])


def difference_text(row: Row, name: str) -> str:
    """``+65.07 [+60.21, +69.90] (5)`` in percentage points, pairs in brackets; empty where it is not defined."""
    if row[f"{name}_n"] == 0:
        return ""
    ends = [f"{100 * row[f'{name}_{end}']:+.2f}" for end in ("low", "high")]
    text = _with_interval(f"{100 * row[f'{name}_mean']:+.2f}", ends, row[f"{name}_flag"])
    return text if row[f"{name}_n"] == 1 else f"{text} ({row[f'{name}_n']})"


def _with_interval(mean: str, ends: list[str], flag: str) -> str:
    if flag == "n = 1":
        return f"{mean} (n = 1)"
    return f"{mean} [{', '.join(ends)}]{'*' if flag == 'no spread' else ''}"


def verdict_lines(onsets: Sequence[Row]) -> Iterator[str]:
    """``residual: no degradation up to depth 100``; with many connections, those of one verdict in one line."""
    if len(onsets) <= MANY:
        yield from (f"{row['connection']}: {row['verdict']}" for row in onsets)
        return
    for verdict in dict.fromkeys(row["verdict"] for row in onsets):
        yield f"{', '.join(row['connection'] for row in onsets if row['verdict'] == verdict)}: {verdict}"


def status_counts(runs: "pd.DataFrame") -> str:
    """``37 complete, 2 diverged, 1 failed``, in the order of the statuses."""
    counts = runs["status"].value_counts()
    return ", ".join(f"{counts[str(s)]} {s}" for s in Status if str(s) in counts)


def seconds_line(runs: "pd.DataFrame", report_seconds: float | None = None) -> str:
    """The split of the seconds, summed over runs; ``report_seconds`` is wall time and is named apart.

    A run that has not ended has no split; its seconds are named apart, too.
    """
    split = runs[runs["seconds_train"].notna()]
    sums = {name: float(split[f"seconds_{name}"].astype(float).sum()) for name in SECONDS}
    whole, total = sums.pop("total"), float(runs["seconds_total"].astype(float).sum())
    parts = [f"{name} {seconds:.1f}" for name, seconds in sums.items()]
    parts.append(f"rest {max(0.0, whole - sum(sums.values())):.1f}")  # audit, network, data, files
    if total > whole:
        parts.append(f"runs without a split {total - whole:.1f}")
    text = f"seconds, summed over runs: {', '.join(parts)}; total {total:.1f}"
    return text if report_seconds is None else f"{text}; report {report_seconds:.1f}"
