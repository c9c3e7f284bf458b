"""The verdict table: final errors per depth and connection, degradation with depth, and the gap to plain.

Differences are paired by seed: two runs are compared only if ``match`` finds them equal in every identity
field but the one under study, so that learning rates or budgets mixed in one study never meet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.analysis.settings import PLAIN, arm_order
from plainres.analysis.stats import Estimate, interval
from plainres.pair import match
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    import pandas as pd

MARGIN = 0.01  # one percentage point: less than that is not called degradation
CELL = ["setting", "depth", "connection"]
COUNTS = ["n", "n_diverged", "n_left_out"]
METRICS = {"train_error": "num_train", "val_error": "num_val"}  # the error, and the N it is counted on


@dataclass(frozen=True)
class Verdict:
    """What a study says about depth.

    Attributes:
        table: one row per setting, depth and connection (degradation.csv). Errors and differences are fractions.
        onsets: one row per setting and connection: the least depth whose degradation interval lies wholly
            above ``MARGIN``, and the same in words.
        left_out: the runs that are not used, or used without a partner, and why.
    """

    table: "pd.DataFrame"
    onsets: "pd.DataFrame"
    left_out: "pd.DataFrame"


def judge(runs: "pd.DataFrame") -> Verdict:
    """Compute the verdict from the table of runs. Runs that diverged enter at chance level."""
    used, left_out = _usable(runs)
    across_depth = used.assign(group=match(used, ["depth"]).groups if len(used) else None)
    across_arms = used.assign(group=match(used, ["connection"]).groups if len(used) else None)
    table = _table(runs, across_depth, across_arms)
    return Verdict(table, _onsets(table), _with_partnerless(left_out, across_arms))


def usable(runs: "pd.DataFrame") -> "pd.DataFrame":
    """The finished runs, with ``train_error`` and ``val_error`` (chance level if ``diverged``)."""
    return _usable(runs)[0]


def _usable(runs: "pd.DataFrame") -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Finished runs with their errors, and the rest with the reason."""
    diverged = runs["status"] == Status.DIVERGED
    errors = {m: runs[f"final_{m}"].where(~diverged, runs["chance_error"]).astype(float) for m in METRICS}
    runs = runs.assign(diverged=diverged, **errors)
    finished = runs["status"].isin([str(s) for s in FINISHED])
    has_value = runs[[*METRICS, *METRICS.values()]].notna().all(axis=1)
    why = runs["status"].map(lambda status: f"{status}: has no result at the budget")
    why = why.where(~finished, "run.json holds no final error, chance level or number of examples")
    used = finished & has_value
    return runs[used], _reasons(runs[~used], why[~used])


def _reasons(runs: "pd.DataFrame", why: "pd.Series[str] | str") -> "pd.DataFrame":
    return runs[["name", "setting", "depth", "connection", "seed", "status"]].assign(why=why)


