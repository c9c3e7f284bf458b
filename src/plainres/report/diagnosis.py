"""diagnosis.md and diagnosis.json: what the runs' numbers show, what it may mean, and what to try."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from plainres.analysis.diagnosis import Finding, grouped
from plainres.analysis.diagnosis_rules import RULES, Gravity
from plainres.analysis.diagnosis_words import about, headline, limit_text, network_text, sentence
from plainres.store import FINISHED, write_atomic, write_json

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult

FORMAT = 1
MANY_RUNS = 5  # more names than that are counted
SHOWN = 2  # of the gravest findings, in the terminal
TITLES = {Gravity.GRAVE: "Grave", Gravity.WARNING: "Warnings", Gravity.NOTE: "Notes"}
READING = """\
- A finding is a number beyond a limit: it says what was measured, and only suggests a cause. Findings of the same runs
  belong together; the earliest steps are the place to look first.
- Layers and blocks are counted from the input. "Early ÷ late" compares the geometric means of the first and the last
  quarter, cut at a factor of 1,000 either way.
- "While it still learns": at probed steps with at least a tenth of the peak learning rate and a training loss above a
  tenth of ln C. A network that has learned its data has small gradients and updates, and that is no fault. At least
  3 such steps are needed.
- Of several seeds the range of the numbers is given, and all layers and steps that any of them shows.
- docs/diagnosis.md explains the rules and where their limits come from."""


def write_diagnosis(result: "ReportResult") -> None:
    """Write both files into the report's folder."""
    write_json(result.folder / "diagnosis.json", diagnosis_document(result))
    write_atomic(result.folder / "diagnosis.md", diagnosis_text(result).encode())


def diagnosis_document(result: "ReportResult") -> dict[str, Any]:
    """The whole of diagnosis.json. Numbers are finite, or null."""
    return {
        "format": FORMAT,
        "findings": [_finding(found) for found in result.diagnosis.findings],
        "num_runs": sum(result.diagnosis.cells.values()),
        "unfinished": _unfinished(result),
        "unprobed": result.diagnosis.unprobed,
        "rules": {name: asdict(rule) for name, rule in RULES.items()},
    }


def _finding(found: Finding) -> dict[str, Any]:
    rule = RULES[found.rule]
    layers = [{"layer_index": index, "layer_name": name} for index, name in found.layers]
    words = {"seen": rule.seen, "sentence": sentence([found]), "may_mean": rule.means, "try": rule.advice}
    return asdict(found) | {"gravity": str(rule.gravity), "layers": layers} | words


def _unfinished(result: "ReportResult") -> list[str]:
    runs = result.loaded.runs
    return [str(name) for name in runs.loc[~runs["status"].isin([str(s) for s in FINISHED]), "name"]]


def diagnosis_text(result: "ReportResult") -> str:
    """The text of diagnosis.md; equal runs give equal text."""
    parts = [f"# {result.loaded.study.name}: diagnosis", *_summary(result)]
    groups = grouped(result.diagnosis.findings)
    if groups:
        parts.append("\n".join(_overview(result, groups)))
    for gravity in Gravity:
        if ids := [i for i, rule in RULES.items() if rule.gravity is gravity and any(g[0].rule == i for g in groups)]:
            parts.append(f"## {TITLES[gravity]}")
            parts += [_section(result, i, [g for g in groups if g[0].rule == i]) for i in ids]
    parts += ["## How to read this", READING, "## Rules", "\n".join(rule_table())]
    return "\n\n".join(parts) + "\n"


def _summary(result: "ReportResult") -> Iterator[str]:
    yield f"{count_text(result)}."
    if unfinished := _unfinished(result):
        yield f"Not looked at, because they have not ended: {_names(unfinished)}."
    if unprobed := result.diagnosis.unprobed:
        yield (
            "Without rows of their layers (probe=off, or a table that cannot be read), so that only the rules on "
            f"whole runs apply: {_names(unprobed)}."
        )


def count_text(result: "ReportResult") -> str:
    """``7 findings on 10 of 40 runs``."""
    found, total = result.diagnosis.findings, sum(result.diagnosis.cells.values())
    if not total:
        return "No run has ended: nothing to look at"
    if not found:
        return f"No findings: no number of the {total} runs lies beyond a limit"
    count = len(grouped(found))
    runs = len({f.run_id for f in found})
    return f"{count} finding{'s' if count > 1 else ''} on {runs} of {total} run{'s' if total > 1 else ''}"


def _overview(result: "ReportResult", groups: list[list[Finding]]) -> Iterator[str]:
    """A row for each kind of network that has findings: what is seen on its runs taken together."""
    yield "| networks | runs | findings |"
    yield "| --- | ---: | --- |"
    cells = result.diagnosis.cells
    for cell in sorted({g[0].cell for g in groups}, key=lambda cell: (cell[0], -cell[2], cell[1])):
        mine = [g for g in groups if g[0].cell == cell]
        part = [f"{g[0].rule}{'' if len(g) == cells[cell] else f' ({len(g)} of {cells[cell]})'}" for g in mine]
        yield f"| {network_text(mine[0][0])} | {cells[cell]} | {', '.join(part)} |"


def _section(result: "ReportResult", rule_id: str, groups: list[list[Finding]]) -> str:
    rule = RULES[rule_id]
    entries = "\n".join(
        f"- **{about(group, result.diagnosis)}**: {sentence(group)} Runs: {_names([f.run for f in group])}."
        for group in groups
    )
    return f"### {rule.seen} (`{rule_id}`)\n\n{entries}\n\nMay mean: {rule.means}.\n\nTry: {rule.advice}."


def _names(names: list[str]) -> str:
    more = len(names) - MANY_RUNS
    return ", ".join(names[:MANY_RUNS]) + (f" and {more} more" if more > 0 else "")


def rule_table() -> Iterator[str]:
    """``RULES`` as a Markdown table; docs/diagnosis.md holds the same one."""
    yield "| rule | weighs | seen | number | limit | steps | may mean | try |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, rule in RULES.items():
        steps = "; ".join(filter(None, [str(rule.profile.window) if rule.profile else "", rule.when]))
        limit = limit_text(name) or "none"
        quantity = rule.quantity.replace("|", "∣")  # a bar would end the cell
        cells = [name, str(rule.gravity), rule.seen, quantity, limit, steps, rule.means, rule.advice]
        yield f"| {' | '.join(cells)} |"


def diagnosis_lines(result: "ReportResult") -> list[str]:
    """For the terminal: how many findings there are, and the gravest."""
    if not result.diagnosis.cells:
        return []
    groups = grouped(result.diagnosis.findings)
    where = f", see {result.folder}/diagnosis.md" if groups else ""
    lines = [f"diagnosis: {count_text(result)[0].lower()}{count_text(result)[1:]}{where}"]
    return lines + [f"  {headline(group, result.diagnosis)}" for group in groups[:SHOWN]]
