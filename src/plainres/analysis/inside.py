"""What happened inside the networks of one setting: read once, asked for metric by metric."""

from typing import TYPE_CHECKING

from plainres.analysis.load import LoadedStudy
from plainres.analysis.profiles import maps, needed_steps, profiles
from plainres.analysis.tables import load_layers, load_steps
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    import pandas as pd

UPDATE = "update_ratio"
SLOW = 0.1  # of the peak learning rate: below, an update ratio shows the schedule's end and nothing of the net
MAPPED_DEPTHS = 2  # only the deepest nets have a map


class Inside:
    """Layer tables of the finished runs.

    Attributes:
        problems: a line for each run whose tables cannot be read.
        last_moving: each run's last probed step with at least ``SLOW`` of its peak learning rate, by run_id.
    """

    def __init__(self, loaded: LoadedStudy, runs: "pd.DataFrame", metrics: list[tuple[str, str]]) -> None:
        """
        Args:
            loaded: the study.
            runs: the runs of one setting; those that are not complete or diverged have no end, and are not used.
            metrics: pairs of scope and metric that will be asked for.
        """
        runs = runs[runs["status"].isin([str(s) for s in FINISHED])]
        updates, problems = load_steps(loaded, runs, "update", ["lr"])
        self._probed = _steps_by_run(updates)
        self._moving = _steps_by_run(_while_moving(updates))
        self.last_moving = {key: steps[-1] for key, steps in self._moving.items()}
        self._stopped = set(runs.loc[runs["status"] == Status.DIVERGED, "run_id"])
        self._budget = dict(zip(runs["run_id"], runs["trainer.steps"].astype(int), strict=True))
        self._deepest = sorted(runs["depth"].unique())[-MAPPED_DEPTHS:]
        steps = {
            key: needed_steps(steps, self._budget[key]) | needed_steps(self._moving[key], self._budget[key])
            for key, steps in self._probed.items()
        }
        self._layers, more = load_layers(loaded, runs, metrics, steps)
        self.problems = problems + more

    def profile(self, metric: str) -> "pd.DataFrame":
        """``analysis.profiles.profiles`` of a metric."""
        probed = self._moving if metric == UPDATE else self._probed
        return profiles(self._rows(metric), probed, self._budget, self._stopped)

    def map(self, metric: str) -> "pd.DataFrame":
        """``analysis.profiles.maps`` of a metric, for the deepest nets."""
        rows = self._rows(metric)
        return maps(rows[rows["depth"].isin(self._deepest)])

    def at_start(self, metric: str) -> "pd.DataFrame":
        """Rows of a metric at each run's first probed step."""
        return self._at(metric, {key: steps[0] for key, steps in self._probed.items()})

    def at_end(self, metric: str) -> "pd.DataFrame":
        """Rows of a metric at each run's last probed step with at least ``SLOW`` of the peak learning rate."""
        return self._at(metric, self.last_moving)

    def rows(self, scope: str, metric: str) -> "pd.DataFrame":
        """Rows of a metric at the probe steps read (``profiles.map_steps``)."""
        return self._layers[(self._layers["metric"] == metric) & (self._layers["scope"] == scope)]

    def by_run(self, scope: str, metric: str) -> "dict[str, pd.DataFrame]":
        """``rows``, by run_id."""
        return {str(run_id): run for run_id, run in self.rows(scope, metric).groupby("run_id", observed=True)}

    def _at(self, metric: str, steps: dict[str, int]) -> "pd.DataFrame":
        rows = self._layers[self._layers["metric"] == metric]
        return rows[rows["step"] == rows["run_id"].map(steps).astype(float)]

    def _rows(self, metric: str) -> "pd.DataFrame":
        rows = self._layers[self._layers["metric"] == metric]
        if metric != UPDATE:
            return rows
        last = rows["run_id"].map(self.last_moving).astype(float)
        return rows[rows["step"] <= last]


def _steps_by_run(updates: "pd.DataFrame") -> dict[str, list[int]]:
    return {str(run_id): sorted(steps) for run_id, steps in updates.groupby("run_id")["step"]}


def _while_moving(updates: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of lr up to each run's last one with at least ``SLOW`` of its peak."""
    peak = updates.groupby("run_id")["value"].transform("max")
    fast_steps = updates["step"].where(updates["value"] >= SLOW * peak)
    return updates[updates["step"] <= fast_steps.groupby(updates["run_id"]).transform("max")]
