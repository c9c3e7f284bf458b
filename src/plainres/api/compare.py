"""``Study.compare``: one claim of the user's own, by the arithmetic of ours (``analysis.compare``)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.analysis import compare as comparing
from plainres.analysis.claims import effect_words
from plainres.analysis.results import grouped, split_usable
from plainres.analysis.rules import DECADES, FLOOR_MARGIN, POINTS, RULES, Direction, Part
from plainres.analysis.stats import count_p
from plainres.errors import UserError, require
from plainres.pair import identity_fields
from plainres.schema import RunConf

if TYPE_CHECKING:
    import pandas as pd

ERRORS = {
    "train_error": "num_train",
    "val_error": "num_val",
    "train_error_batchstats": "num_train",
    "train_error_running": "num_train",
}  # and the N that each is counted on
LOSS = "train_loss"
# What a comparison needs of a run, beside the setting under study.
COLUMNS = [
    "run_id", "seed", "group", "depth", "setting", "connection", "diverged", "log_loss", "chance_error", "num_train",
    "num_val", *ERRORS,
]  # fmt: skip
DIRECTIONS = (Direction.ABOVE, Direction.NO_RISE, Direction.WITHIN)


@dataclass(frozen=True, repr=False)
class OwnClaim(comparing.Comparison):
    """What the runs say about a claim of the user's."""

    def __repr__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return (
            f"{self.label}: {effect_words(self)}, n = {self.n}; "
            f"{self.direction} {self.margin:g} {self.unit}: {self.status}{why}"
        )


def compare(
    runs: "pd.DataFrame",
    metric: str,
    values: tuple[object, object],
    *,
    over: str,
    margin: float | None,
    direction: str,
    comparisons: int,
    where: Mapping[str, object],
) -> OwnClaim:
    """``Study.compare`` on the table of runs.

    Args:
        values: a and b.
        runs, metric, over, margin, direction, comparisons, where: as there.
    """
    part = _part(metric, margin, direction)
    _check(values, over, comparisons, where)
    used = _only(split_usable(runs)[0], where)
    both = _pairs(used, over, values)
    column = "log_loss" if metric == LOSS else metric
    known = both[both[column].notna() & both[f"{column}_other"].notna()]
    mine, other = (known[name].to_numpy(dtype=float) for name in (column, f"{column}_other"))
    scale = 1.0 if metric == LOSS else 100.0
    resolution = comparing.LOSS_RESOLUTION if metric == LOSS else 100 / int(both[ERRORS[metric]].min())
    seeds = [str(seed) for seed in known["seed"]]
    a, b = values
    at = "".join(f", {name}={value}" for name, value in where.items())
    found = comparing.compare(
        "own",
        part,
        f"{metric}: {a} − {b}{at}",
        int(both["depth"].max()),
        dict(zip(seeds, (scale * (mine - other)).tolist(), strict=True)),
        comparing.corrected(comparisons),
        resolution,
        count=_count(known, metric, part.direction),
        run_ids=sorted({*known["run_id"], *known["run_id_other"]}),
        num_diverged=int(known["diverged"].sum() + known["diverged_other"].sum()),
    )
    return OwnClaim(**vars(found))


def _check(values: tuple[object, object], over: str, comparisons: int, where: Mapping[str, object]) -> None:
    whole = isinstance(comparisons, int) and comparisons >= 1
    require(whole, "comparisons", comparisons, "a whole number of at least 1")
    settings = [name for name in identity_fields(RunConf()) if name != "seed" and not name.startswith("connection.")]
    known = over in ("connection", *settings)
    require(known, "over", over, "connection, depth or another setting's name (optimizer.lr)")
    a, b = values
    require(a != b, over, a, "another value than the one it is compared with", f"a and b are both {a}")
    require(over not in where, over, where.get(over), "left out, because a and b are its values")


def _part(metric: str, margin: float | None, direction: str) -> Part:
    require(metric in (*ERRORS, LOSS), "metric", metric, f"one of {', '.join((*ERRORS, LOSS))}")
    require(direction in DIRECTIONS, "direction", direction, f"one of {', '.join(DIRECTIONS)}")
    usual = FLOOR_MARGIN if metric == LOSS else RULES["degradation"].parts["rise"].margin
    chosen = usual if margin is None else margin
    number = isinstance(chosen, int | float) and math.isfinite(chosen) and chosen >= 0
    require(number, "margin", margin, "a number of at least 0, in the metric's unit")
    return Part(f"{metric} of a − of b", DECADES if metric == LOSS else POINTS, float(chosen), Direction(direction))


def _only(runs: "pd.DataFrame", where: Mapping[str, object]) -> "pd.DataFrame":
    """The finished runs with these values."""
    for name, value in where.items():
        require(name in runs, name, value, "left out: there is no such column of runs")
        runs = _having(runs, name, value)
    return runs


def _having(runs: "pd.DataFrame", name: str, value: object) -> "pd.DataFrame":
    found = runs[runs[name] == value]
    known = ", ".join(map(str, sorted(runs[name].dropna().unique().tolist(), key=str)))
    require(len(found) > 0, name, value, f"one of {known}" if known else "left out: no finished run is left")
    return found


def _pairs(used: "pd.DataFrame", over: str, values: tuple[object, object]) -> "pd.DataFrame":
    """Rows of a with those of b beside them (``_other``), each pair equal in all that is not under study."""
    free = ["connection", "start"] if over == "connection" else [over]  # a connection's label says what it starts from
    mine, others = (_having(used, over, value) for value in values)
    table = grouped(used.loc[[*mine.index, *others.index]].drop_duplicates("run_id"), free)
    table = table[list(dict.fromkeys([*COLUMNS, over]))]
    a, b = (table[table[over] == value] for value in values)
    both = a.merge(b, on="group", suffixes=("", "_other")).sort_values("seed")
    if both.empty:
        raise UserError(
            f"{over}={values[0]} and {values[1]}: no two runs differ in {over} alone; they differ in "
            f"{', '.join(_differing(mine, others, free)) or 'their seeds'} too"
        )
    if both["seed"].duplicated().any():
        several = [n for n in ("depth", "connection", "setting") if n != over and both[n].nunique() > 1]
        asked = "; ".join(f"give {n}=, one of {', '.join(map(str, both[n].unique()))}" for n in several)
        raise UserError(f"{over}={values[0]} and {values[1]}: several pairs have the same seed; {asked}")
    return both


def _differing(a: "pd.DataFrame", b: "pd.DataFrame", free: list[str]) -> list[str]:
    """Settings beside those in ``free`` and the seed of which a and b have no value in common."""
    names = [
        n for n in identity_fields(RunConf()) if n != "seed" and not any(n == f or n.startswith(f"{f}.") for f in free)
    ]
    return [name for name in names if not {*map(str, a[name])} & {*map(str, b[name])}]


def _count(both: "pd.DataFrame", metric: str, direction: Direction) -> float | None:
    """Where seeds are split into those that train and those that do not: p-value of the counts of failed runs."""
    if metric != "train_error" or direction is Direction.WITHIN or both.empty:
        return None
    cells: list[Any] = [both[name].to_numpy(dtype=float) for name in ("train_error", "train_error_other")]
    chance = float(both["chance_error"].max())
    failed, failed_other = (int(comparing.num_failed(cell, chance)) for cell in cells)
    if not failed or not any(bool(comparing.is_split(cell, chance)) for cell in cells):
        return None
    return count_p(failed, len(both), failed_other, len(both))
