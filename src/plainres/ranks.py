"""One run on several devices: each rank takes its part of every batch, and sums are taken over all of them.

Why not torch's DistributedDataParallel: all gradients of a run are one buffer (flat.py), so one all-reduce of it is all
there is to do, in the open; and what a rank adds is its part of the mean over the global batch, not a mean of means.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import distributed

from plainres.errors import UserError


class LostRank(RuntimeError):  # noqa: N818 - what happened, in the status of the run
    """A process of the run died, or said nothing for too long."""


class Synced(Protocol):
    """A norm whose statistics may be those of all ranks."""

    synced: bool


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run.

    Attributes:
        rank: 0 … size − 1.
        size: number of processes; it divides the batch.
    """

    rank: int
    size: int

    def part(self, index_N: torch.Tensor) -> torch.Tensor:
        """This rank's examples of a global batch."""
        share = len(index_N) // self.size
        return index_N[self.rank * share : (self.rank + 1) * share]

    def add_up(self, *tensors: torch.Tensor) -> None:
        """Replace each tensor by its sum over the ranks, the same bits on all of them.

        Raises:
            LostRank: another rank is gone.
        """
        for tensor in tensors:
            _all_reduce(tensor)

    def any(self, flag: bool) -> bool:
        """Whether it is true on some rank; all hear the same answer.

        Raises:
            LostRank: another rank is gone.
        """
        told = torch.tensor(int(flag))
        _all_reduce(told)
        return bool(told.item())


def ranks() -> Ranks | None:
    """This process among its equals; None for a run on one device."""
    if not distributed.is_initialized():
        return None
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def require_ranks(devices: int) -> None:
    """
    Raises:
        UserError: ``trainer.devices`` is another number than that of the processes.
    """
    here = ranks()
    size = 1 if here is None else here.size
    if devices != size:
        raise UserError(
            f"trainer.devices={devices}: this run has {size}; start it with "
            f"torchrun --nproc-per-node={devices} -m run ..., which sets trainer.devices itself"
        )


def _all_reduce(tensor: torch.Tensor) -> None:
    try:
        distributed.all_reduce(tensor)
    except RuntimeError as error:
        raise LostRank(f"another rank died or fell silent; the same command resumes the run ({error})") from error


class _Sum(torch.autograd.Function):
    """Sum over the ranks, forward and backward: every rank's loss depends on every rank's summand."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        _all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        total = grad.clone()
        _all_reduce(total)
        return total


def sum_of_ranks(x: torch.Tensor) -> torch.Tensor:
    """The sum of a value over the ranks; gradients flow to all of them."""
    total: torch.Tensor = _Sum.apply(x)
    return total


@contextmanager
def synced(norms: Sequence[Synced]) -> Iterator[None]:
    """Within, batch norms take the statistics of the global batch."""
    for norm in norms:
        norm.synced = True
    try:
        yield
    finally:
        for norm in norms:
            norm.synced = False
