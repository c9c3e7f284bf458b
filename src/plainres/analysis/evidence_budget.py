"""The claim not_budget: the gap at larger budgets, where a study holds runs that differ in their steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, effect_words, not_tested
from plainres.analysis.commands import run_command
from plainres.analysis.degradation import onset_of
from plainres.analysis.evidence_errors import Make, made, more_seeds, without_onset
from plainres.analysis.results import grouped
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN

if TYPE_CHECKING:
    import pandas as pd

LARGER = 2  # a budget is larger from twice the steps on
# A schedule of its own goes with a budget: its marks may move, its shape may not.
FREE = ["depth", "connection", "seed", "trainer.steps", "schedule.warmup_steps", "schedule.milestones"]


def larger_budgets(runs: "pd.DataFrame") -> dict[str, list[str]]:
    """Setting -> the settings equal to it in all but at least ``LARGER`` × the steps, smallest first."""
    first = grouped(runs.drop_duplicates("setting"), FREE)[["setting", "group", "trainer.steps"]]
    found = {}
    for row in first.to_dict("records"):
        alike = first[first["group"] == row["group"]].sort_values("trainer.steps")
        found[str(row["setting"])] = list(alike.loc[alike["trainer.steps"] >= LARGER * row["trainer.steps"], "setting"])
    return found


def not_budget(study: str, cells: Cells, connection: str, larger: Sequence[Cells]) -> Claim:
    """Gaps at and beyond the onset (of the smaller budget) in runs with at least twice the steps."""
    setting, onset = cells.setting, onset_of(cells.plain_rises)
    steps = int(cells.runs["trainer.steps"].iloc[0])
    if onset is None and larger:
        return without_onset("not_budget", study, cells, connection)
    makers: list[Make] = []
    for more in larger:
        depths = [d for d in more.depths(PLAIN) if onset is not None and d >= onset and d in more.depths(connection)]
        makers += [_gap(more, connection, depth, int(more.runs["trainer.steps"].iloc[0])) for depth in depths]
    if not makers:
        where = "" if onset is None else f" from depth {onset} on"
        words = f"Not tested: no runs of both arms{where} have {LARGER} × the {steps} steps, or more."
        budgets = f"trainer.steps={steps},{2 * steps},{4 * steps}"
        names = [PLAIN, connection]
        command = run_command(f"{study}_budget", cells.runs, connections=names, extra=budgets)
        return not_tested("not_budget", setting, connection, words, command)
    comparisons = made(makers)
    status = all_of(comparisons)
    said = "; ".join(f"{c.label}: {effect_words(c)}" for c in comparisons)
    start = {
        ClaimStatus.SUPPORTED: "A larger budget does not close the gap",
        ClaimStatus.CONTRADICTED: "A larger budget closes the gap: plain networks are slower, not stuck",
        ClaimStatus.UNDECIDED: "Not clear whether a larger budget closes the gap",
    }
    command = more_seeds(study, cells, comparisons, connection)
    return claim("not_budget", setting, connection, status, f"{start[status]}; {said}.", comparisons, None, command)


def _gap(more: Cells, connection: str, depth: int, steps: int) -> Make:
    part = RULES["not_budget"].parts["gap"]
    return lambda level: more.gap("gap", part, connection, depth, level, f", {steps} steps")
