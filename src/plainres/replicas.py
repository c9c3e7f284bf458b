"""Replicas: seeds of one cell that train side by side in one process, their updates computed as one network's.

Every replica is a whole run with a thread of its own: its folder, lock, checkpoints, probes, optimizer and end are
those of any run. What they share is the forward and backward pass of updates that are not probed. A replica that comes
to one hands in its batch and waits until all others have handed in theirs, or have left; then one of them computes all,
and each goes on with its own gradient. One thread works at a time: whoever waits lets another one in.

A replica's numbers do not depend on the others (models/stacked.py). So one that ends, diverges or fails simply
leaves, and one that was interrupted goes on from its own checkpoint, in whatever company. On a GPU the kernel of a
batched product is chosen by the size of the batch: there the size stays what it is, and one that is present stands in
for those that are not.
"""

import copy
import threading
from types import TracebackType

import torch

from plainres.flat import FlatParameters
from plainres.models.networks import Network
from plainres.models.stacked import Stack, gather_statistics
from plainres.pair import RunSpec
from plainres.step import Passed
from plainres.tracking.client import Tracker


class Group:
    """Where replicas meet."""

    def __init__(self, least: int) -> None:
        """
        Args:
            least: networks that pass at once, also where fewer replicas are left.
        """
        self._least = least
        self.turn = threading.Condition(threading.Lock())  # held by the one replica that works
        self._present: set[Seat] = set()
        self._waiting: dict[Seat, tuple[torch.Tensor, torch.Tensor]] = {}
        self._results: dict[Seat, Passed | Exception] = {}
        self._stacks: dict[int, Stack] = {}

    def add(self, seat: "Seat") -> None:
        """Whom the others wait for from now on."""
        self._present.add(seat)

    def leave(self, seat: "Seat") -> None:
        """The others no longer wait for this one, which holds the turn."""
        self._present.discard(seat)
        self.turn.notify_all()

    def meet(self, seat: "Seat", x_NCHW: torch.Tensor, y_N: torch.Tensor) -> Passed:
        """Hand in a batch and wait for its gradient; the caller holds the turn.

        Raises:
            Exception: whatever the pass raised, in every replica that was part of it.
        """
        self._waiting[seat] = (x_NCHW, y_N)
        while seat not in self._results:
            if len(self._waiting) == len(self._present):
                self._compute()
                self.turn.notify_all()
            else:
                self.turn.wait()
        result = self._results.pop(seat)
        if isinstance(result, Exception):
            raise result
        return result

    def _compute(self) -> None:
        seats, batches = list(self._waiting), list(self._waiting.values())
        self._waiting.clear()
        try:
            self._results |= dict(zip(seats, self._pass(seats, batches), strict=True))
        except Exception as error:
            self._results |= dict.fromkeys(seats, error)

    def _pass(self, seats: "list[Seat]", batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Passed]:
        absent = max(0, self._least - len(seats))
        x_SNCHW, y_SN = (torch.stack(parts) for parts in zip(*batches, *batches[:1] * absent, strict=True))
        stack = self._stack(seats[0], len(y_SN))
        for i, seat in enumerate([*seats, *seats[:1] * absent]):
            stack.data_SP[i].copy_(seat.flat.data)
            stack.statistics_MSD[:, i].copy_(seat.statistics_MD)
        loss_S, wrong_S = stack(x_SNCHW, y_SN)
        for i, seat in enumerate(seats):
            seat.flat.grad.copy_(stack.grad_SP[i])
            seat.statistics_MD.copy_(stack.statistics_MSD[:, i])
        norms = [torch.linalg.vector_norm(seat.flat.grad) for seat in seats]
        return [Passed(loss_S[i], wrong_S[i], norm, 1.0) for i, norm in enumerate(norms)]

    def _stack(self, seat: "Seat", count: int) -> Stack:
        if count not in self._stacks:  # the one before was for replicas of which some have left
            self._stacks = {count: Stack(seat.template, seat.flat, seat.statistics_MD, count)}
        return self._stacks[count]


def make_group(spec: RunSpec) -> Group:
    """For a run and others that differ from it in their seeds."""
    return Group(spec.conf.trainer.replicas if spec.device.startswith("cuda") else 1)


class Seat:
    """One replica's place in its group; a context, within which it works and is waited for.

    Attributes:
        tracker: hears of the run.
        template: the replica's network on the meta device, before probes came to it, once it trains.
        flat, statistics_MD: its parameters and norm statistics, likewise.
    """

    template: Network
    flat: FlatParameters
    statistics_MD: torch.Tensor

    def __init__(self, group: Group, tracker: Tracker) -> None:
        self.tracker = tracker
        self._group = group
        group.add(self)

    def __enter__(self) -> "Seat":
        self._group.turn.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.leave(self)
        self._group.turn.release()

    def take(self, network: Network, flat: FlatParameters) -> None:
        """The replica's network; its norm statistics are moved into one tensor."""
        self.template = copy.deepcopy(network).to("meta")
        self.flat, self.statistics_MD = flat, gather_statistics(network)

    def __call__(self, x_NCHW: torch.Tensor, y_N: torch.Tensor) -> Passed:
        """The pass of one update, together with the others: the gradient is in the flat buffer."""
        return self._group.meet(self, x_NCHW, y_N)
