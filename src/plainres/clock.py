"""Seconds of a run, by activity. They live apart from the metric rows, which are the same bits every time."""

import datetime
import time


def now() -> str:
    """The time of day in UTC, ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Clock:
    """Seconds by activity. What a probed step takes more than the mean unprobed one counts as ``probes``."""

    def __init__(self, before: dict[str, float]) -> None:
        self._before = before
        self._spent = {"evaluation": 0.0, "store": 0.0, "tracker": 0.0}
        self._plain = [0.0, 0]
        self._probed = [0.0, 0]

    def step(self, seconds: float, probed: bool) -> None:
        sums = self._probed if probed else self._plain
        sums[0] += seconds
        sums[1] += 1

    def measure(self, activity: str) -> "_Stopwatch":
        return _Stopwatch(self._spent, activity)

    def seconds(self) -> dict[str, float]:
        """Seconds so far, with those of earlier attempts at the same run."""
        mean = self._plain[0] / self._plain[1] if self._plain[1] else 0.0
        probes = max(0.0, self._probed[0] - self._probed[1] * mean)
        spent = self._spent | {"train": self._plain[0] + self._probed[0] - probes, "probes": probes}
        return {name: value + self._before.get(name, 0.0) for name, value in spent.items()}


class _Stopwatch:
    def __init__(self, sums: dict[str, float], activity: str) -> None:
        self._sums = sums
        self._activity = activity

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        self._sums[self._activity] += time.perf_counter() - self._began
