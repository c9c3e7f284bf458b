"""One comparison: differences of matched runs, their interval at the corrected level, and what it decides.

The arithmetic works on arrays of any number of studies (values over seeds on the last axis), so that simulated
studies (``simulation``) go through the same lines as a study on disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plainres.analysis.rules import DECADES, FAMILY_ERROR_RATE, FLOOR_MARGIN, MIN_N, ClaimStatus, Direction, Part
from plainres.analysis.stats import SAME, Flag, count_p, estimate, holm, needed_n, p_value

LOSS_RESOLUTION = 1e-6  # decades: losses are float32
SUPPORTED = ClaimStatus.SUPPORTED


@dataclass(frozen=True)
class Differences:
    """Differences of two cells of a study (or of many): those of the error, or of log10 loss on the floor of 0.

    Attributes:
        values: (..., n) in percentage points, or in decades of training loss where ``on_floor``.
        on_floor: (...) whether every error of both cells is at most one example.
        resolution: (...) half-width of an interval without spread, in the same unit.
    """

    values: np.ndarray
    on_floor: np.ndarray
    resolution: np.ndarray


def differences(
    error: np.ndarray, other_error: np.ndarray, log_loss: np.ndarray, other_log_loss: np.ndarray, num_examples: int
) -> Differences:
    """``this`` − ``other`` for paired runs; all arrays are (..., n), errors as fractions, losses as log10."""
    highest = np.maximum(error, other_error).max(axis=-1)
    on_floor = highest <= 1 / num_examples + SAME
    values = np.where(on_floor[..., None], log_loss - other_log_loss, 100 * (error - other_error))
    return Differences(values, on_floor, np.where(on_floor, LOSS_RESOLUTION, 100 / num_examples))


def corrected(num_comparisons: int) -> float:
    """Bonferroni's level of each interval, so that all of a claim hold together with 95 %."""
    return 1 - FAMILY_ERROR_RATE / num_comparisons


def is_split(errors: np.ndarray, chance: np.ndarray | float) -> np.ndarray:
    """Whether seeds of one cell (..., n) disagree by more than half the chance level: some trained, some did not.

    Means over few such seeds are far from normal: three seeds that all fail by luck have a tiny spread.
    """
    return np.asarray(np.ptp(errors, axis=-1) > np.asarray(chance) / 2)


def num_failed(errors: np.ndarray, chance: np.ndarray | float) -> np.ndarray:
    """How many runs of a cell (..., n) end above half the chance level."""
    return np.asarray((errors > np.asarray(chance)[..., None] / 2).sum(axis=-1))


@dataclass(frozen=True)
class Comparison:
    """One comparison and what it decides.

    Attributes:
        part: its name in the rule.
        label: what is compared, in words.
        depth: the (deeper) depth.
        unit, margin, direction: from the rule, or those of the floor.
        status: what the interval says.
        n: number of pairs.
        effect, low, high: mean and interval at level ``confidence``, in ``unit``; None with the reason in ``flag``.
        flag: "n = 0", "n = 1", "no spread" (mean ± resolution), or empty.
        p, p_holm: two-sided p-value against the margin, and Holm's over the claim: information, they decide nothing.
        n_needed: where undecided, the n that would decide if mean and sd stayed; None: no such n up to 1,000.
        why: what stands in the way of a decision, in words, or empty.
        values: the difference of each seed.
        run_ids: the runs that were compared.
        num_diverged: how many of those diverged.
    """

    part: str
    label: str
    depth: int
    unit: str
    margin: float
    direction: Direction
    status: ClaimStatus
    n: int
    effect: float | None
    low: float | None
    high: float | None
    confidence: float
    flag: Flag
    p: float | None
    p_holm: float | None
    n_needed: int | None
    why: str
    values: Mapping[str, float]
    run_ids: tuple[str, ...]
    num_diverged: int

    @property
    def equivalent(self) -> bool:
        """Whether the whole interval lies inside ± margin: the two are equal for the purpose of the claim."""
        return self.low is not None and decide(Direction.WITHIN, self.low, self.high, self.margin) is SUPPORTED


def compare(
    name: str,
    part: Part,
    label: str,
    depth: int,
    values: Mapping[str, float],
    confidence: float,
    resolution: float,
    on_floor: bool = False,
    count: float | None = None,
    run_ids: Sequence[str] = (),
    num_diverged: int = 0,
) -> Comparison:
    """Decide one comparison.

    Args:
        name, part: the rule's part.
        label: what is compared, in words.
        depth: the deeper depth.
        values: seed -> difference, in the part's unit (decades of training loss if ``on_floor``).
        confidence: corrected level of the interval.
        resolution: half-width of an interval without spread.
        on_floor: all errors sit on the floor of 0, and the loss decides.
        count: where seeds are split, the p-value of the count of failed runs (``count_p``); it must be below the
            corrected error rate for a claim of a difference to be supported.
    """
    margin = FLOOR_MARGIN if on_floor else part.margin
    found = estimate(list(values.values()), resolution, confidence)
    status, why = decide(part.direction, found.low, found.high, margin), ""
    if found.n < MIN_N:
        status, why = ClaimStatus.UNDECIDED, f"{found.n} of at least {MIN_N} seeds"
    elif status is ClaimStatus.SUPPORTED and count is not None and count > 1 - confidence:
        status = ClaimStatus.UNDECIDED
        why = f"seeds are split into those that train and those that do not; their counts alone have p = {count:.2g}"
    elif status is ClaimStatus.UNDECIDED:
        why = "the interval holds the margin"
    needed = None
    if status is ClaimStatus.UNDECIDED:
        needed = _needed(part.direction, found.mean, found.sd, margin, confidence, count is not None)
    limit = margin if part.direction is not Direction.WITHIN or (found.mean or 0) > 0 else -margin
    return Comparison(
        name, label, depth, f"{DECADES} of training loss" if on_floor else part.unit, margin, part.direction, status,
        found.n, found.mean, found.low, found.high, confidence, found.flag, p_value(found, limit), None, needed, why,
        values, tuple(run_ids), num_diverged,
    )  # fmt: skip


def decide(direction: Direction, low: float | None, high: float | None, margin: float) -> ClaimStatus:
    """What a whole interval says about its claim."""
    if low is None or high is None:
        return ClaimStatus.UNDECIDED
    if direction is Direction.WITHIN:
        if -margin <= low and high <= margin:
            return ClaimStatus.SUPPORTED
        outside = low > margin or high < -margin
        return ClaimStatus.CONTRADICTED if outside else ClaimStatus.UNDECIDED
    above, below = low > margin, high <= margin
    if not above and not below:
        return ClaimStatus.UNDECIDED
    return ClaimStatus.SUPPORTED if above == (direction is Direction.ABOVE) else ClaimStatus.CONTRADICTED


def _needed(
    direction: Direction, mean: float | None, sd: float | None, margin: float, confidence: float, split: bool
) -> int | None:
    if mean is None or sd is None:
        return MIN_N  # nothing is known of the spread: the least that can decide
    distance = abs((abs(mean) if direction is Direction.WITHIN else mean) - margin)
    by_interval = needed_n(distance, sd, confidence)
    if not split or by_interval is None:
        return by_interval
    n = MIN_N
    while count_p(n, n, 0, n) > 1 - confidence:  # the least n at which counts could decide at all
        n += 1
    return max(n, by_interval)


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one claim with Holm's p-values."""
    adjusted = holm([c.p for c in comparisons])
    return [replace(c, p_holm=p) for c, p in zip(comparisons, adjusted, strict=True)]
