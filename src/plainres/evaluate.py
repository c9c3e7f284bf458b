"""Errors and losses of a network on whole data sets. An evaluation writes nothing to the model.

Errors are fractions, losses mean cross-entropy in nats. Clean: no augmentation, evaluation mode.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from plainres.data import Dataset
from plainres.data.split import Split
from plainres.models.layer import BatchNorm
from plainres.seeding import evaluation_order

CHUNK_PIXELS = 1 << 17  # of one channel in a forward pass: bounds memory, and stays below what malloc hands back
MAX_CHUNK = 2048


def chunk_size(split: Split) -> int:
    """Examples in a forward pass: 2048 of 8x8, 128 of 32x32, 2 of 224x224. Fixed: it moves the last bits of a loss."""
    _, height, width = split.shape
    return max(1, min(MAX_CHUNK, CHUNK_PIXELS // (height * width)))


def error_and_loss(network: nn.Module, split: Split) -> tuple[float, float]:
    """Fraction wrong and mean cross-entropy in evaluation mode, without augmentation."""
    with evaluation_mode(network), torch.no_grad():
        pieces = [_sums(network, x, y) for x, y in chunks(split)]
    return _mean(pieces, len(split))


def chunks(split: Split) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """All examples in order, without augmentation, as many at a time as fit."""
    size = chunk_size(split)
    for first in range(0, len(split), size):
        yield split.clean(slice(first, first + size))


def shuffled_batches(split: Split, batch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Clean batches of the training size over a fixed permutation; a short last one is merged into the one before."""
    order_N = evaluation_order(len(split)).to(split.home)
    parts = list(order_N.split(batch))
    if len(parts) > 1 and len(parts[-1]) < batch:
        parts[-2:] = [torch.cat(parts[-2:])]
    for part in parts:
        yield split.clean(part)


def error_with_batch_statistics(network: nn.Module, split: Split, batch: int) -> float:
    """Fraction wrong with batch statistics in the norm layers, everything else in evaluation mode.

    Batches have the training size, over a fixed permutation that is the same for all runs of a data set; a
    short last one is merged into the one before. Compare with a tolerance: it is no unbiased twin.
    """
    with evaluation_mode(network), batch_statistics(network), torch.no_grad():
        pieces = [_sums(network, x, y) for x, y in shuffled_batches(split, batch)]
    return _mean(pieces, len(split))[0]


def evaluate(network: nn.Module, data: Dataset) -> dict[str, float]:
    """train_error, train_loss, val_error, val_loss."""
    train = error_and_loss(network, data.train)
    val = error_and_loss(network, data.val)
    return {"train_error": train[0], "train_loss": train[1], "val_error": val[0], "val_loss": val[1]}


def _sums(network: nn.Module, x_NCHW: torch.Tensor, y_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = network(x_NCHW).float()
    losses = F.cross_entropy(logits, y_N, reduction="none")
    return (logits.argmax(1) != y_N).sum(), losses.double().sum()


def _mean(pieces: list[tuple[torch.Tensor, torch.Tensor]], count: int) -> tuple[float, float]:
    wrong, loss = (torch.stack(column).sum().item() for column in zip(*pieces, strict=True))
    return wrong / count, loss / count


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module's own mode again."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Norm layers with the statistics of their batch; running ones stay as they are. Inside ``evaluation_mode``."""
    norms = [m for m in network.modules() if isinstance(m, BatchNorm)]
    foreign = [m for m in network.modules() if isinstance(m, _BatchNorm) and m not in norms]  # in a user's branch
    kept = [(buffer, buffer.clone()) for norm in foreign for buffer in norm.buffers()]
    for norm in norms:
        norm.batch_statistics = True
    for other in foreign:
        other.train()
    try:
        yield
    finally:
        for norm in norms:
            norm.batch_statistics = False
        for buffer, value in kept:
            buffer.copy_(value)
