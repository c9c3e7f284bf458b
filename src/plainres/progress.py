"""What the live view reads of a run that trains: a small file, twice a second at most."""

import math
import os
import time
from typing import Any

import torch

from plainres.store import RunFolder
from plainres.transfer import LateScalar

PROGRESS_SECONDS = 0.5


class Progress:
    """Writes progress.json of one run."""

    def __init__(self, folder: RunFolder, steps: int, device: str) -> None:
        self._folder = folder
        self._steps = steps
        self._loss = math.nan
        self._late = LateScalar(device)
        self._written = 0.0

    def step(self, step: int, loss: torch.Tensor, last_eval: dict[str, Any] | None) -> None:
        """After an update; the loss is that of an earlier one on a GPU, which is not waited for."""
        if time.monotonic() - self._written > PROGRESS_SECONDS:
            if (known := self._late.ask(loss)) is not None:
                self._loss = known
            self._write(step, last_eval)

    def evaluated(self, step: int, last_eval: dict[str, Any] | None) -> None:
        """After an evaluation, whose errors are new."""
        if time.monotonic() - self._written >= PROGRESS_SECONDS / 2:
            self._write(step, last_eval)

    def _write(self, step: int, last_eval: dict[str, Any] | None) -> None:
        self._written = time.monotonic()
        loss = self._loss if math.isfinite(self._loss) else None
        error = (last_eval or {}).get("train_error")
        self._folder.write_progress(pid=os.getpid(), step=step, steps=self._steps, loss=loss, train_error=error)
