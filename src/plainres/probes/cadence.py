"""When things are measured. Early training moves fastest, so early points are log-spaced."""


def is_due(step: int, every: int) -> bool:
    """Whether a step (0-based) is 0, a power of two below ``every`` (1 or more), or a multiple of ``every``."""
    return step % every == 0 or (step < every and step.bit_count() == 1)


def probe_steps(every: int, steps: int) -> frozenset[int]:
    """Steps (0-based, before their update) in which the inside of the network is read.

    Step 0, powers of two up to ``every``, every ``every`` steps, and the last step; none when ``every`` is 0.
    """
    if every == 0:
        return frozenset()
    return frozenset(s for s in range(steps) if s == steps - 1 or is_due(s, every))


def evaluation_steps(every: int, steps: int, early: bool) -> frozenset[int]:
    """Numbers of updates after which the network is evaluated.

    0, with ``early`` the 1-2-5 series up to ``every``, every ``every`` updates, and the final weights.
    """
    series = {m * 10**k for m in (1, 2, 5) for k in range(len(str(every))) if m * 10**k < every}
    return frozenset(s for s in {0, steps} | (series if early else set()) | set(range(0, steps, every)) if s <= steps)


def batchstats_steps(every: int, steps: int, evaluations: frozenset[int]) -> frozenset[int]:
    """Those evaluations that are repeated with batch statistics: every ``every`` updates, and the final weights."""
    return frozenset(s for s in evaluations if s % every == 0 or s == steps)
