"""Forward and backward of one update: what it leaves is the gradient of the batch's mean loss in the flat buffer."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from plainres.flat import FlatParameters
from plainres.models.layer import BatchNorm, kept_statistics
from plainres.models.networks import Network
from plainres.options import Precision
from plainres.precision import LossScale, computing
from plainres.probes.probe import Probe
from plainres.ranks import Ranks, synced


@dataclass(frozen=True)
class Passed:
    """What a batch gave, on its device.

    Attributes:
        loss: mean cross-entropy of the batch, float32.
        wrong: number of wrong answers.
        grad_norm: of all gradients together, before clipping.
    """

    loss: torch.Tensor
    wrong: torch.Tensor
    grad_norm: torch.Tensor


class Passes:
    """The passes of every update of a run.

    Attributes:
        scale: of the loss; None but for fp16.
    """

    def __init__(self, network: Network, flat: FlatParameters, precision: Precision, device: str) -> None:
        self.scale = LossScale() if precision is Precision.fp16 else None
        self._network = network
        self._flat = flat
        self._precision = precision
        self._device = device
        self._norms = [m for m in network.modules() if isinstance(m, BatchNorm)]

    def __call__(
        self, x_NCHW: torch.Tensor, y_N: torch.Tensor, probe: Probe | None = None, shared: Ranks | None = None
    ) -> Passed:
        """Gradients of a batch, unscaled and not clipped, in the flat buffer.

        Args:
            x_NCHW, y_N: the batch, or this rank's part of it.
            probe: reads this step; None in a step that is not probed.
            shared: the ranks that share the batch.
        """
        passed = self._pass(x_NCHW, y_N, probe, shared)
        while self.scale is not None and not self.scale.accept(passed.loss, passed.grad_norm):
            with kept_statistics(self._network):  # they have moved once already
                passed = self._pass(x_NCHW, y_N, probe, shared)
        return passed

    def _pass(self, x_NCHW: torch.Tensor, y_N: torch.Tensor, probe: Probe | None, shared: Ranks | None) -> Passed:
        scale = 1.0 if self.scale is None else self.scale.value
        self._flat.zero_grad()
        if probe is not None:
            probe.arm(len(y_N), scale)
        with computing(self._precision, self._device), synced(self._norms) if shared else nullcontext():
            logits = self._network(x_NCHW).float()
            loss = F.cross_entropy(logits, y_N)
        if shared:
            loss = loss / shared.size  # of the mean over the global batch
        (loss if scale == 1 else loss * scale).backward()
        loss, wrong = loss.detach(), (logits.detach().argmax(1) != y_N).sum()
        if shared:
            shared.add_up(self._flat.grad, loss, wrong)
        if scale != 1:
            self._flat.grad.mul_(1 / scale)
        if probe is not None:
            probe.after_backward()
        return Passed(loss, wrong, torch.linalg.vector_norm(self._flat.grad))
