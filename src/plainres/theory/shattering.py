"""Shattered gradients: how fast the gradient by the input changes along a line (Balduzzi 2017, arXiv 1702.08591).

The gradient of one logit by the input is taken at ``POINTS`` points of the straight line between two training examples.
Its autocorrelation over the lag k says whether it is smooth, as brown noise, or shattered, as white noise:

    C(k) = Σ_t ⟨g_t − ḡ, g_{t+k} − ḡ⟩ / Σ_t ‖g_t − ḡ‖²          mean over ``LINES`` lines

Beside it stands the mean cosine of the gradients at different training examples, the paper's correlation: 2^−L for a
plain net with L ReLU layers that are each active half the time, and about 1/√L for a residual one with batch norm.

Batch norm's statistics are held fixed at those of ``BATCH`` training examples, as the running ones mean nothing before
training; everything else is in evaluation mode. Lines and examples are drawn with a fixed seed, equal for all networks.

Shape suffixes: N examples or points, C channels, H height, W width, D numbers of an input.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from plainres.data import Dataset
from plainres.evaluate import chunk_size, evaluation_mode
from plainres.models.networks import Network
from plainres.probes.statistics import fixed_statistics, norm_statistics
from plainres.seeding import evaluation_order

POINTS = 256
LINES = 8
BATCH = 512
MAX_LAG = POINTS // 2
EXAMPLES = 128


@dataclass(frozen=True)
class Shattering:
    """Of one network.

    Attributes:
        autocorrelation: C(k) for k = 0 … ``MAX_LAG``, (MAX_LAG + 1,); nan where the gradient is constant on every line.
        example_cosine: mean cosine of the gradients at different examples; nan where all are 0.
    """

    autocorrelation: npt.NDArray[np.float64]
    example_cosine: float


def shattering(network: Network, data: Dataset) -> Shattering:
    """Measure a network, which is left as it was.

    Args:
        network: on the data's device.
        data: its training set gives the lines, the statistics and the examples.
    """
    order_N = evaluation_order(data.num_train).to(data.train.home)
    images = data.train.clean(order_N[:BATCH])[0]
    chunk = chunk_size(data.train)
    with evaluation_mode(network), differentiable(network), fixed_statistics(norm_statistics(network, images)):
        parts = []
        for line in range(min(LINES, data.num_train // 2)):
            (first, last), (label, _) = data.train.clean(order_N[2 * line : 2 * line + 2])
            points = along_line(first, last, POINTS)
            parts.append(autocorrelation(logit_gradients(network, points, int(label), chunk), MAX_LAG))
        cosine = mean_cosine(logit_gradients(network, images[:EXAMPLES], 0, chunk))
    known = [part for part in parts if not np.isnan(part).any()]
    mean = np.mean(known, axis=0) if known else np.full(MAX_LAG + 1, math.nan)
    return Shattering(mean, cosine)


@contextmanager
def differentiable(network: Network) -> Iterator[None]:
    """Parameters that collect no gradient: only the input's is wanted."""
    wanted = [(p, p.requires_grad) for p in network.parameters()]
    for p, _ in wanted:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p, before in wanted:
            p.requires_grad_(before)


def along_line(first_CHW: torch.Tensor, last_CHW: torch.Tensor, points: int) -> torch.Tensor:
    """Evenly spaced from the first to the last image: (points, C, H, W)."""
    share = torch.linspace(0, 1, points, device=first_CHW.device).reshape(-1, 1, 1, 1)
    return first_CHW + share * (last_CHW - first_CHW)


def logit_gradients(network: Network, x_NCHW: torch.Tensor, label: int, chunk: int) -> npt.NDArray[np.float64]:
    """∂ logit of ``label`` / ∂x at each example by itself, (N, D)."""
    parts = []
    for x in x_NCHW.split(chunk):
        leaf = x.detach().clone().requires_grad_()
        (grad,) = torch.autograd.grad(network(leaf)[:, label].sum(), leaf)
        parts.append(grad.flatten(1).double().cpu())
    return torch.cat(parts).numpy()


def autocorrelation(g_ND: npt.NDArray[np.float64], max_lag: int) -> npt.NDArray[np.float64]:
    """C(k), k = 0 … ``max_lag``; nan where g is constant, up to the noise of float32."""
    centred = g_ND - g_ND.mean(0)
    total = float((centred**2).sum())
    if not total > 1e-12 * float((g_ND**2).sum()):
        return np.full(max_lag + 1, math.nan)
    lags = range(max_lag + 1)
    return np.array([(centred[: len(g_ND) - k] * centred[k:]).sum() for k in lags]) / total


def mean_cosine(g_ND: npt.NDArray[np.float64]) -> float:
    """Mean over all pairs of different rows; rows that are 0 are left out."""
    norms = np.linalg.norm(g_ND, axis=1)
    unit = g_ND[norms > 0] / norms[norms > 0, None]
    n = len(unit)
    return float((np.sum(unit.sum(0) ** 2) - n) / (n * (n - 1))) if n > 1 else math.nan
