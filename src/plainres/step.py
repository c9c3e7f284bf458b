"""Forward and backward of one update: what it leaves is the gradient of the batch's mean loss in the flat buffer."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from plainres.flat import FlatParameters
from plainres.models.layer import BatchNorm, batch_norms, kept_statistics
from plainres.models.networks import Network
from plainres.models.parts import Rows
from plainres.options import Precision
from plainres.precision import LossScale, computing
from plainres.probes.probe import Probe
from plainres.ranks import Ranks, synced
from plainres.schema import RunConf


@dataclass(frozen=True)
class Passed:
    """What a batch gave, on its device.

    Attributes:
        loss: mean cross-entropy of the batch, float32.
        wrong: number of wrong answers.
        grad_norm: of all gradients together, before clipping.
        scale: what the loss was multiplied by for the backward pass, which no number here shows any more.
    """

    loss: torch.Tensor
    wrong: torch.Tensor
    grad_norm: torch.Tensor
    scale: float


# The pass of an update that a run shares with others (replicas.py): images and labels -> what they gave.
Shared = Callable[[torch.Tensor, torch.Tensor], Passed]


class Passes:
    """The passes of every update of a run.

    Attributes:
        scale: of the loss; None but for fp16.
    """

    def __init__(
        self, network: Network, flat: FlatParameters, conf: RunConf, device: str, together: Shared | None = None
    ) -> None:
        """
        Args:
            network, flat, conf, device: of the run.
            together: makes the passes of steps that are not probed; None: they are made here.
        """
        self.scale = LossScale() if conf.trainer.precision is Precision.fp16 else None
        self._network = network
        self._flat = flat
        self._together = together
        self._conf = conf.trainer
        self._seed = conf.seed
        self._device = device
        self._norms = [m for m in network.modules() if isinstance(m, BatchNorm)]

    def __call__(
        self,
        step: int,
        x_NCHW: torch.Tensor,
        y_N: torch.Tensor,
        probe: Probe | None = None,
        shared: Ranks | None = None,
    ) -> Passed:
        """Gradients of a batch, unscaled and not clipped, in the flat buffer.

        Args:
            step: of the update.
            x_NCHW, y_N: the batch, or this rank's part of it.
            probe: reads this step; None in a step that is not probed.
            shared: the ranks that share the batch.
        """
        if self._together is not None and probe is None:
            return self._together(x_NCHW, y_N)
        passed = self._pass(step, x_NCHW, y_N, probe, shared)
        while self.scale is not None and not self.scale.accept(passed.loss, passed.grad_norm):
            with kept_statistics(batch_norms(self._network)):  # they have moved once already
                passed = self._pass(step, x_NCHW, y_N, probe, shared)
        return passed

    def micro_batches(
        self, step: int, x_NCHW: torch.Tensor, y_N: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The parts of a batch that pass together, in order; the network is told of each before it is handed out."""
        total, size = len(y_N), len(y_N) // self._conf.accumulate
        for i, part in enumerate(zip(x_NCHW.split(size), y_N.split(size), strict=True)):
            self._network.begin_step(self._seed, step, Rows(i * size, total))
            yield part

    def _pass(
        self, step: int, x_NCHW: torch.Tensor, y_N: torch.Tensor, probe: Probe | None, shared: Ranks | None
    ) -> Passed:
        count = self._conf.accumulate * (shared.size if shared else 1)  # of equal parts that the batch's mean is over
        scale = 1.0 if self.scale is None else self.scale.value
        losses, wrongs = [], []
        self._flat.zero_grad()
        for i, (x, y) in enumerate(self.micro_batches(step, x_NCHW, y_N)):
            if probe is not None and i == self._conf.accumulate - 1:
                probe.arm(len(y), scale / count)
            with synced(self._norms) if shared else nullcontext():  # backward, too: it may compute blocks again
                with computing(self._conf.precision, self._device):
                    logits = self._network(x).float()
                    loss = F.cross_entropy(logits, y)
                if count > 1:
                    loss = loss / count
                (loss if self.scale is None else loss * scale).backward()
            losses.append(loss.detach())
            wrongs.append((logits.detach().argmax(1) != y).sum())
        loss, wrong = _sum(losses), _sum(wrongs)
        if shared:
            shared.add_up(self._flat.grad, loss, wrong)
        if self.scale is not None:
            self._flat.grad.mul_(1 / scale)
        if probe is not None:
            probe.after_backward()
        return Passed(loss, wrong, torch.linalg.vector_norm(self._flat.grad), scale)


def _sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum()
