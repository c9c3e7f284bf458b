"""``trainer.precision``: in what numbers a network computes, and the scale of the loss that float16 needs.

Weights, gradients of weights, the optimizer, norm statistics and the loss are float32 whatever the precision; so are
the reductions of probes. What bf16 and fp16 change are products, convolutions and the activations that come from them.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from plainres.errors import require
from plainres.options import Precision

_ACTIVATIONS = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_CUDA_ONLY = (Precision.tf32, Precision.fp16)


def require_precision(precision: Precision, device: str) -> None:
    """
    Raises:
        UserError: this kind of device does not compute so.
    """
    require(
        precision not in _CUDA_ONLY or device.startswith("cuda"),
        "trainer.precision",
        precision,
        f"float32 or bf16 on {device}",
        "tf32 and fp16 need a CUDA device",
    )


def computing(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Within, forward passes compute in this precision; tf32 is a setting of the whole process (seeding.py)."""
    dtype = _ACTIVATIONS.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.partition(":")[0], dtype)


class LossScale:
    """The factor on the loss that keeps small float16 gradients from becoming 0 (arXiv 1710.03740, section 3.2).

    A backward pass that overflows is repeated with half the scale, so that no step is skipped: every step is an update,
    and schedule, evaluations and probes count nothing else. Scales are powers of two: dividing by them is exact.

    Attributes:
        value: the scale now, at least 1.
        good: backward passes in a row that did not overflow.
    """

    START, LARGEST = 2.0**16, 2.0**24
    INTERVAL = 2000  # good passes after which the scale is doubled

    def __init__(self) -> None:
        self.value = self.START
        self.good = 0

    def accept(self, loss: torch.Tensor, grad_norm: torch.Tensor) -> bool:
        """Whether to go on with these gradients; if not, the scale has been halved and the pass is to be repeated.

        A loss that is not finite, or a gradient that is not at scale 1, no scale can help: that is divergence, which
        the guard sees. Waits for the device.

        Args:
            loss: without the scale.
            grad_norm: of all gradients, divided by the scale.
        """
        if bool(torch.isfinite(grad_norm)):
            self.good += 1
            if self.good == self.INTERVAL:
                self.value, self.good = min(self.value * 2, self.LARGEST), 0
            return True
        if self.value == 1 or not bool(torch.isfinite(loss)):
            return True
        self.value, self.good = max(self.value / 2, 1.0), 0
        return False

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"value": self.value, "good": self.good}

    def restore(self, state: dict[str, float]) -> None:
        """Go on where a checkpoint was made."""
        self.value, self.good = state["value"], int(state["good"])
