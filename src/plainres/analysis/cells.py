"""Cells (connection × depth) of one setting, and the comparisons of errors between them, paired by seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from plainres.analysis.compare import Comparison, compare, corrected, differences, is_split, num_failed, with_holm
from plainres.analysis.results import METRICS, SERIES, grouped, usable
from plainres.analysis.rules import RULES, Part
from plainres.analysis.settings import PLAIN, arm_order, is_built
from plainres.analysis.stats import count_p

if TYPE_CHECKING:
    import pandas as pd

RISE = RULES["degradation"].parts["rise"]
# What comparisons need of a run: pandas takes rows of a narrow table many times faster.
COLUMNS = [
    "run_id", "connection", "depth", "seed", "group", "diverged", "log_loss", "num_train", "chance_error",
    *METRICS, *SERIES,
]  # fmt: skip
CellRows: TypeAlias = "dict[tuple[str, int], pd.DataFrame]"
SERIES_WORDS = {
    "train_error": "training error",
    "train_error_batchstats": "training error with batch statistics",
    "train_error_running": "error seen while training",
}


@dataclass(frozen=True, eq=False)
class Cells:
    """The runs of one setting.

    Attributes:
        setting: its label.
        runs: rows of the table of runs, in any status, without networks built from trained ones: those are no arm of
            the comparison of connections.
        used: the finished ones with their errors (``results.usable``).
    """

    setting: str
    runs: "pd.DataFrame"
    used: "pd.DataFrame"

    @classmethod
    def of(cls, runs: "pd.DataFrame", setting: str) -> "Cells":
        """The cells of one setting of a study."""
        mine = runs[(runs["setting"] == setting) & ~is_built(runs)]
        return cls(setting, mine, usable(mine))

    def without_diverged(self) -> "Cells":
        """The same without the runs that diverged, for the sensitivity line."""
        return Cells(self.setting, self.runs, self.used[~self.used["diverged"]])

    @cached_property
    def connections(self) -> list[str]:
        """Every arm but plain."""
        return [name for name in arm_order(self.runs["connection"]) if name != PLAIN]

    def depths(self, connection: str) -> list[int]:
        """Depths at which the connection has finished runs, shallowest first."""
        return sorted(depth for name, depth in self._across_arms if name == connection)

    def cell(self, connection: str, depth: int) -> "pd.DataFrame":
        """The finished runs of one cell, in the columns ``COLUMNS``."""
        empty = self.used.iloc[:0]
        return self._across_arms.get((connection, depth), empty).sort_values("seed")

    @cached_property
    def _across_depth(self) -> "CellRows":
        return _cell_rows(grouped(self.used, ["depth"]))

    @cached_property
    def _across_arms(self) -> "CellRows":
        return _cell_rows(grouped(self.used, ["connection"]))

    @cached_property
    def _across_both(self) -> "CellRows":
        return _cell_rows(grouped(self.used, ["depth", "connection"]))

    @cached_property
    def _split(self) -> set[str]:
        """Connections of which some cell has seeds that train and seeds that do not."""
        return {
            connection
            for (connection, _), cell in self._across_arms.items()
            if bool(is_split(cell["train_error"].to_numpy(dtype=float), float(cell["chance_error"].max())))
        }

    def rises(self, connection: str) -> list[Comparison]:
        """The degradation comparisons of a connection: each deeper depth against its shallowest, in order of depth."""
        deeper = self.depths(connection)[1:]
        level = corrected(max(len(deeper), 1))
        return with_holm([self.rise("rise", RISE, connection, depth, level) for depth in deeper])

    @cached_property
    def plain_rises(self) -> list[Comparison]:
        """``rises`` of the plain arm, which several claims start from."""
        return self.rises(PLAIN)

    def same_seed(self, keys: Iterable[tuple[str, int]]) -> "list[pd.DataFrame]":
        """Rows of several cells, in equal order, of the seeds that all of them have."""
        cells = [self._across_both[key] for key in keys]
        common = set.intersection(*[set(cell.index) for cell in cells])
        order = sorted(common, key=lambda group: int(cells[0].loc[group, "seed"]))
        return [cell.loc[order] for cell in cells]

    def rise(self, name: str, part: Part, connection: str, depth: int, confidence: float) -> Comparison:
        """Error of one connection at ``depth`` minus that at its shallowest depth."""
        first = self.depths(connection)[0]
        both = self._pairs(self._across_depth, (connection, depth), (connection, first))
        label = f"{connection}: depth {depth} − depth {first}"
        return self._compare(name, part, label, depth, both, [connection], confidence)

    def gap(self, name: str, part: Part, connection: str, depth: int, confidence: float, where: str = "") -> Comparison:
        """Error of plain minus that of the connection at one depth; ``where`` goes into its label."""
        both = self._pairs(self._across_arms, (PLAIN, depth), (connection, depth))
        label = f"plain − {connection} at depth {depth}{where}"
        return self._compare(name, part, label, depth, both, [PLAIN, connection], confidence)

    def rise_of(self, series: str, name: str, part: Part, depth: int, confidence: float) -> Comparison:
        """``rise`` of plain in another series of the training error."""
        first = self.depths(PLAIN)[0]
        both = self._pairs(self._across_depth, (PLAIN, depth), (PLAIN, first))
        label = f"plain, {SERIES_WORDS[series]}: depth {depth} − depth {first}"
        return _plainly(name, part, label, depth, both, 100 * (both[series] - both[f"{series}_other"]), confidence)

    def gap_of(self, series: str, name: str, part: Part, connection: str, depth: int, confidence: float) -> Comparison:
        """``gap`` in another series of the training error."""
        both = self._pairs(self._across_arms, (PLAIN, depth), (connection, depth))
        label = f"plain − {connection}, {SERIES_WORDS[series]}, depth {depth}"
        return _plainly(name, part, label, depth, both, 100 * (both[series] - both[f"{series}_other"]), confidence)

    def rise_beyond_validation(self, name: str, part: Part, depth: int, confidence: float) -> Comparison:
        """Rise of plain's training error minus the rise of its gap between validation and training error."""
        first = self.depths(PLAIN)[0]
        both = self._pairs(self._across_depth, (PLAIN, depth), (PLAIN, first))
        train, val = (both[name] - both[f"{name}_other"] for name in ("train_error", "val_error"))
        label = f"plain: depth {depth} − depth {first}, training error − what validation adds"
        return _plainly(name, part, label, depth, both, 100 * (2 * train - val), confidence)

    def _compare(
        self, name: str, part: Part, label: str, depth: int, both: "pd.DataFrame", arms: list[str], confidence: float
    ) -> Comparison:
        if both.empty:
            return compare(name, part, label, depth, {}, confidence, 1.0)
        error, other, loss, other_loss = (
            both[column].to_numpy(dtype=float)
            for column in ("train_error", "train_error_other", "log_loss", "log_loss_other")
        )
        found = differences(error, other, loss, other_loss, int(both["num_train"].min()))
        on_floor = bool(found.on_floor) and part.floor
        values = found.values if on_floor else 100 * (error - other)
        resolution = float(found.resolution) if on_floor else 100 / int(both["num_train"].min())
        return compare(
            name, part, label, depth, _by_seed(both, values), confidence, resolution, on_floor,
            self._count(arms, error, other, float(both["chance_error"].max())), _ids(both), _diverged(both),
        )  # fmt: skip

    def _count(self, arms: list[str], error: np.ndarray, other: np.ndarray, chance: float) -> float | None:
        """p-value of the counts of failed runs, where a cell of these arms is split and this one has failed runs."""
        failed = int(num_failed(error, chance))
        if not failed or not self._split & set(arms):
            return None
        return count_p(failed, error.size, int(num_failed(other, chance)), other.size)

    @staticmethod
    def _pairs(cells: "CellRows", this: tuple[str, int], other: tuple[str, int]) -> "pd.DataFrame":
        empty = next(iter(cells.values())).iloc[:0]
        mine, others = cells.get(this, empty), cells.get(other, empty)
        return mine.merge(others, left_index=True, right_index=True, suffixes=("", "_other"))


