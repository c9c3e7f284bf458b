"""Rows of probed steps: collected within their step, written when they have come to the host."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plainres.probes.collected import Collected, Sent
from plainres.step import Passed

if TYPE_CHECKING:
    from plainres.train import Parts


@dataclass(frozen=True)
class _Pending:
    step: int
    lr: float
    scale: float
    sent: Sent


class ProbedRows:
    """The last probed step, until its rows are written."""

    def __init__(self, parts: "Parts", clip_coef: Callable[[Passed], torch.Tensor], scaled: bool) -> None:
        """
        Args:
            parts: of the run.
            clip_coef: what the gradients of a pass are multiplied by.
            scaled: whether losses are (fp16).
        """
        self._parts = parts
        self._clip_coef = clip_coef
        self._scaled = scaled
        self._collected: Collected | None = None
        self._pending: _Pending | None = None

    def collect(self, passed: Passed) -> None:
        """Of a step whose update is made; all on its device, so that a graph may record it."""
        # What waits anyway is not read in a step without an update: a user's probe may fail on what is not finite.
        self._collected = None
        if self._parts.probe.waits and self._parts.guard.flush() is not None:
            return
        more = (passed.grad_norm, self._clip_coef(passed), self._parts.guard.frozen(passed.loss))
        self._collected = self._parts.probe.collect(*more)

    def send(self, step: int, lr: float, scale: float) -> None:
        """What was collected last goes to the host; in a recorded step, what stands in its place now."""
        if self._collected is None:
            return
        self._pending = _Pending(step, lr, scale, self._collected.sent())

    def write(self) -> None:
        """The rows of the step that was sent last, if they are not written yet."""
        if (pending := self._pending) is None:
            return
        self._pending = None
        grad_norm, clip_coef, frozen = pending.sent.more()
        if frozen:  # on a GPU such a step passes, too; its readings are not of a real update
            return
        values = {"lr": pending.lr, "grad_norm_total": grad_norm, "clip_coef": clip_coef}
        if self._scaled:
            values["loss_scale"] = pending.scale
        self._parts.writer.write("steps", {"step": pending.step, "kind": "update", "values": values})
        self._parts.writer.write("layers", pending.sent.row(pending.step))
