"""The numbers that the rules of diagnosis compare: a metric's profile at each probed step, and which steps count.

No pandas, no torch: the live view of a sweep measures the last written row with the same functions.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.diagnosis_rules import EARLY_SHARE, LEARNS_ABOVE, MIN_PROBES, RULES, Measure, Window, limit_of
from plainres.analysis.inside_values import END_SHARE, early_to_late

if TYPE_CHECKING:
    import pandas as pd

METRICS = list(dict.fromkeys((p.scope, p.metric) for p in (rule.profile for rule in RULES.values()) if p))


@dataclass(frozen=True)
class Series:
    """One metric of one run.

    Attributes:
        steps: (S,) the probed steps, rising.
        names: of the N layers or blocks, in forward order; its index is a layer's ``layer_index``.
        values_SN: nan where there is none.
    """

    steps: np.ndarray
    names: tuple[str, ...]
    values_SN: np.ndarray

    @classmethod
    def of(cls, rows: "pd.DataFrame") -> "Series":
        """From tidy rows (step, layer_index, layer_name, value) of one run, scope and metric."""
        steps, at_step = np.unique(rows["step"].to_numpy(), return_inverse=True)
        indices, firsts = np.unique(rows["layer_index"].to_numpy(), return_index=True)
        names = dict(zip(indices, rows["layer_name"].iloc[firsts], strict=True))
        count = int(indices[-1]) + 1
        values_SN = np.full((len(steps), count), np.nan)
        values_SN[at_step, rows["layer_index"].to_numpy()] = rows["value"].to_numpy(dtype=float)
        return cls(steps, tuple(str(names.get(i, i)) for i in range(count)), values_SN)


@dataclass(frozen=True)
class RunValues:
    """What the rules on layers and blocks need of one run.

    Attributes:
        budget: updates that it was to make.
        last_moving: its last probed step with at least a tenth of the peak learning rate.
        log_classes: ln C, the loss of a network that gives all C classes the same probability.
        loss_steps, losses: evaluations and the mean training loss of the updates since the one before; nan where it
            was not finite.
        series: by scope and metric; absent if it was not measured.
    """

    budget: int
    last_moving: int
    log_classes: float
    loss_steps: np.ndarray
    losses: np.ndarray
    series: dict[tuple[str, str], Series] = field(default_factory=dict)

    def window(self, probed: Collection[int], window: Window) -> list[int]:
        """The probed steps that a rule looks at."""
        early = [step for step in probed if step < EARLY_SHARE * self.budget]
        if window is Window.EARLY:
            return early
        later = [step for step in probed if EARLY_SHARE * self.budget <= step <= self.last_moving]
        return [step for step in (later if window is Window.LATER else early + later) if self._learns(step)]

    def _learns(self, step: int) -> bool:
        """Whether the loss around a step is still high; one that is not finite is."""
        if not len(self.losses):
            return False
        after = min(int(np.searchsorted(self.loss_steps, step, side="right")), len(self.losses) - 1)
        return not self.losses[after] <= LEARNS_ABOVE * self.log_classes


@dataclass(frozen=True)
class Reading:
    """What a rule on layers or blocks reads of a run.

    Attributes:
        number: to be compared with the rule's limit.
        steps: the probed steps of its window.
        numbers: one for each of them.
        values_SN: the profile at each of them.
    """

    number: float
    steps: np.ndarray
    numbers: np.ndarray
    values_SN: np.ndarray


def read(run: RunValues, rule_id: str) -> Reading | None:
    """Measure one rule on one run; None where its rows are missing, or too few."""
    rule = RULES[rule_id]
    profile = rule.profile
    series = run.series.get((profile.scope, profile.metric)) if profile else None
    if profile is None or series is None or (rule.needs and not known(run, (profile.scope, rule.needs))):
        return None
    values_SN = np.abs(series.values_SN)  # a learned scale may be negative
    if profile.window is Window.EARLY:
        # A weight that starts at 0 has no ratio there, and a large one after its first update: no fault of the run.
        values_SN = np.where(np.isnan(values_SN[0]), np.nan, values_SN)
    chosen = np.isin(series.steps, run.window([int(s) for s in series.steps], profile.window))
    numbers = np.array([measure(profile.measure, row) for row in values_SN[chosen]], dtype=float)
    usable = ~np.isnan(numbers)
    if usable.sum() < (MIN_PROBES if profile.window is Window.LATER else 1):
        return None
    over_steps = (np.max if rule.above else np.min) if profile.window is Window.EARLY else np.median
    return Reading(
        float(over_steps(numbers[usable])),
        series.steps[chosen][usable],
        numbers[usable],
        values_SN[chosen][usable],
    )


def known(run: RunValues, key: tuple[str, str]) -> bool:
    """Whether a metric was measured and has a value anywhere."""
    return key in run.series and bool(np.isfinite(run.series[key].values_SN).any())


def measure(kind: Measure, values_N: np.ndarray) -> float:
    """One number of a profile; nan where it has none.

    Args:
        kind: which number.
        values_N: not negative, in forward order, nan where there is none.
    """
    there = values_N[~np.isnan(values_N)]
    if not there.size:
        return float("nan")
    if kind is Measure.EARLY_TO_LATE:
        decades = early_to_late(values_N)
        return float("nan") if decades is None else float(10.0**decades)
    if kind is Measure.GROWTH:
        return float(values_N[-1] / values_N[0]) if values_N[0] > 0 else float("nan")
    return float(np.median(there) if kind is Measure.MEDIAN else there.max())


def where(rule_id: str, reading: Reading) -> list[int]:
    """Indices of the layers or blocks that a finding is about: the early ones, the ends, or those beyond the limit."""
    rule = RULES[rule_id]
    assert rule.profile is not None
    seen = np.flatnonzero(~np.isnan(reading.values_SN).all(0))
    if rule.profile.measure is Measure.EARLY_TO_LATE:
        return [int(i) for i in seen[: max(1, seen.size // END_SHARE)]]
    if rule.profile.measure is Measure.GROWTH:
        return [int(seen[0]), int(seen[-1])]
    columns = reading.values_SN[:, seen]
    over_steps = np.nanmax if rule.profile.window is Window.EARLY else np.nanmedian
    return [int(i) for i in seen[beyond(rule_id, over_steps(columns, axis=0))]]


def beyond(rule_id: str, numbers: np.ndarray) -> np.ndarray:
    """Which numbers lie beyond a rule's limit; one that lies on it does not."""
    return numbers > limit_of(rule_id) if RULES[rule_id].above else numbers < limit_of(rule_id)
