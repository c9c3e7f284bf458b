"""How large the branch is beside the trunk, block by block. Norms are per-sample L2, then mean over the batch.

    input_norm ‖x‖, shortcut_norm ‖h(x)‖, branch_norm ‖F(x)‖, output_norm ‖y‖
    branch_ratio    mean of ‖F‖/‖h‖ over samples with ‖h‖ > 0 and F kept, with its 10 % and 90 % quantiles and the
                    number of samples left out; a mean of ratios, not a ratio of means
    branch_over_input   the plain arm's mean of ‖F(x)‖/‖x‖: nothing is added, so it is no residual ratio
    forward_gain    mean of ‖y‖/‖x‖, both arms
    branch_cosine   mean of cos(F, h)

h is what the branch is added to, F what is added, y the block's output after post. Belongs to the step whose
batch it saw, before that step's update.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from plainres.models.block import Block
from plainres.models.parts import Concat
from plainres.models.scales import StochasticDepth
from plainres.probes.readings import Readings
from plainres.probes.together import LARGE, LIMIT, stack
from plainres.transfer import index_on

Array = npt.NDArray[np.float32]

NO_ADDITION = "no addition: not a residual ratio"
CONCATENATED = "no addition: branch and trunk are concatenated"
NO_SIGNAL = "no shortcut signal"


Tapped = tuple[int, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]  # as Block.tap is called


class BranchNorms:
    """Listens to every block's tap and reduces small blocks together, large ones at once (together.py)."""

    def __init__(self, blocks: list[Block], at_once: bool = False) -> None:
        """
        Args:
            blocks: that are tapped.
            at_once: reduce every block when it comes.
        """
        self._blocks = blocks
        self._limit = 0 if at_once else LIMIT
        self._held: list[Tapped] = []
        self._bytes = 0
        self._sums: list[torch.Tensor | None] = [None] * len(blocks)
        self._added = False
        self._concat = any(isinstance(b.merge, Concat) for b in blocks)

    def on_block(self, index: int, x: torch.Tensor, h: torch.Tensor | None, f: torch.Tensor, y: torch.Tensor) -> None:
        self._added = h is not None
        self._held.append((index, x, h, f, y))
        self._bytes += f.nbytes + y.nbytes
        if self._bytes > self._limit or f.nbytes >= LARGE:
            self.flush()

    def flush(self) -> None:
        """Reduce the blocks that are held: within their step, for the next one draws other masks."""
        held, self._held, self._bytes = self._held, [], 0
        if not held:
            return
        with torch.no_grad():
            rows = _Rows([t for _, x, h, f, y in held for t in (x, f, y, h) if t is not None])
            dots = iter(rows.dots([(h, f) for _, _, h, f, _ in held if h is not None]))
            one, zero = rows.constant(1.0), rows.constant(0.0)
            table = []
            for index, x, h, f, y in held:
                # Nothing is added to h without one; at a stage boundary x and F(x) differ in shape.
                joined = [rows.norm(x), zero] if h is None else [rows.norm(h), next(dots)]
                drop = self._blocks[index].drop
                kept_N = drop.kept_N if isinstance(drop, StochasticDepth) else None
                kept = one if kept_N is None else rows.add(kept_N.float()[None])
                table.append([rows.norm(x), rows.norm(f), rows.norm(y), *joined, kept])
            for (index, *_), numbers in zip(held, rows.take(table).unbind(), strict=True):
                self._sums[index] = numbers

    def collect(self) -> list[torch.Tensor]:
        """Raises: RuntimeError when a block was never seen."""
        self.flush()
        missed = [i for i, seen in enumerate(self._sums) if seen is None]
        if missed:
            raise RuntimeError(f"the branch probe never saw block {missed[0]} in a probed step")
        stacked_B6N = torch.stack([s for s in self._sums if s is not None])
        self._sums = [None] * len(self._sums)
        return [stacked_B6N]

    def put(self, readings: Readings, values: list[Array]) -> None:
        unadded = None if self._added and not self._concat else CONCATENATED if self._concat else NO_ADDITION
        put_branch_norms(readings, values[0], unadded)


