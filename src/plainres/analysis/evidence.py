"""The chain of evidence of a study: every claim of ``rules.RULES``, for each setting and connection, and the verdict.

Pure functions of tables: nothing is read here, and nothing is trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim
from plainres.analysis.comparable import comparable
from plainres.analysis.conclusion import Conclusion, conclude
from plainres.analysis.declared import Declaration
from plainres.analysis.evidence_budget import not_budget
from plainres.analysis.evidence_construction import solution_exists
from plainres.analysis.evidence_cured import cured
from plainres.analysis.evidence_errors import degradation, not_overfitting, not_statistics
from plainres.analysis.evidence_identity import near_identity
from plainres.analysis.evidence_inside import scales, signal
from plainres.analysis.evidence_tuning import not_tuning
from plainres.analysis.pool import Pool
from plainres.analysis.rules import RULES
from plainres.analysis.settings import is_built, setting_order

if TYPE_CHECKING:
    import pandas as pd

ORDER = list(RULES)
POOLED = (not_budget, not_tuning, near_identity)


@dataclass(frozen=True)
class Evidence:
    """What a study's files decide.

    Attributes:
        claims: by setting, then in the order of ``RULES``, then by connection.
        conclusions: one for each setting and connection (connection "" where a setting holds plain alone).
    """

    claims: list[Claim]
    conclusions: list[Conclusion]


def gather(
    study: str,
    runs: "pd.DataFrame",
    audit: "pd.DataFrame",
    declared: Mapping[str, Mapping[str, Declaration]],
    measured: Mapping[str, "pd.DataFrame"],
    pool: Pool | None = None,
) -> Evidence:
    """Decide every claim.

    Args:
        study: its name, for the commands.
        runs: the table of runs (``load.LoadedStudy.runs``).
        audit: ``audit.audit_table``.
        declared: setting -> connection -> what it declares.
        measured: setting -> ``inside_values.measured``.
        pool: the study's runs and those read beside it; None for the study's alone. What they differ in from a setting
            (budget, learning rate, initial scales) tests claims about that setting; they have no verdict of their own.
    """
    claims: list[Claim] = []
    conclusions: list[Conclusion] = []
    arms = runs[~is_built(runs)]
    all_cells = {setting: Cells.of(arms, setting) for setting in setting_order(arms["setting"])}
    pool = pool or Pool.of(runs)
    for setting, cells in all_cells.items():
        shared = [
            _with_sensitivity(cells, lambda c: degradation(study, c)),
            _with_sensitivity(cells, lambda c: not_overfitting(study, c)),
        ]
        mine = list(shared)
        for connection in cells.connections or [""]:
            own = _of_connection(study, cells, connection, audit, measured[setting], pool)
            mine += own
            label = declared.get(setting, {}).get(connection)
            conclusions.append(conclude(cells, connection, [*shared, *own], label))
        claims += sorted(mine, key=lambda c: ORDER.index(c.id))
    return Evidence(claims, conclusions)


def _of_connection(
    study: str,
    cells: Cells,
    connection: str,
    audit: "pd.DataFrame",
    measured: "pd.DataFrame",
    pool: Pool,
) -> list[Claim]:
    found = [comparable(study, cells, connection, audit)]
    if connection:
        found.append(_with_sensitivity(cells, lambda c: cured(study, c, connection)))
    found.append(_with_sensitivity(cells, lambda c: not_statistics(study, c, connection)))
    if connection:
        found += [_with_sensitivity(cells, partial(_pooled, make, study, cells, connection, pool)) for make in POOLED]
        found.append(_with_sensitivity(cells, lambda c: signal(study, c, connection, measured)))
        found.append(_with_sensitivity(cells, lambda c: scales(study, c, connection, measured)))
    return [*found, solution_exists(study, cells, connection, pool.runs)]


def _pooled(
    make: Callable[[str, Cells, str, Pool], Claim], study: str, cells: Cells, connection: str, pool: Pool, asked: Cells
) -> Claim:
    """The claim; without diverged runs in the pool as well, where those are asked for."""
    return make(study, asked, connection, pool if asked is cells else pool.without_diverged())


def _with_sensitivity(cells: Cells, make: Callable[[Cells], Claim]) -> Claim:
    """The claim, and what it would be without the runs that diverged and that it counts at chance level."""
    found = make(cells)
    diverged = max((c.num_diverged for c in found.comparisons), default=0)
    if not diverged:
        return found
    kept = cells.without_diverged()
    total = int(cells.used["diverged"].sum()) or diverged  # those of studies read beside it are not among the cells
    without = make(kept).status
    same = "the same" if without is found.status else str(without)
    return replace(found, sensitivity=f"{total} diverged runs count at chance level; without them: {same}")
