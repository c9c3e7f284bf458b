"""Diagnosis: a run's tables -> findings, each with run, layers, steps and number. The rules are in diagnosis_rules."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.diagnosis_rules import PLATEAU_SHARE, RULES, UNTRAINED_ABOVE, limit_of
from plainres.analysis.diagnosis_values import METRICS, RunValues, Series, beyond, read, where
from plainres.analysis.load import LoadedStudy
from plainres.analysis.tables import load_steps
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    import pandas as pd

    from plainres.analysis.inside import Inside

LOSS = "train_loss_running"


@dataclass(frozen=True)
class Finding:
    """One rule that a run's numbers carry.

    Attributes:
        rule: its name in ``RULES``.
        run_id, run, setting, connection, depth, seed: which run.
        scope: ``layer``, ``block`` or ``run``.
        layers: index and name of the layers or blocks; empty for a finding on the whole run. Where a run diverged
            is known by name only.
        first_step, last_step: from and to which step it is seen (evaluations: number of updates).
        number, unit: what was measured; the rule holds what it is compared with.
        log_classes: ln C; None where the number of classes is not known.
        train_error: the run's final one, a fraction; None if it has none.
    """

    rule: str
    run_id: str
    run: str
    setting: str
    connection: str
    depth: int
    seed: int
    scope: str
    layers: tuple[tuple[int | None, str], ...]
    first_step: int
    last_step: int
    number: float
    unit: str
    log_classes: float | None
    train_error: float | None

    @property
    def cell(self) -> tuple[str, str, int]:
        """Setting, connection, depth: equal for runs that differ only by seed."""
        return self.setting, self.connection, self.depth


@dataclass
class Diagnosis:
    """The findings of a study.

    Attributes:
        findings: the gravest first.
        cells: number of complete and diverged runs by setting, connection and depth.
        unprobed: names of those that have no rows of layers, so that only rules on the whole run can speak of them.
    """

    findings: list[Finding] = field(default_factory=list)
    cells: dict[tuple[str, str, int], int] = field(default_factory=dict)
    unprobed: list[str] = field(default_factory=list)

    def extend(self, other: "Diagnosis") -> None:
        """Take in the diagnosis of another setting."""
        self.findings = sorted(self.findings + other.findings, key=_order)
        self.cells |= other.cells
        self.unprobed += other.unprobed


def diagnose(loaded: LoadedStudy, runs: "pd.DataFrame", inside: "Inside") -> Diagnosis:
    """Findings on the complete and diverged runs of one setting.

    Args:
        loaded: the study.
        runs: its runs of one setting.
        inside: their layer tables, read with ``diagnosis_values.METRICS`` among the metrics.
    """
    runs = runs[runs["status"].isin([str(s) for s in FINISHED])]
    evaluations, _ = load_steps(loaded, runs, "eval", [LOSS])  # what cannot be read is named by the curves
    losses = {str(key): rows.sort_values("step") for key, rows in evaluations.groupby("run_id")}
    tables = {key: inside.by_run(*key) for key in METRICS}
    result = Diagnosis(cells={key: len(cell) for key, cell in runs.groupby(["setting", "connection", "depth"])})
    for row in runs.to_dict("records"):
        key = row["run_id"]
        classes = (loaded.records[key].get("data") or {}).get("num_classes")
        rows = losses.get(key)
        values = RunValues(
            budget=int(row["trainer.steps"]),
            last_moving=inside.last_moving.get(key, -1),
            log_classes=math.log(classes) if classes else math.nan,
            loss_steps=np.empty(0) if rows is None else rows["step"].to_numpy(),
            losses=np.empty(0) if rows is None else rows["value"].to_numpy(dtype=float),
            series={metric: Series.of(by_run[key]) for metric, by_run in tables.items() if key in by_run},
        )
        result.findings += findings(row, values)
        if not values.series:
            result.unprobed.append(row["name"])
    result.findings.sort(key=_order)
    return result


def _order(found: Finding) -> tuple[int, int, str, str, int]:
    """Sort key: gravity as the rules stand in the table, the deepest networks first."""
    return list(RULES).index(found.rule), -found.depth, found.connection, found.setting, found.seed


def findings(row: dict[str, Any], values: RunValues) -> Iterator[Finding]:
    """All findings on one run.

    Args:
        row: of ``LoadedStudy.runs``.
        values: what was measured in it.
    """
    for rule_id, rule in RULES.items():
        found = RUN_RULES[rule_id](row, values) if rule_id in RUN_RULES else _profile_finding(rule_id, row, values)
        if found is not None:
            classes = values.log_classes
            yield Finding(
                rule=rule_id,
                **{key: row[key] for key in ("run_id", "setting", "connection", "depth", "seed")},
                run=row["name"],
                **found,
                unit=rule.unit,
                log_classes=None if math.isnan(classes) else classes,
                train_error=_number(row["final_train_error"]),
            )


def _profile_finding(rule_id: str, row: dict[str, Any], values: RunValues) -> dict[str, Any] | None:
    rule = RULES[rule_id]
    assert rule.profile is not None
    if rule.untrained_only and not _untrained(row, values):
        return None
    reading = read(values, rule_id)
    if reading is None or not beyond(rule_id, np.array(reading.number)):
        return None
    names = values.series[rule.profile.scope, rule.profile.metric].names
    steps = reading.steps[beyond(rule_id, reading.numbers)]
    return {
        "scope": rule.profile.scope,
        "layers": tuple((i, names[i]) for i in where(rule_id, reading)),
        "first_step": int(steps[0]),
        "last_step": int(steps[-1]),
        "number": reading.number,
    }


def _untrained(row: dict[str, Any], values: RunValues) -> bool:
    loss = _number(row["final_train_loss"])
    return loss is not None and loss > UNTRAINED_ABOVE * values.log_classes


def _diverged(row: dict[str, Any], values: RunValues) -> dict[str, Any] | None:
    if row["status"] != Status.DIVERGED or (step := _number(row["diverged_step"])) is None:
        return None
    at = {"layers": ((None, str(row["diverged_layer"])),), "first_step": int(step), "last_step": int(step)}
    return {"scope": "run", **at, "number": step}


def _chance(row: dict[str, Any], values: RunValues) -> dict[str, Any] | None:
    """A loss at chance level from some evaluation to the last, for long enough."""
    there = np.isfinite(values.losses)
    steps, losses = values.loss_steps[there], values.losses[there]
    low = np.flatnonzero(~(losses > limit_of("chance") * values.log_classes))
    first = int(low[-1]) + 1 if low.size else 0
    if first >= len(steps) or steps[-1] - steps[first] < PLATEAU_SHARE * values.budget:
        return None
    lowest = float(losses[first:].min() / values.log_classes)
    return _of_run(int(steps[first]), int(steps[-1]), lowest)


def _running_statistics(row: dict[str, Any], values: RunValues) -> dict[str, Any] | None:
    error, with_batch = _number(row["final_train_error"]), _number(row["final_train_error_batchstats"])
    if error is None or with_batch is None or not 100 * (error - with_batch) > limit_of("running_statistics"):
        return None
    return _of_run(values.budget, values.budget, 100 * (error - with_batch))


RUN_RULES = {"diverged": _diverged, "chance": _chance, "running_statistics": _running_statistics}


def _of_run(first: int, last: int, number: float) -> dict[str, Any]:
    return {"scope": "run", "layers": (), "first_step": first, "last_step": last, "number": number}


def _number(value: object) -> float | None:
    """A finite number, or None for null and nan."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def grouped(found: list[Finding]) -> list[list[Finding]]:
    """Findings that differ only by seed, together; in the order of ``found``."""
    groups: dict[tuple[str, tuple[str, str, int]], list[Finding]] = {}
    for one in found:
        groups.setdefault((one.rule, one.cell), []).append(one)
    return list(groups.values())