class _Rows:
    """Numbers of every sample, a row (N,) each: norms and inner products of tensors that are taken in as few
    operations as can be."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        """
        Args:
            tensors: whose norms are rows, each of them once; at least one.
        """
        self._parts_KN: list[torch.Tensor] = []
        self._count = 0
        self._at: dict[int, tuple[int, int, int]] = {}  # by the tensor's id: group, place in it, row
        self._stacks_KND: list[torch.Tensor] = []
        groups: dict[Any, dict[int, torch.Tensor]] = {}
        for tensor in tensors:  # a block's y is the next one's x
            alone = id(tensor) if tensor.nbytes >= LARGE else None
            groups.setdefault((tensor.shape, tensor.dtype, alone), {})[id(tensor)] = tensor
        for i, group in enumerate(groups.values()):
            stacked = stack(list(group.values())).detach().flatten(2).float()
            self._stacks_KND.append(stacked)
            first = self.add(torch.linalg.vector_norm(stacked, dim=2))
            self._at |= {key: (i, k, first + k) for k, key in enumerate(group)}

    def add(self, rows_KN: torch.Tensor) -> int:
        """Add rows; the number of the first."""
        first = self._count
        self._parts_KN.append(rows_KN)
        self._count += len(rows_KN)
        return first

    def constant(self, value: float) -> int:
        """A row of one value."""
        return self.add(torch.full_like(self._parts_KN[0][:1], value))

    def norm(self, tensor: torch.Tensor) -> int:
        """The row of a tensor's L2 norms."""
        return self._at[id(tensor)][2]

    def dots(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[int]:
        """The rows of the inner products of pairs of tensors, which have been given, of one size."""
        groups: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for n, (first, second) in enumerate(pairs):
            (i, k, _), (j, m, _) = self._at[id(first)], self._at[id(second)]
            groups.setdefault((i, j), []).append((n, k, m))
        found: dict[int, int] = {}
        for (i, j), members in groups.items():
            numbers, firsts, seconds = zip(*members, strict=True)
            products = _members(self._stacks_KND[i], firsts) * _members(self._stacks_KND[j], seconds)
            begin = self.add(products.sum(2))
            found |= {n: begin + place for place, n in enumerate(numbers)}
        return [found[n] for n in range(len(pairs))]

    def take(self, table: list[list[int]]) -> torch.Tensor:
        """(len(table), columns, N): the rows of these numbers."""
        rows_KN = torch.cat(self._parts_KN)
        return rows_KN[index_on(tuple(map(tuple, table)), rows_KN.device)]


def _members(stacked: torch.Tensor, places: tuple[int, ...]) -> torch.Tensor:
    """Those of (K, …) at these places; a view where they are evenly spaced, as in a chain of equal blocks."""
    first, last = places[0], places[-1]
    step = max(1, places[1] - first) if len(places) > 1 else 1
    if places == tuple(range(first, last + 1, step)):
        return stacked[first : last + 1 : step]
    return stacked[index_on(places, stacked.device)]


def samples(tensor: torch.Tensor) -> torch.Tensor:
    """(N, …) -> (N, D), detached, in float32."""
    return tensor.detach().flatten(1).float()


def put_branch_norms(readings: Readings, stacked_B6N: Array, unadded: str | None = None) -> None:
    """All metrics of this file from per-sample numbers.

    Args:
        readings: where they are put.
        stacked_B6N: for every block ‖x‖, ‖F‖, ‖y‖, ‖h‖, ⟨h, F⟩ and whether F was kept, for every sample.
        unadded: why there is no residual ratio; None where F is added to h.
    """
    x_BN, f_BN, y_BN, h_BN, dot_BN, kept_BN = stacked_B6N.transpose(1, 0, 2)
    for metric, norms in (("input_norm", x_BN), ("branch_norm", f_BN), ("output_norm", y_BN)):
        readings.put("block", metric, norms.mean(1))
    readings.put("block", "forward_gain", _mean(_ratio(y_BN, x_BN)), "no input signal")
    if unadded is None:
        _put_added(readings, f_BN, np.where(kept_BN > 0, h_BN, 0), dot_BN)
        readings.put("block", "shortcut_norm", h_BN.mean(1))
    else:
        readings.put("block", "branch_over_input", _mean(_ratio(f_BN, x_BN)), "no input signal")
        for metric in _ADDED_METRICS:
            readings.put_null("block", metric, len(x_BN), unadded)


def _put_added(readings: Readings, f_BN: Array, h_BN: Array, dot_BN: Array) -> None:
    ratio_BN = _ratio(f_BN, h_BN)
    low, high = _quantiles(ratio_BN)
    readings.put("block", "branch_ratio", _mean(ratio_BN), NO_SIGNAL)
    readings.put("block", "branch_ratio_q10", low, NO_SIGNAL)
    readings.put("block", "branch_ratio_q90", high, NO_SIGNAL)
    readings.put("block", "branch_ratio_left_out", (h_BN == 0).sum(1))
    cosine_BN = _ratio(dot_BN, f_BN * h_BN)
    readings.put("block", "branch_cosine", _mean(cosine_BN), "branch or shortcut is 0 on every sample")


_ADDED_METRICS = (
    "shortcut_norm",
    "branch_ratio",
    "branch_ratio_q10",
    "branch_ratio_q90",
    "branch_ratio_left_out",
    "branch_cosine",
)


def _ratio(top_BN: Array, bottom_BN: Array) -> Array:
    """top/bottom, NaN where bottom is 0."""
    found_BN: Array = np.divide(top_BN, bottom_BN, out=np.full_like(top_BN, np.nan), where=bottom_BN > 0)
    return found_BN


def _mean(ratio_BN: Array) -> Array:
    """Over the samples that have a ratio; NaN where none has."""
    known_BN = ~np.isnan(ratio_BN)
    if known_BN.all():
        mean_B: Array = ratio_BN.mean(1)
        return mean_B
    rows = zip(ratio_BN, known_BN, strict=True)
    return np.array([row[known].mean() if known.any() else np.nan for row, known in rows], dtype=np.float32)


def _quantiles(ratio_BN: Array) -> tuple[Array, Array]:
    """10 % and 90 % over the samples that have a ratio; NaN where none has."""
    if not np.isnan(ratio_BN).any():
        low, high = np.quantile(ratio_BN, (0.1, 0.9), axis=1)
        return low, high
    rows = [row[~np.isnan(row)] for row in ratio_BN]
    low, high = np.array([np.quantile(r, (0.1, 0.9)) if len(r) else (np.nan,) * 2 for r in rows], dtype=np.float32).T
    return low, high
