"""evidence.json: verdict, limits, claims, rules, provenance. Numbers are finite, or null with a reason."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from plainres.analysis.claims import Claim
from plainres.analysis.compare import Comparison
from plainres.analysis.conclusion import VERDICTS, Conclusion, where
from plainres.analysis.load import LoadedStudy
from plainres.analysis.rules import RULES, ClaimStatus, Direction
from plainres.analysis.settings import ONLY_SETTING
from plainres.analysis.stats import Flag
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    from plainres.report.examine import ReportResult

FORMAT = 1
MADE = {"code_hashes": "version of the code", "hardware": "kind of machine"}
ENVIRONMENT = ("device_name", "device_kind", "threads", "precision")


def evidence_document(result: "ReportResult") -> dict[str, Any]:
    """The whole of evidence.json."""
    return {
        "format": FORMAT,
        "verdict": {
            "sentences": verdict_sentences(result),
            "parts": [asdict(found) for found in result.evidence.conclusions],
        },
        "limits": list(limits(result)),
        "claims": [_claim(result, found) for found in result.evidence.claims],
        "rules": {name: asdict(rule) for name, rule in RULES.items()},
        "provenance": provenance(result),
    }


def verdict_sentences(result: "ReportResult") -> list[str]:
    """What was shown, and what was not: two sentences, for one connection or for all of them together."""
    found = result.evidence.conclusions
    if not found:
        return ["The study holds no runs.", "Nothing is shown."]
    if len(found) == 1:
        return [found[0].shown, found[0].not_shown]
    shown = "; ".join(_grouped(found, row.id, row.words) for row in VERDICTS if any(c.id == row.id for c in found))
    runs = result.loaded.runs
    settings = {str(name): where(part) for name, part in runs.groupby("setting")}
    said = "; ".join(text if name == ONLY_SETTING else f"{name}: {text}" for name, text in settings.items())
    return [
        f"{shown[0].upper()}{shown[1:]}. Setting: {said}.",
        "This is about how well networks fit their training data, and says nothing about generalisation; "
        f"each connection was compared with plain, not with the others{_open_everywhere(result)}.",
    ]


def _grouped(found: list[Conclusion], id_: str, words: str) -> str:
    names = [_name(c) for c in found if c.id == id_]
    return words if len(names) == len(found) else f"{words} ({', '.join(names)})"


def _name(found: Conclusion) -> str:
    arm = found.connection or "plain alone"
    return arm if found.setting == ONLY_SETTING else f"{arm} at {found.setting}"


def _open_everywhere(result: "ReportResult") -> str:
    claims = result.evidence.claims
    ids = [i for i in RULES if (mine := [c for c in claims if c.id == i]) and all(_is_open(c) for c in mine)]
    return f"; not decided for any of them: {', '.join(ids)}" if ids else ""


def _is_open(found: Claim) -> bool:
    return found.status in (ClaimStatus.NOT_TESTED, ClaimStatus.UNDECIDED)


def limits(result: "ReportResult") -> Iterator[str]:
    """What a reader must not conclude, and what is missing."""
    runs, claims = result.loaded.runs, result.evidence.claims
    yield "Seeds vary initial weights and the order of the data; data split, width and budget are those named above."
    yield "Validation errors are reported and enter one claim (not_overfitting); no claim is about generalisation."
    for status in (ClaimStatus.NOT_TESTED, ClaimStatus.UNDECIDED):
        every = all if status is ClaimStatus.NOT_TESTED else any
        ids = [i for i in RULES if (mine := [c.status is status for c in claims if c.id == i]) and every(mine)]
        if ids:
            what = str(status).replace("_", " ").capitalize()
            yield f"{what}: {', '.join(ids)}. The claims say what would decide them."
    arms = {(c.setting, c.connection) for c in result.evidence.conclusions}
    if len(arms) > 1:
        yield (
            f"{len(arms)} connections (or settings) are judged here, each corrected for its own comparisons only: "
            "with many of them, expect up to one in twenty claims to be wrong."
        )
    diverged = int((runs["status"] == Status.DIVERGED).sum())
    if diverged:
        yield f"{diverged} runs diverged and count at chance level; each claim says what it would be without them."
    unfinished = int((~runs["status"].isin([str(s) for s in FINISHED])).sum())
    if unfinished:
        yield f"{unfinished} runs have not ended and are left out."
    yield from _others(result)
    for setting, declared in result.declared.items():
        for name, declaration in declared.items():
            at = "" if setting == ONLY_SETTING else f" ({setting})"
            yield f"{name}{at} differs from plain in more than an addition: {declaration.words}."
    yield from result.problems


def _others(result: "ReportResult") -> Iterator[str]:
    """What was read beside the study, how much of it counts, and whether it was made in the same way."""
    own = origin(result.loaded)
    used = {run_id for found in result.evidence.claims for run_id in found.run_ids}
    known = set(result.loaded.runs["run_id"])
    for other in result.others:
        theirs = origin(other)
        ids = set(theirs["run_ids"]) - known
        counted = len(ids & used)
        if not counted:
            yield (
                f"None of the {len(theirs['run_ids'])} runs of {other.study.name} enters a claim: they repeat runs of "
                "this study, or differ from it in more than a claim compares."
            )
            continue
        unlike = [what for key, what in MADE.items() if theirs[key] != own[key]]
        how = f"made with another {' and another '.join(unlike)}" if unlike else "made by the same code and machine"
        runs = f"{counted} of the {len(theirs['run_ids'])} runs of {other.study.name} test claims about this study"
        yield f"{runs}; that study was {how}."
    for found in result.evidence.claims:
        if found.caveat:
            about = "" if found.setting == ONLY_SETTING else f" ({found.connection}, {found.setting})"
            yield f"{found.id}{about}: {found.caveat}"


def _claim(result: "ReportResult", found: Claim) -> dict[str, Any]:
    rule, shown = RULES[found.id], found.shown
    declared = result.declared.get(found.setting, {}).get(found.connection)
    return {
        "id": found.id,
        "setting": found.setting,
        "connection": found.connection or None,
        "label": declared.mark if declared else "",
        "statement": rule.statement,
        "status": str(found.status),
        "sentence": found.sentence,
        "effect": shown.effect if shown else None,
        "low": shown.low if shown else None,
        "high": shown.high if shown else None,
        "unit": shown.unit if shown else None,
        "null_reason": _null_reason(found),
        "confidence": shown.confidence if shown and shown.low is not None else None,
        "margin": shown.margin if shown else None,
        "direction": str(shown.direction) if shown else None,
        "n": shown.n if shown else 0,
        "test": found.test,
        "rests_on": rule.rests_on,
        "run_ids": list(found.run_ids),
        "num_comparisons": len(found.comparisons),
        "comparisons": [_comparison(c) for c in found.comparisons],
        "sensitivity": found.sensitivity,
        "caveat": found.caveat,
        "command": found.command,
    }


def _null_reason(found: Claim) -> str:
    """Why effect or interval of a claim are null; empty if they are not."""
    if found.shown is None:
        return "nothing was compared" if not found.comparisons else "no comparison stands for the claim"
    if found.shown.low is not None:
        return ""
    return "a count has no interval" if found.id == "comparable" else _flag_words(found.shown.flag)


def _flag_words(flag: Flag) -> str:
    return {Flag.NO_VALUE: "no pair of finished runs", Flag.ONE_VALUE: "one seed has no interval"}.get(flag, "")


def _comparison(c: Comparison) -> dict[str, Any]:
    kept = asdict(c)
    for name in ("run_ids", "flag"):
        kept.pop(name)
    reason = _flag_words(c.flag) if c.low is None else ""
    why = "" if c.p is not None else reason or "no spread: there is no t statistic"
    absence = c.direction in (Direction.NO_RISE, Direction.WITHIN)
    return kept | {
        "equivalent": c.equivalent if absence else None,
        "flag": str(c.flag),
        "null_reason": reason,
        "p_null_reason": why,
    }


def provenance(result: "ReportResult") -> dict[str, Any]:
    """Where the numbers come from: runs, code, hardware, and the hashes of the tables that were read."""
    runs, records = result.loaded.runs, result.loaded.records
    environments = [records[key].get("environment") or {} for key in runs["run_id"]]
    versions: dict[str, set[str]] = {}
    for environment in environments:
        for library, number in (environment.get("versions") or {}).items():
            versions.setdefault(library, set()).add(str(number))
    return {
        "study": result.loaded.study.name,
        "with": {other.study.name: origin(other) for other in result.others},
        "plainres": version("plainres"),
        "run_ids": sorted(str(key) for key in runs["run_id"]),
        "commits": _unique(e.get("commit") for e in environments),
        "runs_with_uncommitted_changes": sum(bool(e.get("dirty_hash")) for e in environments),
        "code_hashes": _unique(e.get("code_hash") for e in environments),
        "versions": {library: sorted(found) for library, found in sorted(versions.items())},
        "hardware": {key: _unique(e.get(key) for e in environments) for key in ENVIRONMENT},
        "tables_sha256": dict(_hashes(result)),
    }


def origin(other: LoadedStudy) -> dict[str, Any]:
    """Where the runs of one study come from."""
    environments = [other.records[key].get("environment") or {} for key in other.runs["run_id"]]
    return {
        "run_ids": sorted(str(key) for key in other.runs["run_id"]),
        "commits": _unique(e.get("commit") for e in environments),
        "code_hashes": _unique(e.get("code_hash") for e in environments),
        "hardware": {key: _unique(e.get(key) for e in environments) for key in ENVIRONMENT},
    }


def _unique(values: Iterator[Any]) -> list[Any]:
    return sorted({v for v in values if v is not None})


def _hashes(result: "ReportResult") -> Iterator[tuple[str, str]]:
    """Name in the study -> first 16 hex digits, for every table; run.json is left out: publishing shortens it."""
    from plainres.rows import TABLES  # pyarrow; `plainres status` does without

    for name in sorted(result.loaded.runs["folder"]):
        for table in TABLES:
            path = result.loaded.study.run_folder(name).path / f"{table}.parquet"
            if path.is_file():
                yield f"runs/{name}/{table}.parquet", hashlib.sha256(path.read_bytes()).hexdigest()[:16]
