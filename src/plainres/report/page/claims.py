"""The claims: a list for the first screen, and each of them in full."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from plainres.analysis.claims import Claim, effect_words, short_effect
from plainres.analysis.compare import Comparison
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import ONLY_SETTING
from plainres.report.evidence_text import margin_words, matrix
from plainres.report.page.html import badge, bullets, command, glyph, reach, table, tag, text

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult


def anchor(results: Sequence["ReportResult"], result: "ReportResult", found: Claim) -> str:
    """The id of a claim's element."""
    study = results.index(result)
    claims = result.evidence.claims
    return f"claim-{study}-{claims.index(found)}"


def is_list(results: Sequence["ReportResult"]) -> bool:
    """Whether there is one verdict, so that its claims are a list and no table."""
    return len(results) == 1 and len(results[0].evidence.conclusions) <= 1


def overview(results: Sequence["ReportResult"]) -> str:
    """The statuses: a list with effects for one verdict, a table for several."""
    if is_list(results):
        return _list(results)
    ids = [i for i in RULES if any(c.id == i and c.status is not ClaimStatus.NOT_TESTED for c in _all(results))]
    rows = []
    for result in results:
        known, found = matrix(result)
        for name, statuses in found:
            by_id = dict(zip(known, statuses, strict=True))
            label = f"{result.loaded.study.name}: {name}" if len(results) > 1 else name
            cells = [badge(status, short=True) if (status := by_id.get(i)) else "" for i in ids]
            rows.append([text(label), *cells])
    untested = [RULES[i].title for i in RULES if i not in ids]
    note = tag("p", text(f"Not tested here: {'; '.join(untested)}."), class_="note") if untested else ""
    return table(["connection", *[RULES[i].title for i in ids]], rows, class_="matrix") + _legend() + note


def _all(results: Sequence["ReportResult"]) -> list[Claim]:
    return [found for result in results for found in result.evidence.claims]


def _legend() -> str:
    return tag("p", " ".join(badge(status) for status in ClaimStatus), class_="note")


def _list(results: Sequence["ReportResult"]) -> str:
    lines = []
    for found in results[0].evidence.claims:
        effect = tag("span", text(short_effect(found.shown)), class_="effect") if found.shown else ""
        link = tag("a", text(RULES[found.id].title), href=f"#{anchor(results, results[0], found)}")
        lines.append(
            tag("li", f"{badge(found.status)}<span>{link} {effect}{_reserved(found)}</span>", data_claim=found.id)
        )
    return tag("ul", "".join(lines), class_="claims")


def _reserved(found: Claim) -> str:
    """A word where the status alone would say too much: a caveat, or a status that diverged runs decide."""
    changed = bool(found.sensitivity) and not found.sensitivity.endswith(": the same")
    why = " ".join(filter(None, [found.caveat, found.sensitivity if changed else ""]))
    return f" {tag('span', 'with a reservation', class_='reserved', title=why)}" if why else ""


def details(results: Sequence["ReportResult"]) -> str:
    """Every claim as an element that opens; those of several connections stand under one heading."""
    parts = []
    for id_, rule in RULES.items():
        found = [(r, c) for r in results for c in r.evidence.claims if c.id == id_]
        if found:
            parts.append(tag("h3", f"{text(rule.title)} {tag('code', id_)}") + tag("p", text(rule.statement)))
            parts += [_claim(results, result, one) for result, one in found]
    return "".join(parts)


def _claim(results: Sequence["ReportResult"], result: "ReportResult", found: Claim) -> str:
    about = found.connection or "plain"
    about += "" if found.setting == ONLY_SETTING else f", {found.setting}"
    about = f"{result.loaded.study.name}: {about}" if len(results) > 1 else about
    effect = tag("span", text(short_effect(found.shown)), class_="effect") if found.shown else ""
    title = f"{RULES[found.id].title}: {about}"
    head = tag("summary", f"{badge(found.status)} <strong>{text(title)}</strong> {effect}{_reserved(found)}")
    body = [tag("p", text(found.sentence))]
    if found.sensitivity:
        body.append(tag("p", text(found.sensitivity)))
    if found.comparisons:
        body.append(_comparisons(found.comparisons))
    body.append(bullets(_basis(found)))
    if found.command:
        body.append(tag("p", "What would decide it:") + command(found.command))
    return tag("details", head + "".join(body), id=anchor(results, result, found), data_claim=found.id)


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for c in comparisons:
        alike = [other for other in comparisons if other.unit == c.unit]
        level = f"{100 * c.confidence:.1f} %" if c.low is not None else ""
        margin = f"{'± ' if c.direction == 'within' else ''}{c.margin:g} {c.unit}"
        numbers = [text(effect_words(c)), glyph(c, reach(alike)), text(margin), level, str(c.n), badge(c.status)]
        rows.append([text(c.label), *numbers])
    heads = ["compared", "effect [interval]", "", "margin", "level", "n", "status"]
    return table(heads, rows, numeric=(3, 4, 5))


def _basis(found: Claim) -> Iterator[str]:
    rule = RULES[found.id]
    for part in rule.parts.values():
        yield f"{part.effect}: holds if the whole interval is {margin_words(part)}"
    yield f"rests on: {rule.rests_on}; {len(found.run_ids)} runs"
    yield f"test: {found.test}"
