"""Tables for figures that lay several settings of a study (and of those read beside it) next to each other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.evidence_budget import FREE as FREE_BUDGET
from plainres.analysis.evidence_identity import ablation, off_floor, with_losses
from plainres.analysis.evidence_tuning import FREE as FREE_RATE
from plainres.analysis.evidence_tuning import RATE, Tuning
from plainres.analysis.near_identity import starts
from plainres.analysis.pool import Pool

if TYPE_CHECKING:
    import pandas as pd

STEPS = "trainer.steps"
STARTS = ["connection", "depth", "seed", "early", "end", "chance", "diverged", RATE]
COLUMNS = ["connection", "depth", "seed", "train_error", "diverged", "chance_error"]


def by_rate(all_cells: Mapping[str, Cells], pool: Pool) -> "Iterator[tuple[str, pd.DataFrame]]":
    """For each family of settings that differ in nothing but the learning rate: one of its labels, and its runs.

    Columns: ``COLUMNS``, ``x`` (the learning rate), ``chosen`` (the best of its arm and depth, ``evidence_tuning``).
    """
    for setting, alike in _families(all_cells, pool, FREE_RATE):
        table = _joined(all_cells[setting], alike, RATE)
        tuning = Tuning.of(alike[0], pool)
        arms = table[["connection", "depth"]].drop_duplicates().itertuples(index=False)
        best = {(arm, depth): tuning.best(str(arm), int(depth)) for arm, depth in arms}
        at = [best[key] for key in zip(table["connection"], table["depth"], strict=True)]
        chosen = [one is not None and one.rate == x for one, x in zip(at, table["x"], strict=True)]
        yield setting, table.assign(chosen=chosen)


def by_steps(all_cells: Mapping[str, Cells], pool: Pool) -> "Iterator[tuple[str, pd.DataFrame]]":
    """The same for settings that differ in nothing but the budget."""
    for setting, alike in _families(all_cells, pool, FREE_BUDGET):
        yield setting, _joined(all_cells[setting], alike, STEPS).assign(chosen=False)


def by_start(all_cells: Mapping[str, Cells], pool: Pool) -> "Iterator[tuple[str, pd.DataFrame]]":
    """Early and final loss of arms that start at different distances from the identity, at the deepest depth.

    Columns: connection, depth, seed, early, end (log10 of losses), chance (ln C), diverged, lr (the learning rate).
    """
    seen = set()
    for cells in all_cells.values():
        kinds = starts(cells.runs)
        # The arm at full scale is compared with all others, each of those with it alone: it comes first.
        for connection in sorted(cells.connections, key=lambda name: kinds[name] != "full"):
            found = ablation(cells, pool, connection)
            if found is None or found.setting.setting in seen:
                continue
            seen.add(found.setting.setting)
            deepest = off_floor(found.setting, found.full)[-1]
            rows = with_losses(found.setting, pool.early_loss)
            mine = rows["connection"].isin([found.full, *found.near]) & (rows["depth"] == deepest)
            yield cells.setting, rows.loc[mine, STARTS].rename(columns={RATE: "lr"})


def _families(all_cells: Mapping[str, Cells], pool: Pool, free: Sequence[str]) -> Iterator[tuple[str, list[Cells]]]:
    seen: set[frozenset[str]] = set()
    for setting, cells in all_cells.items():
        alike = pool.alike(cells, free)
        key = frozenset(one.setting for one in alike)
        if len(alike) > 1 and key not in seen:
            seen.add(key)
            yield setting, alike


def _joined(own: Cells, alike: Sequence[Cells], field: str) -> "pd.DataFrame":
    """Runs of the arms of a setting in all of these settings."""
    import pandas as pd

    used = pd.concat([one.used for one in alike], ignore_index=True)
    used = used[used["connection"].isin(own.runs["connection"])]
    return used[COLUMNS].assign(x=used[field].astype(float))
