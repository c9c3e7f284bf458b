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

import numpy as np
import numpy.typing as npt
import torch

from plainres.models.block import Block
from plainres.models.parts import Concat
from plainres.models.scales import StochasticDepth
from plainres.probes.readings import Readings

Array = npt.NDArray[np.float32]

NO_ADDITION = "no addition: not a residual ratio"
CONCATENATED = "no addition: branch and trunk are concatenated"
NO_SIGNAL = "no shortcut signal"


class BranchNorms:
    """Listens to every block's tap and reduces at once, so that no activation is kept."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._sums: list[torch.Tensor | None] = [None] * len(blocks)
        self._added = False
        self._concat = any(isinstance(b.merge, Concat) for b in blocks)

    def on_block(self, index: int, x: torch.Tensor, h: torch.Tensor | None, f: torch.Tensor, y: torch.Tensor) -> None:
        with torch.no_grad():
            self._added = h is not None
            x_ND, f_ND, y_ND = (samples(t) for t in (x, f, y))
            norms = [torch.linalg.vector_norm(t, dim=1) for t in (x_ND, f_ND, y_ND)]
            if h is None:  # nothing is added; at a stage boundary x and F(x) differ in shape
                norm_N, dot_N = norms[0], torch.zeros_like(norms[0])
            else:
                h_ND = x_ND if h is x else samples(h)
                norm_N = norms[0] if h is x else torch.linalg.vector_norm(h_ND, dim=1)
                dot_N = (h_ND * f_ND).sum(1)
            drop = self._blocks[index].drop
            kept_N = drop.kept_N if isinstance(drop, StochasticDepth) and drop.kept_N is not None else None
            kept_N = torch.ones_like(norms[0]) if kept_N is None else kept_N.float()
            self._sums[index] = torch.stack([*norms, norm_N, dot_N, kept_N])

    def read(self, readings: Readings) -> None:
        """Raises: RuntimeError when a block was never seen."""
        missed = [i for i, seen in enumerate(self._sums) if seen is None]
        if missed:
            raise RuntimeError(f"the branch probe never saw block {missed[0]} in a probed step")
        stacked = torch.stack([s for s in self._sums if s is not None]).cpu().numpy()
        self._sums = [None] * len(self._sums)
        unadded = None if self._added and not self._concat else CONCATENATED if self._concat else NO_ADDITION
        put_branch_norms(readings, stacked, unadded)


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
    readings.put("block", "forward_gain", _mean_ratio(y_BN, x_BN)[0], "no input signal")
    if unadded is None:
        _put_added(readings, f_BN, np.where(kept_BN > 0, h_BN, 0), dot_BN)
        readings.put("block", "shortcut_norm", h_BN.mean(1))
    else:
        readings.put("block", "branch_over_input", _mean_ratio(f_BN, x_BN)[0], "no input signal")
        for metric in _ADDED_METRICS:
            readings.put_null("block", metric, len(x_BN), unadded)


def _put_added(readings: Readings, f_BN: Array, h_BN: Array, dot_BN: Array) -> None:
    mean, low, high = _mean_ratio(f_BN, h_BN)
    readings.put("block", "branch_ratio", mean, NO_SIGNAL)
    readings.put("block", "branch_ratio_q10", low, NO_SIGNAL)
    readings.put("block", "branch_ratio_q90", high, NO_SIGNAL)
    readings.put("block", "branch_ratio_left_out", (h_BN == 0).sum(1))
    cosine = _mean_ratio(dot_BN, f_BN * h_BN)[0]
    readings.put("block", "branch_cosine", cosine, "branch or shortcut is 0 on every sample")


_ADDED_METRICS = (
    "shortcut_norm",
    "branch_ratio",
    "branch_ratio_q10",
    "branch_ratio_q90",
    "branch_ratio_left_out",
    "branch_cosine",
)


def _mean_ratio(top_BN: Array, bottom_BN: Array) -> tuple[Array, Array, Array]:
    """Mean, 10 % and 90 % quantile of top/bottom over the samples with bottom > 0; NaN where none is left."""
    ratio = np.divide(top_BN, bottom_BN, out=np.full_like(top_BN, np.nan), where=bottom_BN > 0)
    valid = ~np.isnan(ratio)
    if valid.all():
        low, high = np.quantile(ratio, (0.1, 0.9), axis=1)
        return ratio.mean(1), low, high
    rows = [row[keep] for row, keep in zip(ratio, valid, strict=True)]
    stats = [(r.mean(), *np.quantile(r, (0.1, 0.9))) if len(r) else (np.nan,) * 3 for r in rows]
    mean, low, high = np.array(stats, dtype=np.float32).T
    return mean, low, high


def tap_blocks(blocks: list[Block], listener: BranchNorms | None) -> None:
    """Point every block's tap at the listener, or at nothing."""
    for block in blocks:
        block.tap = None if listener is None else listener.on_block