def _with_partnerless(left_out: "pd.DataFrame", used: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    plain_groups = used.loc[used["connection"] == PLAIN, "group"]
    alone = used[(used["connection"] != PLAIN) & ~used["group"].isin(plain_groups)]
    paired_groups = used.loc[used["connection"] != PLAIN, "group"]
    if len(paired_groups):  # a study of plain networks alone lacks no partner
        alone = pd.concat([alone, used[(used["connection"] == PLAIN) & ~used["group"].isin(paired_groups)]])
    why = "counts in its own mean; no finished run of the other arm to pair it with"
    both = pd.concat([left_out, _reasons(alone, why)])
    return both.sort_values(["setting", "depth", "connection", "seed", "name"], ignore_index=True)


def _table(runs: "pd.DataFrame", across_depth: "pd.DataFrame", across_arms: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    shallowest = across_depth.groupby(["setting", "connection"])["depth"].min()
    rows = []
    for (setting, depth, connection), cell in _cells(runs):
        mine = _cell(across_depth, setting, depth, connection)
        first = shallowest.get((setting, connection))
        shallow = _cell(across_depth, setting, first, connection)
        deeper = first is not None and depth > first
        degradation = _named("degradation", _paired(mine, shallow)) if deeper else _nothing("degradation", "shallowest")
        plain = _cell(across_arms, setting, depth, PLAIN)
        arm = _cell(across_arms, setting, depth, connection)
        gap = _named("gap", _paired(plain, arm)) if connection != PLAIN else _nothing("gap", "plain itself")
        row = {"setting": setting, "depth": depth, "connection": connection}
        row |= {"n": len(mine), "n_diverged": int(mine["diverged"].sum()), "n_left_out": len(cell) - len(mine)}
        for metric, examples in METRICS.items():
            row |= _named(metric, interval(mine[metric].to_numpy(), _examples(mine, examples)), counted=False)
        row |= {"degradation_from_depth": first if deeper else None} | degradation | gap | {"margin": MARGIN}
        rows.append(row)
    columns = [*CELL, *COUNTS, *_names("train_error", "mean", "sd"), *_names("val_error", "mean", "sd")]
    columns += ["degradation_from_depth", *_names("degradation", "n", "mean"), *_names("gap", "n", "mean"), "margin"]
    table = pd.DataFrame(rows, columns=columns)
    numbers = [name for name in columns if name.rpartition("_")[2] in ("mean", "sd", "low", "high")]
    return table.astype(dict.fromkeys(numbers, float)).astype({"degradation_from_depth": "Int64"})


def _cells(runs: "pd.DataFrame") -> Iterator[tuple[tuple[str, int, str], "pd.DataFrame"]]:
    """Cells in the order they are read: setting, depth, plain before the other arms."""
    order = {name: i for i, name in enumerate(arm_order(runs["connection"]))}
    cells = dict(iter(runs.groupby(CELL)))
    for key in sorted(cells, key=lambda k: (k[0], k[1], order[k[2]])):
        yield key, cells[key]


def _cell(used: "pd.DataFrame", setting: str, depth: int | None, connection: str) -> "pd.DataFrame":
    return used[(used["setting"] == setting) & (used["depth"] == depth) & (used["connection"] == connection)]


def _paired(these: "pd.DataFrame", those: "pd.DataFrame") -> Estimate:
    """Differences of the training error, ``these`` − ``those``, between runs of the same matching group."""
    both = these.merge(those, on="group", suffixes=("", "_other"))
    differences = (both["train_error"] - both["train_error_other"]).to_numpy(dtype=float)
    return interval(differences, _examples(both, "num_train"))


def _examples(runs: "pd.DataFrame", column: str) -> int:
    return int(runs[column].min()) if len(runs) else 1  # with no run there is no interval either


def _names(prefix: str, *parts: str) -> list[str]:
    return [f"{prefix}_{part}" for part in (*parts, "low", "high", "flag")]


def _named(prefix: str, e: Estimate, counted: bool = True) -> dict[str, Any]:
    """An estimate as columns; a mean shares the ``n`` of its row, a paired difference has its own."""
    first = {f"{prefix}_n": e.n} if counted else {f"{prefix}_sd": e.sd}
    values = {"mean": e.mean, "low": e.low, "high": e.high, "flag": str(e.flag)}
    return first | {f"{prefix}_{key}": value for key, value in values.items()}


def _nothing(prefix: str, why: str) -> dict[str, Any]:
    """A difference that is not defined for this row, with the reason as its flag."""
    return {f"{prefix}_n": 0, f"{prefix}_flag": why}


def _onsets(table: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    columns = ["setting", "connection", "onset_depth", "verdict"]
    rows = []
    for setting, part in table.groupby("setting"):
        for connection in arm_order(part["connection"]):
            depth, words = _onset(part[part["connection"] == connection])
            rows.append({"setting": setting, "connection": connection, "onset_depth": depth, "verdict": words})
    return pd.DataFrame(rows, columns=columns).astype({"onset_depth": "Int64"})


def _onset(arm: "pd.DataFrame") -> tuple[int | None, str]:
    """Onset depth of one connection, and in words; ``arm`` is sorted by depth.

    Not to find degradation is a result only where the interval excludes it: wholly at or below the margin.
    """
    deeper = arm[arm["degradation_from_depth"].notna()]
    if deeper.empty:
        return None, "undecided: one depth only"
    over = deeper["degradation_low"] > MARGIN
    open_ = ~over & ~(deeper["degradation_high"] <= MARGIN)  # also where there is no interval
    onset = int(deeper.loc[over, "depth"].iloc[0]) if over.any() else None
    unknown = [str(d) for d in deeper.loc[open_, "depth"] if onset is None or d < onset]
    if onset is not None:
        return onset, f"degrades from depth {onset}" + (f" (undecided: {', '.join(unknown)})" if unknown else "")
    if unknown:
        return None, f"undecided at depth {', '.join(unknown)}: the interval holds the margin, or n < 2"
    return None, f"no degradation up to depth {deeper['depth'].iloc[-1]}"
