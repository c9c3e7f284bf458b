"""The claim that everything else stands on: matched pairs, equal budgets, and no planned run unaccounted for."""

from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim
from plainres.analysis.commands import missing_cells, run_command
from plainres.analysis.compare import Comparison
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN
from plainres.analysis.stats import Flag
from plainres.store import Status

if TYPE_CHECKING:
    import pandas as pd


def comparable(study: str, cells: Cells, connection: str, audit: "pd.DataFrame") -> Claim:
    """Counts, no statistics: every pair clean, every run at its budget, every cell of the grid there."""
    arms = [PLAIN, connection] if connection else [PLAIN]
    runs = cells.runs[cells.runs["connection"].isin(arms)]
    pairs = audit[(audit["setting"] == cells.setting) & (audit["connection"] == connection)]
    unclean = pairs[~pairs["clean"].astype(bool)]
    complete = runs[runs["status"] == Status.COMPLETE]
    short = complete[complete["final_step"].astype(float) != complete["trainer.steps"].astype(float)]
    missing = missing_cells(runs)
    diverged = int((runs["status"] == Status.DIVERGED).sum())
    words = [f"{len(pairs) - len(unclean)} of {len(pairs)} matched pairs are clean"] if connection else []
    words += [f"{len(complete)} runs complete, {diverged} diverged"]
    if len(unclean):
        words.append(f"an undeclared difference in {_names(unclean['run_id'])} (see audit.csv)")
    if len(short):
        words.append(f"stopped before the budget: {_names(short['name'])}")
    if missing:
        words.append(f"{len(missing)} runs of the grid are missing or unfinished: {_cells(missing)}")
    if connection and pairs.empty:
        words.append("no pair to compare")
    status = ClaimStatus.SUPPORTED
    if len(unclean) or len(short):
        status = ClaimStatus.CONTRADICTED
    elif missing or (connection and pairs.empty):
        status = ClaimStatus.UNDECIDED
    command = ""
    if missing:
        depths, names, seeds = (sorted(set(values)) for values in zip(*missing, strict=True))
        command = run_command(study, runs, depths, names, seeds)
    sentence = "; ".join(words)
    counted = _counted(len(pairs), len(unclean), status, [str(i) for i in runs["run_id"]]) if len(pairs) else None
    return Claim(
        "comparable", cells.setting, connection, status, sentence[0].upper() + sentence[1:] + ".",
        (), counted, "a count of audits and statuses: there is nothing to estimate",
        tuple(sorted(str(i) for i in runs["run_id"])), command,
    )  # fmt: skip


def _counted(pairs: int, unclean: int, status: ClaimStatus, run_ids: list[str]) -> Comparison:
    part = RULES["comparable"].parts["pairs"]
    share = (pairs - unclean) / pairs
    return Comparison(
        "pairs", "pairs without an undeclared difference", 0, part.unit, part.margin, part.direction, status, pairs,
        share, None, None, 1.0, Flag.NONE, None, None, None, "", {}, tuple(run_ids), 0,
    )  # fmt: skip


def _names(values: "pd.Series[str]") -> str:
    found = [str(v) for v in values]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _cells(missing: list[tuple[int, str, int]]) -> str:
    texts = [f"{name} depth {depth} seed {seed}" for depth, name, seed in missing]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
