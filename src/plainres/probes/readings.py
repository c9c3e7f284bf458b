"""Values of one probed step, on their way to a row. A value that does not exist is null with a reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Readings:
    """Arrays by scope and metric.

    Attributes:
        values: scope -> metric -> (members of the scope,) float32 array, or a list with None for nulls.
        reasons: scope -> metric -> index as text -> why the value is null.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.reasons: dict[str, dict[str, dict[str, str]]] = {}

    def put(
        self, scope: str, metric: str, values: npt.ArrayLike, missing: str | Sequence[str] = "not a number"
    ) -> None:
        """Keep an array; NaN means "does not exist, because ``missing``", and an infinity overflowed float32.

        ``missing`` is one reason for all members of the scope, or one for each.
        """
        array = np.ascontiguousarray(values, dtype=np.float32)
        self.values.setdefault(scope, {})[metric] = array
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            self.values[scope][metric] = [float(v) if np.isfinite(v) else None for v in array]
            reasons = [missing] * len(array) if isinstance(missing, str) else missing
            why = {str(i): reasons[int(i)] if np.isnan(array[i]) else "overflowed float32" for i in bad}
            self.reasons.setdefault(scope, {})[metric] = why

    def put_null(self, scope: str, metric: str, count: int, reason: str) -> None:
        """Keep a metric that exists for none of the scope's ``count`` members."""
        self.put(scope, metric, np.full(count, np.nan, np.float32), reason)

    def add(self, others: "Readings") -> None:
        """Those of others, too."""
        for mine, theirs in ((self.values, others.values), (self.reasons, others.reasons)):
            for scope, metrics in theirs.items():
                mine.setdefault(scope, {}).update(metrics)

    def row(self, step: int) -> dict[str, Any]:
        """The line of layers.jsonl."""
        return {"step": step, "values": self.values, "reasons": self.reasons}