def _cell_rows(used: "pd.DataFrame") -> "CellRows":
    """Rows of each (connection, depth), indexed by the group in which ``match`` put them."""
    rows = used[COLUMNS].set_index("group")
    return {(str(name), int(depth)): cell for (name, depth), cell in rows.groupby(["connection", "depth"])}


def _plainly(
    name: str, part: Part, label: str, depth: int, both: "pd.DataFrame", values: "pd.Series[float]", confidence: float
) -> Comparison:
    """A comparison in percentage points without floor or counts; seeds without a value are left out."""
    known = both[values.notna()]
    resolution = 100 / int(both["num_train"].min()) if len(both) else 1.0
    numbers = _by_seed(known, values[values.notna()].to_numpy(dtype=float))
    return compare(
        name, part, label, depth, numbers, confidence, resolution, run_ids=_ids(known), num_diverged=_diverged(known)
    )


def _by_seed(both: "pd.DataFrame", values: np.ndarray) -> dict[str, float]:
    """seed -> value without what is missing (a floor without a stored loss)."""
    pairs = sorted(zip(both["seed"].astype(int), values, strict=True))
    return {str(seed): float(value) + 0.0 for seed, value in pairs if not np.isnan(value)}


def _ids(both: "pd.DataFrame") -> list[str]:
    return sorted({*both["run_id"], *both["run_id_other"]})


def _diverged(both: "pd.DataFrame") -> int:
    runs = dict(zip(both["run_id"], both["diverged"], strict=True))
    runs |= dict(zip(both["run_id_other"], both["diverged_other"], strict=True))
    return sum(map(bool, runs.values()))
