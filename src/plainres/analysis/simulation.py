"""Simulated studies with known truth: how often ``degradation`` is claimed where there is none, and where there is.

    python -m plainres.analysis.simulation        prints both tables of docs/evidence.md, in seconds

Each study has one plain arm of D depths with n seeds. All studies go at once through the arithmetic of ``compare``.
"""

from collections.abc import Callable

import numpy as np

from plainres.analysis.compare import corrected, differences, is_split, num_failed
from plainres.analysis.rules import FLOOR_MARGIN, RULES
from plainres.analysis.stats import bounds, count_p

NUM_EXAMPLES, CHANCE = 1437, 0.9  # as scikit-learn's digits
NUM_STUDIES = 2000
Null = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Errors around 40 % with a standard deviation of 5 points."""
    return rng.normal(0.4, 0.05, shape)


def counts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Wrong examples, normal around 1 % with 3 points of spread, rounded and floored at 0: a third are exactly 0."""
    return np.clip(np.round(rng.normal(0.01, 0.03, shape) * NUM_EXAMPLES), 0, None) / NUM_EXAMPLES


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """30 % of the runs at chance (within a point), the others near 1 %."""
    failed = rng.random(shape) < 0.3
    return np.where(failed, rng.normal(CHANCE, 0.01, shape), np.abs(rng.normal(0.01, 0.005, shape)))


NULLS: dict[str, Null] = {"normal": normal, "rounded counts": counts, "bimodal": bimodal}


def degrades(errors: np.ndarray, log_losses: np.ndarray) -> np.ndarray:
    """Whether ``degradation`` is supported at some depth.

    Args:
        errors: (studies, depths, n), as fractions; the first depth is the shallowest.
        log_losses: log10 of the training losses, of the same shape.

    Returns:
        (studies,) of booleans.
    """
    level = corrected(errors.shape[1] - 1)
    deep, shallow = errors[:, 1:], errors[:, :1]
    found = differences(deep, shallow, log_losses[:, 1:], log_losses[:, :1], NUM_EXAMPLES)
    margin = np.where(found.on_floor, FLOOR_MARGIN, RULES["degradation"].parts["rise"].margin)
    above = bounds(found.values, found.resolution, level).low > margin
    split = is_split(errors, CHANCE).any(axis=1, keepdims=True)
    failed = num_failed(deep, np.full(deep.shape[:-1], CHANCE))
    failed_shallow = num_failed(shallow, np.full(shallow.shape[:-1], CHANCE))
    n = errors.shape[-1]
    p = np.array([[count_p(k, n, other, n) for other in range(n + 1)] for k in range(n + 1)])
    by_count = p[failed, np.broadcast_to(failed_shallow, failed.shape)] <= 1 - level
    return np.asarray((above & (by_count | ~split | (failed == 0))).any(axis=1))


def false_positives(null: Null, n: int, num_depths: int, num_studies: int = NUM_STUDIES, seed: int = 0) -> int:
    """How many of the studies claim a degradation that is not there."""
    rng = np.random.default_rng([seed, n, num_depths])
    shape = (num_studies, num_depths, n)
    return int(degrades(null(rng, shape), rng.normal(-3, 0.3, shape)).sum())


def lower_bound(hits: int, total: int, confidence: float = 0.99) -> float:
    """One-sided lower bound of a rate (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    return float(betaincinv(hits, total - hits + 1, 1 - confidence)) if hits else 0.0


def power(effect: float, sd: float, n: int, num_depths: int = 4, num_studies: int = NUM_STUDIES) -> float:
    """Share of studies that find a degradation of ``effect`` at the deepest depth alone.

    Args:
        effect: true rise, as a fraction.
        sd: standard deviation over seeds at each depth, as a fraction (a difference of two has √2 times that).
    """
    rng = np.random.default_rng([1, n, num_depths])
    shape = (num_studies, num_depths, n)
    errors = rng.normal(0.2, sd, shape)
    errors[:, -1] += effect
    return float(degrades(errors, np.zeros(shape)).mean())


def main() -> None:
    """Print the tables as Markdown."""
    print("| null | n | depths | false positives of 2,000 | rate % | 99 % lower bound % |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, null in NULLS.items():
        for n in (3, 5, 10):
            for depths in (4, 8):
                hits = false_positives(null, n, depths)
                rate, low = 100 * hits / NUM_STUDIES, 100 * lower_bound(hits, NUM_STUDIES)
                print(f"| {name} | {n} | {depths} | {hits} | {rate:.2f} | {low:.2f} |")
    sizes = (3, 4, 5, 7, 10, 20)
    print("\n| true rise, points | sd, points |", " | ".join(f"n = {n}" for n in sizes), "|")
    print("|---:|---:|" + "---:|" * len(sizes))
    for effect, sd in ((2, 0.2), (2, 0.5), (5, 1), (10, 2), (10, 5), (40, 10), (80, 10)):
        shares = [f"{100 * power(effect / 100, sd / 100, n):.0f} %" for n in sizes]
        print(f"| {effect} | {sd} |", " | ".join(shares), "|")


if __name__ == "__main__":
    main()
