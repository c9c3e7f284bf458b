"""Training curves: every seed, and the mean over seeds where at least two of them have a value."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.load import LoadedStudy
from plainres.analysis.tables import load_steps
from plainres.store import Status

if TYPE_CHECKING:
    import pandas as pd

METRICS = ("train_error", "val_error")
MEAN = "mean"
DIVERGED, UNFINISHED = "diverged", "unfinished"


def curves(
    loaded: LoadedStudy, runs: "pd.DataFrame", metrics: Sequence[str] = METRICS
) -> tuple["pd.DataFrame", list[str]]:
    """Evaluated errors over steps.

    Args:
        loaded: the study.
        runs: those of one setting.
        metrics: of the rows of evaluations.

    Returns:
        One row per connection, depth, metric, series and step. ``series`` is a seed as text, or ``mean`` (over
        ``n`` ≥ 2 seeds). ``value`` is a fraction (or a loss, in nats). ``stopped`` says why a seed ends before its
        budget, on its last row: ``diverged`` or ``unfinished``; else empty. And the problems met while reading.
    """
    import pandas as pd

    rows, problems = load_steps(loaded, runs, "eval", metrics)
    rows = rows.dropna(subset="value")
    keys = ["connection", "depth", "metric"]
    seeds = rows.assign(series=rows["seed"].astype(str), n=1)
    last = seeds.groupby(["run_id", "metric"], observed=True)["step"].transform("max")
    why = np.where(seeds["status"] == Status.DIVERGED, DIVERGED, UNFINISHED)
    seeds["stopped"] = np.where((seeds["status"] != Status.COMPLETE) & (seeds["step"] == last), why, "")
    groups = rows.groupby([*keys, "step"], observed=True)["value"].agg(["mean", "size"]).reset_index()
    means = groups.rename(columns={"mean": "value", "size": "n"}).assign(series=MEAN, stopped="")
    both = pd.concat([seeds, means[means["n"] >= 2]])[[*keys, "series", "step", "n", "value", "stopped"]]
    both = both.astype({"connection": str, "metric": str, "stopped": str})
    return both.sort_values([*keys, "series", "step"], ignore_index=True), problems
