"""The page as one file: text from ``sections`` and ``claims``, numbers from ``data``, plotly and our own script."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from plainres.analysis.conclusion import VERDICTS
from plainres.report.evidence import evidence_document, verdict_sentences
from plainres.report.page import claims, sections
from plainres.report.page.data import chart_data, thinned
from plainres.report.page.html import bullets, tag, text
from plainres.report.page.numbers import embedded

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult

SCRIPTS = ("core.js", "controls.js", "degradation.js", "curves.js", "layers.js", "across.js", "tables.js", "main.js")
FEW = 3  # connections that the question names


def report_page(results: Sequence["ReportResult"], folder: Path) -> str:
    """One study's page, or several studies side by side.

    Args:
        results: what was found in each study.
        folder: where the page will stand; links to the runs start there.
    """
    names = " and ".join(result.loaded.study.name for result in results)
    values = {
        "title": text(f"{names}: plainres report"),
        "style": _asset("page.css"),
        "study": text(names),
        "question": text(question(results)),
        "verdict": "".join(_verdict(results, result) for result in results),
        "several": " several" if len(results) > 1 else "",
        "stacked": "" if claims.is_list(results) else " stacked",
        "claims": claims.overview(results),
        "claim_details": claims.details(results),
        "audit": sections.audit(results),
        "diagnosis": sections.diagnosis(results),
        "runs": sections.runs(results, folder),
        "reproduce": sections.reproduce(results),
        "thinned": bullets(thinned(results)),
        "data": embedded(chart_data(results)),
        "evidence": embedded([evidence_document(result) for result in results]),
        "plotly": _plotly(),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    return Template(_asset("page.html")).substitute(values)


def question(results: Sequence["ReportResult"]) -> str:
    """What the studies ask, with the names of the connections where they are few."""
    arms = list(dict.fromkeys(c.connection for r in results for c in r.evidence.conclusions if c.connection))
    first = "Does adding depth make these networks harder to optimise"
    if not arms:
        return f"{first}?"
    which = " or ".join(arms) if len(arms) <= FEW else f"any of {len(arms)} ways of joining a branch to its trunk"
    return f"{first}, and does {which} cure it?"


def _verdict(results: Sequence["ReportResult"], result: "ReportResult") -> str:
    arms = list(dict.fromkeys(c.connection for c in result.evidence.conclusions if c.connection))
    words = {row.id: row.words for row in VERDICTS}
    if len(arms) == 1:
        words = {id_: text_.replace("the connection", arms[0]) for id_, text_ in words.items()}
    found = list(dict.fromkeys(words[c.id] for c in result.evidence.conclusions))
    name = f"{result.loaded.study.name}: " if len(results) > 1 else ""
    first = f"{name}{found[0][0].upper()}{found[0][1:]}." if len(found) == 1 else name
    head = tag("p", text(first), class_="headline") if first else ""
    return tag("div", head + "".join(tag("p", text(line), class_="verdict") for line in verdict_sentences(result)))


@cache
def _asset(name: str) -> str:
    return (files("plainres.report.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """plotly.js as the Python package ships it; the package itself is not imported."""
    found = find_spec("plotly")
    assert found is not None and found.submodule_search_locations, "plotly is a dependency of plainres"
    return (Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
