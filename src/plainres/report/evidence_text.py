"""evidence.md, and the same in the terminal: the verdict in two sentences, then claim by claim."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from plainres.analysis.claims import Claim, short_effect
from plainres.analysis.rules import FLOOR_MARGIN, RULES, ClaimStatus, Part
from plainres.analysis.settings import ONLY_SETTING
from plainres.report.evidence import limits, provenance, verdict_sentences

if TYPE_CHECKING:
    from rich.table import Table

    from plainres.report.examine import ReportResult

WORDS = {
    ClaimStatus.SUPPORTED: "supported",
    ClaimStatus.CONTRADICTED: "contradicted",
    ClaimStatus.UNDECIDED: "undecided",
    ClaimStatus.NOT_TESTED: "not tested",
}
MARKS = {
    ClaimStatus.SUPPORTED: "yes",
    ClaimStatus.CONTRADICTED: "NO",
    ClaimStatus.UNDECIDED: "?",
    ClaimStatus.NOT_TESTED: "–",
}
STYLES = {
    ClaimStatus.SUPPORTED: "green",
    ClaimStatus.CONTRADICTED: "red",
    ClaimStatus.UNDECIDED: "yellow",
    ClaimStatus.NOT_TESTED: "dim",
}
READING = """\
- **supported**: the whole interval lies beyond the margin. **contradicted**: the whole interval lies on the other side.
  **undecided**: the interval holds the margin, or there are fewer than 3 seeds. **not tested**: the study lacks the
  runs. That a difference is not significant is never support for its absence.
- Intervals are two-sided t intervals over seeds of paired differences, at level 1 − 0.05/m, where m is the number of
  comparisons of the claim (Bonferroni): all of them hold together with 95 %. With equal values (*) the interval is
  mean ± 1/N, N the number of training examples.
