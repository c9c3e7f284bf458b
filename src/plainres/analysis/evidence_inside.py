"""The claims that rest on probes: signal and scales."""

from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, deciding, not_tested
from plainres.analysis.commands import run_command
from plainres.analysis.compare import LOSS_RESOLUTION, Comparison, compare
from plainres.analysis.evidence_errors import Make, made, more_depths, more_seeds
from plainres.analysis.inside_values import SCALES, SIGNAL
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN

if TYPE_CHECKING:
    import pandas as pd

HEALTHY = 1.0  # decades: early layers get between a tenth and ten times of what late ones get


def signal(study: str, cells: Cells, connection: str, measured: "pd.DataFrame") -> Claim:
    """How far the early-to-late ratio drifts from the shallowest to the deepest networks, plain against connection."""
    setting = cells.setting
    depths = [d for d in cells.depths(PLAIN) if d in cells.depths(connection)]
    if len(depths) < 2:
        words = "Not tested: it needs both arms at two depths at least."
        return not_tested("signal", setting, connection, words, more_depths(study, cells, depths, connection))
    shallow, deep = depths[0], depths[-1]
    makers = [_drift(cells, connection, measured, name, shallow, deep) for name in SIGNAL]
    comparisons = made(makers)
    if all(c.n == 0 for c in comparisons):
        return _no_probes("signal", study, cells, connection)
    status = all_of(comparisons)
    kinds = "; ".join(
        f"{name}: {_kind(measured, cells, PLAIN, deep, name)} in plain, "
        f"{_kind(measured, cells, connection, deep, name)} with {connection}"
        for name in SIGNAL
    )
    held = [c.label for c in comparisons if c.status is ClaimStatus.SUPPORTED]
    words = f"Early against late layers at depth {deep}: {kinds}. "
    words += f"{connection} stays nearer to depth {shallow} in {len(held)} of {len(comparisons)} quantities."
    if not any(_kind(measured, cells, PLAIN, deep, name).startswith(("vanishing", "exploding")) for name in SIGNAL):
        words += f" In plain networks of depth {deep} early layers have not lost their signal in the first place."
    return claim(
        "signal",
        setting,
        connection,
        status,
        words,
        comparisons,
        None,
        more_seeds(study, cells, comparisons, connection),
    )


def _drift(cells: Cells, connection: str, measured: "pd.DataFrame", name: str, shallow: int, deep: int) -> Make:
    values = _values_of(measured, name)
    keys = [(PLAIN, deep), (PLAIN, shallow), (connection, deep), (connection, shallow)]
    rows = cells.same_seed(keys)
    part = RULES["signal"].parts["drift"]
    seeds = [str(seed) for seed in rows[0]["seed"]]
    four = [[values.get(run_id) for run_id in cell["run_id"]] for cell in rows]
    effects = {
        seed: abs(a - b) - abs(c - d)
        for seed, a, b, c, d in zip(seeds, *four, strict=True)
        if a is not None and b is not None and c is not None and d is not None
    }
    ids = sorted({str(run_id) for cell in rows for run_id in cell["run_id"]})
    diverged = int(sum(cell["diverged"].sum() for cell in rows))
    label = f"{name}: drift of plain − of {connection}, depth {shallow} to {deep}"
    return lambda level: compare(
        "drift", part, label, deep, effects, level, LOSS_RESOLUTION, run_ids=ids, num_diverged=diverged
    )


def _values_of(measured: "pd.DataFrame", quantity: str) -> dict[str, float]:
    mine = measured[measured["quantity"] == quantity]
    return dict(zip(mine["run_id"].astype(str), mine["value"].astype(float), strict=True))


def _kind(measured: "pd.DataFrame", cells: Cells, connection: str, depth: int, quantity: str) -> str:
    """``vanishing (0.004)``: the geometric mean over seeds of early ÷ late, and what it is called."""
    values = _values_of(measured, quantity)
    known = [values[run_id] for run_id in cells.cell(connection, depth)["run_id"] if run_id in values]
    if not known:
        return "unknown"
    mean = sum(known) / len(known)
    name = "vanishing" if mean < -HEALTHY else "exploding" if mean > HEALTHY else "healthy"
    return f"{name} ({10**mean:.2g})"


def scales(study: str, cells: Cells, connection: str, measured: "pd.DataFrame") -> Claim:
    """Branch ratios and trunk growth of a connection within bounds at every depth, and no run that diverged."""
    setting, parts = cells.setting, RULES["scales"].parts
    depths = cells.depths(connection)
    makers = [_level(cells, connection, measured, name, depth) for depth in depths for name in SCALES]
    comparisons = made(makers)
    by_part: dict[str, list[Comparison]] = {name: [c for c in comparisons if c.part == name] for name in parts}
    if all(c.n == 0 for c in comparisons):
        return _no_probes("scales", study, cells, connection)
    if all(c.n == 0 for c in by_part[SCALES[0]]):
        words = f"Not tested: {connection} has no branch ratio, because it adds nothing to a trunk."
        return not_tested("scales", setting, connection, words, "")
    diverged = int(cells.used.loc[cells.used["connection"] == connection, "diverged"].sum())
    status = ClaimStatus.CONTRADICTED if diverged else all_of(comparisons)
    low, high = _extremes(by_part)
    words = f"Branch ratios of {connection}: largest {high}, smallest {low} (geometric means over seeds, worst depth). "
    growth = max(by_part[SCALES[2]], key=lambda c: abs(c.effect or 0.0))
    words += f"Trunk from first to last block: a factor of {10 ** (growth.effect or 0):.2g} at depth {growth.depth}. "
    words += f"{diverged} runs diverged." if diverged else "No run diverged."
    shown = deciding(status, comparisons) or growth
    command = more_seeds(study, cells, comparisons, connection)
    return claim("scales", setting, connection, status, words, comparisons, shown, command)


def _extremes(by_part: dict[str, list[Comparison]]) -> tuple[str, str]:
    """The smallest and the largest branch ratio over depths, as text."""
    small = [c.effect for c in by_part[SCALES[1]] if c.effect is not None]
    large = [c.effect for c in by_part[SCALES[0]] if c.effect is not None]
    return f"{10 ** min(small):.2g}", f"{10 ** max(large):.2g}"


def _level(cells: Cells, connection: str, measured: "pd.DataFrame", name: str, depth: int) -> Make:
    values = _values_of(measured, name)
    runs = cells.cell(connection, depth)
    ids = [str(run_id) for run_id in runs["run_id"]]
    known = {str(seed): values[run_id] for seed, run_id in zip(runs["seed"], ids, strict=True) if run_id in values}
    diverged = int(runs["diverged"].sum())
    part, label = RULES["scales"].parts[name], f"{connection}: {name} at depth {depth}"
    return lambda level: compare(
        name, part, label, depth, known, level, LOSS_RESOLUTION, run_ids=ids, num_diverged=diverged
    )


def _no_probes(id_: str, study: str, cells: Cells, connection: str) -> Claim:
    words = "Not tested: these runs hold no probes (probe=off), or their tables cannot be read."
    command = run_command(f"{study}_probed", cells.runs, connections=[PLAIN, connection], extra="probe=default")
    return not_tested(id_, cells.setting, connection, words, command)
