"""The claim solution_exists: a deep plain network built from a shallow one's solution, and what training does to it."""

from typing import TYPE_CHECKING, Any

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, deciding, effect_words, not_tested, seeds_needed
from plainres.analysis.commands import beside, enough_seeds, run_command
from plainres.analysis.compare import Comparison, compare
from plainres.analysis.construction import Outcome
from plainres.analysis.evidence_errors import Make, made
from plainres.analysis.load import OUTCOME
from plainres.analysis.results import grouped
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN, is_built
from plainres.validation_start import BUILDABLE

if TYPE_CHECKING:
    import pandas as pd

ID = "solution_exists"
# Whether a network can represent something does not depend on how fast it would learn.
FREE = ["depth", "connection", "seed", "start", "optimizer.lr"]


def solution_exists(study: str, cells: Cells, connection: str, pool: "pd.DataFrame") -> Claim:
    """Training error of constructed plain networks at their first step, against that of their sources.

    Args:
        study: its name, for the command.
        cells: the setting.
        connection: the arm that the claim is listed with; it is about plain networks all the same.
        pool: rows of all runs that may count (``load.LoadedStudy.runs`` of one study or of several).
    """
    built = _built_like(cells, pool)
    if built.empty:
        return _not_tested(study, cells, connection)
    kinds = built.groupby(["optimizer.lr", "depth", "start.depth"], sort=True)
    comparisons = made([_error(rows, float(lr), int(depth), int(start)) for (lr, depth, start), rows in kinds])
    status = all_of(comparisons)
    shown = deciding(status, comparisons)
    depths = " and ".join(str(d) for d in sorted(built["depth"].unique()))
    words = {
        ClaimStatus.SUPPORTED: f"Plain networks of depth {depths} built from trained shallow ones err as these do",
        ClaimStatus.CONTRADICTED: "Networks built from trained shallow ones do not err as these do",
        ClaimStatus.UNDECIDED: "Not clear whether networks built from trained shallow ones err as these do",
    }[status]
    said = f" ({shown.label}: {effect_words(shown)})" if shown else ""
    return claim(
        ID, cells.setting, connection, status, f"{words}{said}.{_training_words(built)}", comparisons, shown,
        _more_seeds(study, cells, built, comparisons),
    )  # fmt: skip


def _built_like(cells: Cells, pool: "pd.DataFrame") -> "pd.DataFrame":
    """Unperturbed constructed plain runs that differ from the setting in ``FREE`` alone, each once."""
    import pandas as pd

    exact = is_built(pool) & (pool["connection.name"] == PLAIN) & (pool["start.noise"] == 0)
    exact &= pool["construction_train_error"].notna()
    found = pool[exact].drop_duplicates("run_id")
    if found.empty:
        return found
    both = grouped(pd.concat([cells.runs.iloc[:1], found], ignore_index=True), FREE)
    alike = both["group"] == both["group"].iloc[0]
    return both[alike].iloc[1:].sort_values(["optimizer.lr", "depth", "seed"])


def _error(rows: "pd.DataFrame", lr: float, depth: int, start: int) -> Make:
    part = RULES[ID].parts["error"]
    values = 100 * (rows["construction_train_error"] - rows["construction_source_train_error"]).astype(float)
    by_seed = {str(seed): float(value) for seed, value in zip(rows["seed"].astype(int), values, strict=True)}
    label = f"plain: depth {depth} built from {start} − its source, lr {lr:g}"
    ids = sorted({*rows["run_id"], *rows["construction_source"]})
    resolution = 100 / int(rows["num_train"].min())
    return lambda level: compare("error", part, label, depth, by_seed, level, resolution, run_ids=ids)


def _training_words(built: "pd.DataFrame") -> str:
    """How many runs kept, regained or lost the solution, for each learning rate."""
    ended = built[built[OUTCOME].notna()]
    if ended.empty:
        return " What training does to it is not known: no such run has ended."
    parts = []
    for lr, runs in ended.groupby("optimizer.lr", sort=True):
        counts = runs[OUTCOME].value_counts()
        told = " and ".join(f"{o} in {counts[o]}" for o in map(str, Outcome) if o in counts)
        parts.append(f"at learning rate {lr:g} {told} of {len(runs)} runs")
    return f" Trained on, the solution was {', '.join(parts)}."


def _more_seeds(study: str, cells: Cells, built: "pd.DataFrame", comparisons: list[Comparison]) -> str:
    needed = seeds_needed(comparisons)
    if not needed:
        return ""
    start = int(built["start.depth"].iloc[0])
    depths = sorted({int(d) for d in built["depth"]})
    seeds = enough_seeds(built, needed)
    return run_command(f"{study}_construction", cells.runs, depths, [PLAIN], seeds, f"start.depth={start}")


def _not_tested(study: str, cells: Cells, connection: str) -> Claim:
    row: dict[Any, Any] = cells.runs.iloc[0].to_dict()
    odd = [name for name, allowed in BUILDABLE.items() if row[name] not in allowed]
    if odd:
        found = ", ".join(f"{name}={row[name]}" for name in odd)
        words = f"Not tested: with {found} no weights are known that make a block of these networks the identity."
        return not_tested(ID, cells.setting, connection, words, "")
    other = f"{study}_construction"
    words = f"Not tested: it needs {RULES[ID].rests_on}.{beside(study, other)}"
    shallow, *deeper = sorted(int(d) for d in cells.runs["depth"].unique())
    deeper = deeper or [shallow + 10 * int(row["model.branch_layers"])]
    extra = f"start.depth={shallow}"
    command = run_command(other, cells.runs, deeper[-1:], [PLAIN], extra=extra)
    return not_tested(ID, cells.setting, connection, words, command)
