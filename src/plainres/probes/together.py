"""Reducing many small tensors in one call: with hundreds of layers, calls cost more than the arithmetic does."""

from collections.abc import Callable, Sequence

import torch

LARGE = 2**20  # bytes: a tensor of this size is reduced at once, and not kept
LIMIT = 8 * 2**20  # bytes that are kept before all that is there is reduced

Reduce = Callable[[torch.Tensor], torch.Tensor]


class Together:
    """Reduces the tensors of numbered places, those of one shape together.

    What is kept for a moment must not be written to, as no module of ours does; for a user's there is ``at_once``.
    """

    def __init__(self, reduce: Reduce, places: int, at_once: bool = False) -> None:
        """
        Args:
            reduce: of (K, *shape), K tensors of one shape, to (K, ...).
            places: how many there are.
            at_once: reduce every tensor when it comes.
        """
        self._reduce = reduce
        self._at_once = at_once
        self._places = places
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._kept: dict[tuple[torch.Size, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        self._bytes = 0
        self._found: list[torch.Tensor | None] = [None] * self._places

    def add(self, place: int, tensor: torch.Tensor) -> None:
        """The tensor of a place; a later one replaces it."""
        tensor = tensor.detach()
        if self._at_once or tensor.nbytes >= LARGE:
            self._found[place] = self._reduce(tensor[None])[0]
            return
        self._kept.setdefault((tensor.shape, tensor.dtype), []).append((place, tensor))
        self._bytes += tensor.nbytes
        if self._bytes > LIMIT:
            self.flush()

    def found(self) -> list[torch.Tensor | None]:
        """What each place's tensor was reduced to; None where there was none."""
        self.flush()
        return self._found

    def flush(self) -> None:
        """Reduce what is kept: at the end of a step, for its tensors are not the next one's."""
        kept, self._kept, self._bytes = self._kept, {}, 0
        for members in kept.values():
            results = self._reduce(stack([tensor for _, tensor in members]))
            for (place, _), result in zip(members, results.unbind(), strict=True):
                self._found[place] = result


def stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """(K, ...); a single tensor is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))
