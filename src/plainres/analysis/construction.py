"""What training makes of a network that starts as good as its shallow source: construction.csv.

The outcome of a run compares its clean training error at every evaluation, 0 … steps, with its source's final one:

    lost       more than ``rules.BACK_MARGIN`` (1 point) above it at the last one, or the run diverged
    regained   not lost, but more than ``rules.AWAY_MARGIN`` (10 points) above it at some evaluation: the first ones
               count, so a run that ``start.noise`` throws out of the solution can regain it
    kept       neither: excursions of a few points are training's own noise
"""

from collections.abc import Hashable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from plainres.analysis.load import CONSTRUCTION, OUTCOME, LoadedStudy
from plainres.analysis.rules import AWAY_MARGIN, BACK_MARGIN
from plainres.analysis.settings import built_of, is_built
from plainres.analysis.tables import load_steps
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    import pandas as pd

CURVE = ["worst_train_error", "worst_step", "first_away_step"]


class Outcome(StrEnum):
    """What became of the solution."""

    KEPT = "kept"
    REGAINED = "regained"
    LOST = "lost"


def outcome_of(source_error: float, errors: "pd.Series[float]", diverged: bool) -> Outcome:
    """The outcome of one finished run.

    Args:
        source_error: of the source, a fraction.
        errors: clean training errors of all evaluations in order, fractions.
        diverged: whether the run diverged.
    """
    if diverged or 100 * (errors.iloc[-1] - source_error) > BACK_MARGIN:
        return Outcome.LOST
    return Outcome.REGAINED if _away(source_error, errors).any() else Outcome.KEPT


def _away(source_error: float, errors: "pd.Series[float]") -> "pd.Series[bool]":
    return 100 * (errors - source_error) > AWAY_MARGIN


def construction_table(loaded: LoadedStudy) -> tuple["pd.DataFrame", list[str]]:
    """A row for each run that was built from a trained network: where it began, how far it went, how it ended.

    Returns:
        Columns: names and ids; ``start_depth``, ``start_noise``; those of ``load.CONSTRUCTION``;
        ``worst_train_error`` with its step; ``first_away_step``, the first evaluation more than ``AWAY_MARGIN`` above
        the source; ``final_train_error``; ``outcome``. What a run does not have (yet) is empty. And the problems met
        while reading.
    """
    import pandas as pd

    runs = loaded.runs[is_built(loaded.runs)].reset_index(drop=True)
    rows, problems = load_steps(loaded, runs, "eval", ["train_error"])
    errors = {run_id: part.sort_values("step") for run_id, part in rows.dropna(subset="value").groupby("run_id")}
    own = ["setting", "connection", "depth", "seed", "status", "run_id"]
    table = runs[own].assign(start_depth=runs["start.depth"], start_noise=runs["start.noise"])
    table[list(CONSTRUCTION)] = runs[[f"construction_{name}" for name in CONSTRUCTION]]
    curve = pd.DataFrame([_curve(run, errors.get(run["run_id"])) for run in runs.to_dict("records")])
    table[[*CURVE, "outcome"]] = curve.reindex(columns=[*CURVE, "outcome"])
    table["final_train_error"] = runs["final_train_error"]
    columns = [name for name in table.columns if name != "outcome"]
    return table[[*columns, "outcome"]], problems


def _curve(run: "dict[Hashable, Any]", errors: "pd.DataFrame | None") -> dict[str, object]:
    """What the evaluations of one run say."""
    source_error = run["construction_source_train_error"]
    if errors is None or source_error is None or source_error != source_error:
        return {}
    errors = errors.reset_index(drop=True)
    away = errors.loc[_away(source_error, errors["value"]), "step"]
    worst = errors.loc[errors["value"].idxmax()]
    found: dict[str, object] = {"worst_train_error": float(worst["value"]), "worst_step": int(worst["step"])}
    found["first_away_step"] = int(away.iloc[0]) if len(away) else None
    if run["status"] in FINISHED:
        diverged = run["status"] == Status.DIVERGED
        found["outcome"] = str(outcome_of(float(source_error), errors["value"], diverged))
    return found


def with_outcomes(loaded: LoadedStudy) -> LoadedStudy:
    """The study with the outcome of every constructed run in the column ``load.OUTCOME``."""
    if not is_built(loaded.runs).any():
        return loaded
    table, problems = construction_table(loaded)
    outcomes = dict(zip(table["run_id"], table["outcome"], strict=True))
    runs = loaded.runs.assign(**{OUTCOME: loaded.runs["run_id"].map(outcomes)})
    return replace(loaded, runs=runs, problems=[*loaded.problems, *problems])


def construction_curves(curves: "pd.DataFrame") -> "pd.DataFrame":
    """Of ``curves.curves`` the training errors of constructed networks, and of those from scratch beside them."""
    keys = [(str(name), int(depth)) for name, depth in zip(curves["connection"], curves["depth"], strict=True)]
    built = {(name, depth): found for name, depth in set(keys) if (found := built_of(name))}
    shown = {*built, *[(found.arm, depth) for (_, depth), found in built.items()]}
    return curves[[key in shown for key in keys]].query("metric == 'train_error'")
