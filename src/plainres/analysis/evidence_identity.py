"""The claim near_identity: do early stability and final loss move together when blocks start near the identity?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.cells import COLUMNS, Cells
from plainres.analysis.claims import Claim, all_of, claim, effect_words, not_tested
from plainres.analysis.commands import beside, enough_seeds, run_command
from plainres.analysis.compare import LOSS_RESOLUTION, Comparison, compare
from plainres.analysis.evidence_errors import Make, made
from plainres.analysis.evidence_tuning import FREE
from plainres.analysis.near_identity import chance_loss, starts
from plainres.analysis.pool import Pool
from plainres.analysis.results import grouped
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.stats import MAX_N

if TYPE_CHECKING:
    import pandas as pd

ON_FLOOR = 1.0  # percentage points: an arm that trains to less than that leaves nothing to improve


def near_identity(study: str, cells: Cells, connection: str, pool: Pool) -> Claim:
    """The arm at full scale against those that start near the identity, at every depth where it is off the floor.

    About the arm at full scale the claim compares all others with it, about one of the others that one alone.
    """
    kind = starts(cells.runs).get(connection, "")
    if not kind:
        words = "Not tested: it compares y = x + F(x) with blocks that start with a smaller F, and this is neither."
        return not_tested("near_identity", cells.setting, connection, words, "")
    found = ablation(cells, pool, connection)
    if found is None:
        other = f"{study}_init_ablation"
        words = "Not tested: no runs with several initial scales of the branch where the one at full scale is off the "
        words += f"floor of 0 (say, at a higher learning rate).{beside(study, other)}"
        rate = 10 * float(cells.runs["optimizer.lr"].iloc[0])
        names = ["plain", "residual", "scaled", "depth_scaled", "skipinit", "zero_init"]
        command = run_command(other, cells.runs, (), names, (0, 1, 2, 3, 4), f"optimizer.lr={rate:g}")
        return not_tested("near_identity", cells.setting, connection, words, command)
    setting, full, near = found.setting, found.full, found.near
    rows = with_losses(setting, pool.early_loss)
    makers = [
        _difference(rows, name, full, arm, depth)
        for arm in near
        for depth in off_floor(setting, full)
        for name in RULES["near_identity"].parts
    ]
    comparisons = made(makers)
    status = all_of(comparisons)
    words = _words(status, full, near, comparisons, setting)
    needed = max((c.n_needed or 0 for c in comparisons), default=0)
    seeds = enough_seeds(setting.runs, max(setting.runs["seed"].nunique(), min(needed, MAX_N)))
    command = run_command(f"{study}_init_ablation", setting.runs, off_floor(setting, full), (full, *near), seeds)
    return claim("near_identity", cells.setting, connection, status, words, comparisons, None, command)


@dataclass(frozen=True, eq=False)
class Ablation:
    """Arms that start at different distances from the identity, all else equal.

    Attributes:
        setting: their cells.
        full: the arm y = x + F(x), which has depths off the floor.
        near: the arms to compare with it.
    """

    setting: Cells
    full: str
    near: list[str]


def ablation(cells: Cells, pool: Pool, connection: str) -> Ablation | None:
    """The setting with most arms to compare with ``connection``, the nearest learning rate first; None without one."""
    rate = float(cells.runs["optimizer.lr"].iloc[0])
    found = []
    for alike in pool.alike(cells, FREE):
        kinds = starts(alike.used) if len(alike.used) else {}
        full = [name for name, kind in kinds.items() if kind == "full" and off_floor(alike, name)]
        near = sorted(name for name, kind in kinds.items() if kind == "near")
        near = [name for name in near if connection in (*full, name)]
        if full and near:
            distance = abs(np.log(float(alike.runs["optimizer.lr"].iloc[0]) / rate))
            found.append((-len(near), distance, alike.setting, Ablation(alike, full[0], near)))
    return min(found, key=lambda item: item[:3])[3] if found else None


def off_floor(cells: Cells, full: str) -> list[int]:
    """Depths at which the arm at full scale has something left to improve."""
    return [d for d in cells.depths(full) if 100 * cells.cell(full, d)["train_error"].mean() > ON_FLOOR]


def with_losses(cells: Cells, early: Mapping[str, float]) -> "pd.DataFrame":
    """The finished runs with ``early`` and ``end``, log10 of losses (diverged: of ``chance`` = ln C)."""
    used = grouped(cells.used, ["connection"])[[*COLUMNS, "optimizer.lr"]]
    chance = used["chance_error"].astype(float).map(chance_loss)
    end = used["log_loss"].astype(float).where(~used["diverged"], np.log10(chance))
    return used.assign(early=used["run_id"].map(dict(early)).astype(float), end=end, chance=chance)


def _difference(rows: "pd.DataFrame", name: str, full: str, arm: str, depth: int) -> Make:
    part = RULES["near_identity"].parts[name]
    at = rows[rows["depth"] == depth].set_index("group")
    mine, others = at[at["connection"] == full], at[at["connection"] == arm]
    both = mine.merge(others, left_index=True, right_index=True, suffixes=("", "_other"))
    both = both.assign(value=both[name] - both[f"{name}_other"]).dropna(subset="value").sort_values("seed")
    values = {str(int(seed)): float(value) for seed, value in zip(both["seed"], both["value"], strict=True)}
    ids = sorted({*both["run_id"], *both["run_id_other"]})
    diverged = int(both["diverged"].sum() + both["diverged_other"].sum())
    label = f"{full} − {arm} at depth {depth}, {'first quarter' if name == 'early' else 'final'} loss"
    return lambda level: compare(
        name, part, label, depth, values, level, LOSS_RESOLUTION, run_ids=ids, num_diverged=diverged
    )


def _words(status: ClaimStatus, full: str, near: list[str], comparisons: list[Comparison], setting: Cells) -> str:
    where = f"at learning rate {float(setting.runs['optimizer.lr'].iloc[0]):g}"
    if status is ClaimStatus.SUPPORTED:
        weakest = min(comparisons, key=lambda c: c.low if c.low is not None else 0.0)
        text = f"Whatever starts nearer to the identity than {full} ({', '.join(near)}) trains more steadily from the "
        return f"{text}first quarter on and ends lower, {where}; the weakest: {weakest.label}, {effect_words(weakest)}."
    agreeing = [arm for arm in near if _all_supported(comparisons, arm, full)]
    against = [c for c in comparisons if c.status is ClaimStatus.CONTRADICTED]
    text = f"Better early and at the end than {full} {where}: {', '.join(agreeing) or 'none'}."
    open_ = {arm for arm in near if arm not in agreeing and not any(_is_about(c, arm, full) for c in against)}
    text += f" Open: {', '.join(sorted(open_))}." if open_ else ""
    if against:
        said = "; ".join(f"{c.label}: {effect_words(c)}" for c in against[:3])
        text += f" Not so: {said}."
    return text


def _all_supported(comparisons: list[Comparison], arm: str, full: str) -> bool:
    return all(c.status is ClaimStatus.SUPPORTED for c in comparisons if _is_about(c, arm, full))


def _is_about(c: Comparison, arm: str, full: str) -> bool:
    return c.label.startswith(f"{full} − {arm} at ")
