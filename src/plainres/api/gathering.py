"""The evidence of a study on disk, computed from its files without writing a report."""

from collections.abc import Sequence
from typing import Any

from plainres.analysis.inside import Inside
from plainres.analysis.inside_values import METRICS, measured
from plainres.analysis.load import LoadedStudy
from plainres.report.evidence import evidence_document
from plainres.report.examine import begin, decide


def evidence_of(loaded: LoadedStudy, others: Sequence[LoadedStudy]) -> dict[str, Any]:
    """What ``plainres report --with`` writes to evidence.json.

    Args:
        loaded: the study.
        others: those read beside it.
    """
    result = begin(loaded, others)
    inside = {str(key): Inside(loaded, runs, METRICS) for key, runs in loaded.runs.groupby("setting")}
    result.problems += [line for one in inside.values() for line in one.problems if line not in result.problems]
    decide(result, {setting: measured(one) for setting, one in inside.items()})
    return evidence_document(result)
