"""The verdict table: final errors per depth and connection, degradation with depth, and the gap to plain.

Differences are paired by seed: two runs are compared only if ``match`` finds them equal in every identity
field but the one under study, so that learning rates or budgets mixed in one study never meet. Networks built
from trained shallower ones have rows of their own: their degradation is measured from their source, and they are
no arm of the comparison with plain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.analysis.cells import RISE, Cells
from plainres.analysis.compare import Comparison
from plainres.analysis.results import METRICS, grouped, reasons, split_usable
from plainres.analysis.rules import ClaimStatus
from plainres.analysis.settings import PLAIN, arm_order, built_of, is_built
from plainres.analysis.stats import Estimate, interval

if TYPE_CHECKING:
    import pandas as pd

MARGIN = RISE.margin / 100  # as a fraction: less than that is not called degradation
CELL = ["setting", "depth", "connection"]
COUNTS = ["n", "n_diverged", "n_left_out"]


@dataclass(frozen=True)
class Verdict:
    """What a study says about depth.

    Attributes:
        table: one row per setting, depth and connection (degradation.csv). Errors and differences are fractions.
        onsets: one row per setting and connection: the least depth whose degradation interval, corrected for
            the number of depths, lies wholly above ``MARGIN``, and the same in words.
        left_out: the runs that are not used, or used without a partner, and why.
        pairs: one row per matched pair: setting, connection, depth, seed, gap (plain − connection, a fraction),
            diverged (one of the two did).
    """

    table: "pd.DataFrame"
    onsets: "pd.DataFrame"
    left_out: "pd.DataFrame"
    pairs: "pd.DataFrame"


def judge(runs: "pd.DataFrame") -> Verdict:
    """Compute the verdict from the table of runs. Runs that diverged enter at chance level."""
    used, left_out = split_usable(runs)
    across_depth, across_arms = grouped(used, ["depth", "start"]), grouped(used, ["connection"])
    table = _table(runs, across_depth, across_arms)
    left_out = _with_partnerless(left_out, across_arms)
    return Verdict(table, _onsets(runs, table), left_out, _pairs(across_arms))


def _with_partnerless(left_out: "pd.DataFrame", used: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    used = used[~is_built(used)]
    plain_groups = used.loc[used["connection"] == PLAIN, "group"]
    alone = used[(used["connection"] != PLAIN) & ~used["group"].isin(plain_groups)]
    paired_groups = used.loc[used["connection"] != PLAIN, "group"]
    if len(paired_groups):  # a study of plain networks alone lacks no partner
        alone = pd.concat([alone, used[(used["connection"] == PLAIN) & ~used["group"].isin(paired_groups)]])
    why = "counts in its own mean; no finished run of the other arm to pair it with"
    both = pd.concat([left_out, reasons(alone, why)])
    return both.sort_values(["setting", "depth", "connection", "seed", "name"], ignore_index=True)


def _pairs(used: "pd.DataFrame") -> "pd.DataFrame":
    """The gap of every pair, of which the table has the means."""
    scratch = used[~is_built(used)]
    plain = scratch.loc[scratch["connection"] == PLAIN, ["group", "train_error", "diverged"]]
    both = scratch[scratch["connection"] != PLAIN].merge(plain, on="group", suffixes=("", "_plain"))
    both["gap"] = both["train_error_plain"].astype(float) - both["train_error"].astype(float)
    both["diverged"] = both["diverged"].astype(bool) | both["diverged_plain"].astype(bool)
    keys = ["setting", "connection", "depth", "seed"]
    return both[[*keys, "gap", "diverged"]].sort_values(keys, ignore_index=True)


def _table(runs: "pd.DataFrame", across_depth: "pd.DataFrame", across_arms: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    shallowest = across_depth.groupby(["setting", "connection"])["depth"].min()
    rows = []
    for (setting, depth, connection), cell in _cells(runs):
        mine = _cell(across_depth, setting, depth, connection)
        built = built_of(connection)
        first = built.depth if built else shallowest.get((setting, connection))
        shallow = _cell(across_depth, setting, first, built.arm if built else connection)
        deeper = first is not None and depth > first
        degradation = _named("degradation", _paired(mine, shallow)) if deeper else _nothing("degradation", "shallowest")
        plain = _cell(across_arms, setting, depth, PLAIN)
        arm = _cell(across_arms, setting, depth, connection)
        nothing = "plain itself" if connection == PLAIN else "not from scratch" if built else ""
        gap = _nothing("gap", nothing) if nothing else _named("gap", _paired(plain, arm))
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


def _onsets(runs: "pd.DataFrame", table: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    columns = ["setting", "connection", "onset_depth", "verdict"]
    rows = []
    for setting, part in table.groupby("setting"):
        cells = Cells.of(runs, str(setting))
        for connection in arm_order(name for name in part["connection"] if built_of(name) is None):
            depth, words = onset_in_words(cells.rises(connection))
            rows.append({"setting": setting, "connection": connection, "onset_depth": depth, "verdict": words})
    return pd.DataFrame(rows, columns=columns).astype({"onset_depth": "Int64"})


def onset_of(comparisons: Sequence[Comparison]) -> int | None:
    """The least depth whose corrected interval lies wholly above the margin."""
    return next((c.depth for c in comparisons if c.status is ClaimStatus.SUPPORTED), None)


def onset_in_words(comparisons: Sequence[Comparison]) -> tuple[int | None, str]:
    """Onset depth of one connection, and the same in words.

    Not to find degradation is a result only where the interval excludes it: wholly at or below the margin.
    """
    if not comparisons:
        return None, "undecided: one depth only"
    onset = onset_of(comparisons)
    open_ = [c for c in comparisons if c.status is ClaimStatus.UNDECIDED and (onset is None or c.depth < onset)]
    unknown = ", ".join(str(c.depth) for c in open_)
    if onset is not None:
        return onset, f"degrades from depth {onset}" + (f" (undecided: {unknown})" if unknown else "")
    if unknown:
        why = "; ".join(dict.fromkeys(c.why for c in open_))
        return None, f"undecided at depth {unknown}: {why}"
    return None, f"no degradation up to depth {comparisons[-1].depth}"