- A decade is a factor of 10: +0.30 decades is twice as much.
- docs/evidence.md explains every claim, and how often such a study claims a degradation that is not there."""


def evidence_text(result: "ReportResult") -> str:
    """The text of evidence.md; equal runs give equal text."""
    parts = [f"# {result.loaded.study.name}: evidence", *verdict_sentences(result)]
    claims = result.evidence.claims
    parts.append("## Claims")
    if len(result.evidence.conclusions) > 1:
        parts.append(_matrix_table(result))
        claims = [c for c in claims if c.shown is not None]
    parts.append(_table(result, claims))
    parts += ["## In words", "\n".join(_words(result.evidence.claims))]
    parts += ["## Limits", _bullets(limits(result)), "## How to read this", READING]
    parts += ["## Rules", "\n".join(rule_table()), "## Where the numbers come from", _bullets(_sources(result))]
    return "\n\n".join(parts) + "\n"


def _bullets(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _about(found: Claim) -> str:
    arm = found.connection or "plain"
    return arm if found.setting == ONLY_SETTING else f"{arm}, {found.setting}"


def _table(result: "ReportResult", claims: list[Claim]) -> str:
    lines = ["| claim | about | status | effect [interval] | n |", "| --- | --- | --- | --- | ---: |"]
    for c in claims:
        n = str(c.shown.n) if c.shown else ""
        declared = result.declared.get(c.setting, {}).get(c.connection)
        mark = f" ({declared.mark})" if declared and declared.mark else ""
        lines.append(f"| {c.id} | {_about(c)}{mark} | {WORDS[c.status]} | {short_effect(c.shown)} | {n} |")
    return "\n".join(lines)


def _words(claims: list[Claim]) -> Iterator[str]:
    """A paragraph for each sentence (claims of several connections may share one), a command for each id."""
    for id_ in RULES:
        mine = [c for c in claims if c.id == id_]
        for sentence in dict.fromkeys(c.sentence for c in mine):
            same = [c for c in mine if c.sentence == sentence]
            about = ", ".join(_about(c) for c in same)
            yield f"- **{id_}** ({about}; {WORDS[same[0].status]}). {sentence}"
            if same[0].sensitivity:
                yield f"  {same[0].sensitivity}."
        commands = list(dict.fromkeys(c.command for c in mine if c.command))
        if commands:
            more = " (likewise for the others)" if len(commands) > 1 else ""
            yield f"  What would decide it: `{commands[0]}`{more}"


def matrix(result: "ReportResult") -> tuple[list[str], list[tuple[str, list[ClaimStatus | None]]]]:
    """Ids of the claims that were tested at all, and for each connection its name with the status of each."""
    tested = {c.id for c in result.evidence.claims if c.status is not ClaimStatus.NOT_TESTED}
    ids = [i for i in RULES if i in tested]
    rows = []
    for found in result.evidence.conclusions:
        mine = [c for c in result.evidence.claims if c.setting == found.setting]
        status = {c.id: c.status for c in mine if c.connection in ("", found.connection)}
        arm = found.connection or "plain"
        name = arm if found.setting == ONLY_SETTING else f"{arm}, {found.setting}"
        rows.append((name, [status.get(i) for i in ids]))
    return ids, rows


def _matrix_table(result: "ReportResult") -> str:
    ids, rows = matrix(result)
    lines = [f"| connection | {' | '.join(ids)} |", f"| --- |{' --- |' * len(ids)}"]
    lines += [f"| {name} | {' | '.join(WORDS[s] if s else '' for s in found)} |" for name, found in rows]
    return "\n".join(lines)


def rule_table() -> Iterator[str]:
    """``RULES`` as a Markdown table; docs/evidence.md holds the same one."""
    yield "| claim | says | effect | holds if the whole interval is | rests on | tested by |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for id_, rule in RULES.items():
        tested_by = f"`{rule.command}`"
        for i, part in enumerate(rule.parts.values()):
            first, last = ([id_, rule.statement], [rule.rests_on, tested_by]) if i == 0 else (["", ""], ["", ""])
            yield f"| {' | '.join([*first, part.effect.replace('|', '∣'), margin_words(part), *last])} |"


def margin_words(part: Part) -> str:
    """Where an interval has to lie for its part of the claim to hold."""
    side = {
        "above": f"above {part.margin:g} {part.unit}",
        "no_rise": f"at or below {part.margin:g} {part.unit}",
        "within": f"within ± {part.margin:g} {part.unit}",
        "count": "(no interval: all must pass)",
    }[part.direction]
    floor = f"; on the floor of 0: log10 training loss, {FLOOR_MARGIN:g} decade"
    return side + (floor if part.floor else "")


def _sources(result: "ReportResult") -> Iterator[str]:
    found = provenance(result)
    commits = ", ".join(found["commits"]) or "unknown (no git checkout)"
    yield f"{len(found['run_ids'])} runs of the study {found['study']}; commit {commits}"
    for name, other in found["with"].items():
        made = ", ".join(other["commits"]) or "unknown (no git checkout)"
        yield f"read beside it: {len(other['run_ids'])} runs of the study {name}; commit {made}"
    changed = found["runs_with_uncommitted_changes"]
    if changed:
        yield f"{changed} runs with uncommitted changes"
    yield f"hardware: {', '.join(map(str, found['hardware']['device_name'])) or 'unknown'}"
    torch = ", ".join(found["versions"].get("torch", [])) or "unknown"
    yield f"torch {torch}; read by plainres {found['plainres']}; hashes of the tables read are in evidence.json"


def evidence_table(result: "ReportResult") -> "Table":
    """The claims for the terminal: one line each, or a line for each connection where there are several."""
    from rich import box
    from rich.table import Table

    table = Table(
        title="Evidence (intervals corrected for all comparisons of a claim)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    if len(result.evidence.conclusions) == 1:
        for name in ("claim", "status", r"effect \[interval]"):
            table.add_column(name, no_wrap=True)
        table.add_column("n", justify="right", no_wrap=True)
        for c in result.evidence.claims:
            n = str(c.shown.n) if c.shown else ""
            table.add_row(c.id, f"[{STYLES[c.status]}]{WORDS[c.status]}[/]", _cell(c), n)
        return table
    ids, rows = matrix(result)
    for name in ("connection", *ids):
        table.add_column(name, no_wrap=True)
    for name, found in rows:
        table.add_row(name, *[f"[{STYLES[s]}]{MARKS[s]}[/]" if s else "" for s in found])
    return table


def _cell(found: Claim) -> str:
    return short_effect(found.shown).replace("[", r"\[")
