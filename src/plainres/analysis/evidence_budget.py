"""The claim not_budget: the gap at larger budgets, where there are runs that differ in their steps."""

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, effect_words, not_tested
from plainres.analysis.commands import beside, run_command
from plainres.analysis.degradation import onset_of
from plainres.analysis.evidence_errors import Make, made, more_seeds, without_onset
from plainres.analysis.pool import Pool
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN

LARGER = 2  # a budget is larger from twice the steps on
# A schedule of its own goes with a budget: its marks may move, its shape may not.
FREE = ["depth", "connection", "seed", "trainer.steps", "schedule.warmup_steps", "schedule.milestones"]


def larger_budgets(cells: Cells, pool: Pool) -> list[Cells]:
    """The settings equal to this one in all but at least ``LARGER`` × the steps, smallest budget first."""
    steps = _steps(cells)
    found = [more for more in pool.alike(cells, FREE) if _steps(more) >= LARGER * steps]
    return sorted(found, key=_steps)


def _steps(cells: Cells) -> int:
    return int(cells.runs["trainer.steps"].iloc[0])


def not_budget(study: str, cells: Cells, connection: str, pool: Pool) -> Claim:
    """Gaps at and beyond the onset (of the smaller budget) in runs with at least twice the steps."""
    setting, onset = cells.setting, onset_of(cells.plain_rises)
    steps, larger = _steps(cells), larger_budgets(cells, pool)
    if onset is None and larger:
        return without_onset("not_budget", study, cells, connection)
    makers: list[Make] = []
    for more in larger:
        depths = [d for d in more.depths(PLAIN) if onset is not None and d >= onset and d in more.depths(connection)]
        makers += [_gap(more, connection, depth, _steps(more)) for depth in depths]
    if not makers:
        where = "" if onset is None else f" from depth {onset} on"
        words = f"Not tested: no runs of both arms{where} have {LARGER} × the {steps} steps, or more."
        budgets = f"trainer.steps={steps},{2 * steps},{4 * steps}"
        names = [PLAIN, connection]
        more_runs = f"{study}_budget"
        command = run_command(more_runs, cells.runs, connections=names, extra=budgets)
        words += beside(study, more_runs)
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
    tried = {c.depth for c in comparisons}
    left = [str(d) for d in cells.depths(PLAIN) if onset is not None and d >= onset and d not in tried]
    caveat = f"Without longer runs: depth {', '.join(left)}." if left else ""
    words = f"{start[status]}; {said}."
    return claim("not_budget", setting, connection, status, words, comparisons, None, command, caveat)


def _gap(more: Cells, connection: str, depth: int, steps: int) -> Make:
    part = RULES["not_budget"].parts["gap"]
    return lambda level: more.gap("gap", part, connection, depth, level, f", {steps} steps")
