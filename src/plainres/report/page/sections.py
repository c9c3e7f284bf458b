"""The tables and texts below the charts: audit, diagnosis, runs, how to reproduce."""

import re
from collections.abc import Iterator, Sequence
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainres.analysis.audit import audit_in_words
from plainres.analysis.commands import run_command
from plainres.analysis.diagnosis import Finding, grouped
from plainres.analysis.diagnosis_rules import RULES, Gravity, Window
from plainres.analysis.diagnosis_words import about, sentence
from plainres.report.diagnosis import TITLES, count_text
from plainres.report.evidence import limits, provenance
from plainres.report.numbers import seconds_line
from plainres.report.page.html import bullets, command, table, tag, text
from plainres.store import Status

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult

STARTED = re.compile(r"start: \S+?run(?:\.py)? (.*)")
AUDITED = ("parameters", "draws", "order", "operations", "optimizer", "schedule", "budget")


def audit(results: Sequence["ReportResult"]) -> str:
    """What was checked for each pair, and every pair in a table that opens."""
    parts = []
    for result in results:
        parts += [_heading(results, result), bullets(audit_in_words(result.audit))]
        if len(result.audit):
            parts.append(tag("details", tag("summary", f"all {len(result.audit)} pairs") + _pairs(result)))
    return "".join(parts)


def _pairs(result: "ReportResult") -> str:
    several = result.audit["setting"].nunique() > 1
    first = ["setting"] if several else []
    names = [*first, "connection", "depth", "seed", *AUDITED, "declared", "undeclared", "clean"]
    rows = [[text(_cell(row.get(name))) for name in names] for row in result.audit.to_dict("records")]
    return table(names, rows, class_="sortable")


def diagnosis(results: Sequence["ReportResult"]) -> str:
    """Findings by gravity; those on layers have a button that shows them in the layer profile."""
    parts = []
    for source, result in enumerate(results):
        parts += [_heading(results, result), tag("p", text(f"{count_text(result)}."))]
        groups = grouped(result.diagnosis.findings)
        for gravity in Gravity:
            mine = [group for group in groups if RULES[group[0].rule].gravity is gravity]
            if mine:
                parts.append(tag("h4", TITLES[gravity], class_=f"gravity {gravity}"))
                parts += [_finding(result, group, source) for group in mine]
    return "".join(parts)


def _finding(result: "ReportResult", group: list[Finding], study: int) -> str:
    rule, one = RULES[group[0].rule], group[0]
    head = tag("summary", f"<strong>{text(about(group, result.diagnosis))}</strong>: {text(rule.seen)}")
    body = tag("p", text(sentence(group))) + tag("p", f"May mean: {text(rule.means)}.")
    body += tag("p", f"Try: {text(rule.advice)}.")
    if rule.profile is not None:
        layers = sorted({index for found in group for index, _ in found.layers if index is not None})
        where = {"data_connection": one.connection, "data_depth": one.depth, "data_setting": one.setting}
        what = {
            "data_metric": rule.profile.metric,
            "data_step": one.first_step if rule.profile.window is Window.EARLY else one.last_step,
            "data_study": study,
        }
        shown = ",".join(map(str, layers))
        body += tag(
            "button", "show these layers", type="button", class_="show-layers", data_layers=shown, **where, **what
        )
    return tag("details", head + body)


def runs(results: Sequence["ReportResult"], folder: Path) -> str:
    """Every run, with a link to its folder, for sorting and filtering."""
    several = len({(r.loaded.study.name, s) for r in results for s in r.loaded.runs["setting"]}) > 1
    heads = [
        *(["study", "setting"] if several else []), "run", "status", "connection", "depth", "seed", "training error %",
        "batch statistics %", "validation error %", "training loss", "parameters", "seconds", "diverged at step",
    ]  # fmt: skip
    rows = [
        [*([text(result.loaded.study.name), text(run["setting"])] if several else []), *_run(result, run, folder)]
        for result in results
        for run in result.loaded.runs.to_dict("records")
    ]
    first = 5 if several else 3
    return table(heads, rows, numeric=range(first, len(heads)), class_="sortable", id="runs-table")


def _run(result: "ReportResult", run: dict[Any, Any], folder: Path) -> Iterator[str]:
    place = relpath(result.loaded.study.run_folder(run["folder"]).path, folder)
    yield tag("a", text(run["name"]), href=f"{place}/")
    yield tag("span", text(run["status"]), class_=f"state {run['status']}")
    yield text(run["connection"])
    yield str(run["depth"])
    yield str(run["seed"])
    for name in ("train_error", "train_error_batchstats", "val_error"):
        yield _number(run[f"final_{name}"], 100, ".2f")
    yield _number(run["final_train_loss"], 1, ".4g")
    yield _number(run["num_parameters"], 1, ",.0f")
    yield _number(run["seconds_total"], 1, ".1f")
    yield _number(run["diverged_step"] if run["status"] == Status.DIVERGED else None, 1, ".0f")


def _number(value: Any, factor: float, form: str) -> str:
    return "" if value is None or value != value else f"{factor * float(value):{form}}"


def reproduce(results: Sequence["ReportResult"]) -> str:
    """Command, code, versions, hardware, seconds, what was left out."""
    parts = []
    for result in results:
        parts.append(_heading(results, result))
        given, made = commands_of(result)
        why = "As it was started:" if given else "The same runs, one command for each setting (there is no sweep.log):"
        parts += [tag("p", why), *[command(line) for line in given or made]]
        names = [f"results/{one.study.name}" for one in (result.loaded, *result.others)]
        line = " ".join([names[0], *(["--with"] if result.others else []), *names[1:]])
        parts += [tag("p", "Its report:"), command(f"plainres report {line}")]
        parts.append(bullets(_origin(result)))
        parts.append(tag("h4", "Limits") + bullets(limits(result)))
    return "".join(parts)


def commands_of(result: "ReportResult") -> tuple[list[str], list[str]]:
    """The commands that sweep.log remembers, each once; and one for each setting, made from its runs."""
    log = result.loaded.study.path / "sweep.log"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    given = [f"python -m run {found[1]}" for line in lines if (found := STARTED.search(line))]
    name = result.loaded.study.name
    made = [run_command(name, part) for _, part in result.loaded.runs.groupby("setting")]
    return list(dict.fromkeys(given)), made


def _origin(result: "ReportResult") -> Iterator[str]:
    found, runs = provenance(result), result.loaded.runs
    yield f"{len(found['run_ids'])} runs; commit {', '.join(found['commits']) or 'unknown (no git checkout)'}"
    if found["runs_with_uncommitted_changes"]:
        yield f"{found['runs_with_uncommitted_changes']} runs with uncommitted changes"
    for name, values in found["hardware"].items():
        yield f"{name.replace('_', ' ')}: {', '.join(map(str, values)) or 'unknown'}"
    versions = "; ".join(f"{library} {', '.join(each)}" for library, each in found["versions"].items())
    yield f"versions: {versions or 'unknown'}; read by plainres {found['plainres']}"
    yield seconds_line(runs)
    yield "hashes of the tables that were read: provenance in evidence.json"
    yield from (f"left out: {row['name']}: {row['why']}" for row in result.verdict.left_out.to_dict("records"))
    yield from (f"cannot be read: {line}" for line in result.problems)


def _heading(results: Sequence["ReportResult"], result: "ReportResult") -> str:
    return tag("h3", text(result.loaded.study.name)) if len(results) > 1 else ""


def _cell(value: Any) -> str:
    return "" if value is None or value != value else str(value)
