"""What each figure draws, as the table that is kept beside it: rows are chosen here, and nothing is drawn."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from plainres.analysis.gain_chain import END
from plainres.analysis.profiles import ranked
from plainres.analysis.settings import PLAIN
from plainres.figures.canvas import NothingToDraw
from plainres.figures.jacobian import METRICS as JACOBIAN
from plainres.figures.jacobian import MOMENTS as JACOBIAN_MOMENTS
from plainres.figures.jacobian import SUM
from plainres.figures.many import deepest_of_many, is_many

if TYPE_CHECKING:
    import pandas as pd

MOST_PANELS = 6
ESTIMATE = (("mean", "value"), ("low", "low"), ("high", "high"))
DRAWN = ["connection", "depth", "series", "seed", "n", "value", "low", "high", "diverged", "chance_error"]


def degradation_rows(table: "pd.DataFrame", seeds: "pd.DataFrame") -> "pd.DataFrame":
    """Every run's final training error (series ``seed``), and the mean with its interval (series ``mean``).

    Args:
        table: rows of degradation.csv for one setting.
        seeds: one row per finished run: connection, depth, seed, train_error (chance if diverged), diverged,
            chance_error.

    Raises:
        NothingToDraw: no run is finished.
    """
    if seeds.empty:
        raise NothingToDraw("no run is complete or diverged")
    points = seeds[["connection", "depth", "seed", "train_error", "diverged"]]
    points = points.rename(columns={"train_error": "value"}).assign(series="seed", n=1)
    means = table[table["n"] > 0].rename(columns={f"train_error_{part}": name for part, name in ESTIMATE})
    means = means[["connection", "depth", "n", "value", "low", "high"]].assign(series="mean")
    return _joined(means, points).assign(chance_error=float(seeds["chance_error"].max()))[DRAWN]


def paired_gap_rows(table: "pd.DataFrame", pairs: "pd.DataFrame") -> "pd.DataFrame":
    """Plain − residual of every pair (series ``pair``), and the mean with its interval (series ``mean``); fractions.

    Args:
        table: rows of degradation.csv for one setting.
        pairs: ``Verdict.pairs`` of that setting.

    Raises:
        NothingToDraw: there is no pair.
    """
    if pairs.empty:
        raise NothingToDraw("no finished run has a finished partner in the plain arm")
    points = pairs[["connection", "depth", "seed", "diverged"]].assign(value=pairs["gap"], series="pair", n=1)
    means = table[table["gap_n"] > 0].rename(columns={f"gap_{part}": name for part, name in ESTIMATE})
    means = means.assign(n=means["gap_n"], series="mean")[
        ["connection", "depth", "n", "value", "low", "high", "series"]
    ]
    return _joined(means, points).assign(margin=float(table["margin"].iloc[0]))[[*DRAWN[:-1], "margin"]]


def _joined(means: "pd.DataFrame", points: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    both = pd.concat([means, points]).astype({"seed": "Int64"})
    return both.sort_values(["connection", "depth", "series", "seed"], ignore_index=True)


def plain_curve_rows(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The curves of the plain arm.

    Raises:
        NothingToDraw: there is none.
    """
    plain = curves[curves["connection"] == PLAIN]
    if plain.empty:
        raise NothingToDraw("no run of the plain arm has an evaluation")
    return plain


def log_curve_rows(curves: "pd.DataFrame", runs: "pd.DataFrame") -> "pd.DataFrame":
    """The training errors of the curves, with ``num_train``, the number of examples that an error is counted on.

    Raises:
        NothingToDraw: no run has an evaluation, or none says on how many examples.
    """
    counts = runs["num_train"].dropna()
    if curves.empty or counts.empty:
        raise NothingToDraw("no run has an evaluation yet")
    return curves[curves["metric"] == "train_error"].assign(num_train=int(counts.min()))


def map_rows(maps: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of a map that have a panel: with many connections those of the deepest networks."""
    known = maps.dropna(subset="value")
    return maps[maps["depth"] == known["depth"].max()] if is_many(known["connection"]) else maps


def response_std_rows(profile: "pd.DataFrame") -> "pd.DataFrame":
    """The end of training with each layer's rank, as in He et al. 2015, Figure 7."""
    return deepest_of_many(ranked(profile))


def gain_chain_rows(chain: "pd.DataFrame") -> "pd.DataFrame":
    """With many connections, the end of training alone has room."""
    return chain[chain["moment"] == END] if is_many(chain["connection"]) else chain


def jacobian_rows(profile: Callable[[str], "pd.DataFrame"]) -> "pd.DataFrame":
    """Profiles of all singular values, with a column ``metric``; with many connections the largest of I + J alone.

    Args:
        profile: metric -> ``analysis.profiles.profiles``.
    """
    import pandas as pd

    table = pd.concat([profile(name).assign(metric=name) for _, name in JACOBIAN], ignore_index=True)
    if not is_many(table["connection"]):
        return table
    return deepest_of_many(table[(table["metric"] == f"{SUM}_top") & table["moment"].isin(JACOBIAN_MOMENTS)])


def error_against_rows(table: "pd.DataFrame", label: str) -> "pd.DataFrame":
    """Runs at the (deepest) depths that have more than one value of what is varied.

    Args:
        table: ``analysis.across.by_rate`` or ``by_steps``.
        label: of what is varied.

    Raises:
        NothingToDraw: there is no such depth.
    """
    varied = table.groupby("depth")["x"].nunique() > 1  # one value alone says nothing here
    depths = [int(depth) for depth in varied.index[varied]][-MOST_PANELS:]
    if not depths:
        raise NothingToDraw(f"no depth has runs at more than one {label}")
    return table[table["depth"].isin(depths)].sort_values(["depth", "connection", "x", "seed"])


def settings_rows(table: "pd.DataFrame", seeds: "pd.DataFrame") -> "pd.DataFrame":
    """Means and intervals of several settings.

    Args:
        table: degradation.csv.
        seeds: the finished runs, with chance_error.

    Raises:
        NothingToDraw: too few or too many settings, or too many connections.
    """
    count, arms = table["setting"].nunique(), table["connection"].unique()
    if not 2 <= count <= MOST_PANELS:
        raise NothingToDraw(f"{count} settings; beside each other stand 2 to {MOST_PANELS}")
    if is_many(arms):
        raise NothingToDraw(f"{len(arms)} connections are too many beside each other; each setting has a figure")
    columns = ["setting", "connection", "depth", "n", "train_error_mean", "train_error_low", "train_error_high"]
    chance = float(seeds["chance_error"].max())
    rows = table[[*columns, "n_diverged"]].assign(chance_error=chance)
    return rows.sort_values(["setting", "connection", "depth"], ignore_index=True)
