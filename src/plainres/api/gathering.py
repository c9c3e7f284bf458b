"""The evidence of a study on disk, computed from its files without writing a report."""

from collections.abc import Sequence
from typing import Any

from plainres.analysis.audit import audit_table
from plainres.analysis.declared import declarations
from plainres.analysis.degradation import judge
from plainres.analysis.evidence import gather
from plainres.analysis.inside import Inside
from plainres.analysis.inside_values import METRICS, measured
from plainres.analysis.load import LoadedStudy
from plainres.analysis.near_identity import early_losses
from plainres.analysis.pool import Pool
from plainres.report.evidence import evidence_document
from plainres.report.examine import ReportResult


def evidence_of(loaded: LoadedStudy, others: Sequence[LoadedStudy]) -> dict[str, Any]:
    """What ``plainres report --with`` writes to evidence.json.

    Args:
        loaded: the study.
        others: those read beside it.
    """
    runs = loaded.runs
    by_setting = {str(setting): part for setting, part in runs.groupby("setting")}
    audit = audit_table(runs, loaded.records)
    declared = {setting: declarations(part, loaded.records) for setting, part in by_setting.items()}
    inside = {setting: Inside(loaded, part, METRICS) for setting, part in by_setting.items()}
    problems = [*loaded.problems, *(f"{o.study.name}: {line}" for o in others for line in o.problems)]
    problems += [line for one in inside.values() for line in one.problems]
    early: dict[str, float] = {}
    for one in (loaded, *others):
        found, more = early_losses(one)
        early |= found
        problems += more
    pool = Pool.of(runs, [other.runs for other in others], early)
    numbers = {setting: measured(one) for setting, one in inside.items()}
    result = ReportResult(
        loaded,
        judge(runs),
        audit,
        declared,
        loaded.study.report_dir,
        others=list(others),
        evidence=gather(loaded.study.name, runs, audit, declared, numbers, pool),
        problems=list(dict.fromkeys(problems)),
    )
    return evidence_document(result)
