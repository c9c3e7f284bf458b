"""Batch norms held at the statistics of one batch, so that each example can be differentiated by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from plainres.evaluate import batch_statistics

Statistics = dict[_BatchNorm, tuple[torch.Tensor, torch.Tensor]]


def norm_statistics(network: nn.Module, images: torch.Tensor) -> Statistics:
    """Mean and variance (biased, as the norm uses it) of each batch norm's input, from one forward pass.

    Args:
        network: in evaluation mode; nothing of it moves.
        images: the batch (N, C, H, W).
    """
    found: Statistics = {}

    def keep(norm: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        assert isinstance(norm, _BatchNorm)
        variance, mean = torch.var_mean(args[0], [0, *range(2, args[0].dim())], correction=0)
        found[norm] = mean, variance

    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    handles = [norm.register_forward_pre_hook(keep) for norm in norms]
    try:
        with torch.no_grad(), batch_statistics(network):
            network(images)
    finally:
        for handle in handles:
            handle.remove()
    return found


@contextmanager
def fixed_statistics(statistics: Statistics) -> Iterator[None]:
    """Batch norms in evaluation mode that use these numbers; their running ones come back to the bit."""
    kept = {norm: dict(norm.named_buffers(recurse=False)) for norm in statistics}
    for norm, (mean, variance) in statistics.items():
        norm.running_mean, norm.running_var = mean, variance
        norm.eval()  # a user's has been in training mode for the forward pass
    try:
        yield
    finally:
        for norm, buffers in kept.items():
            norm.running_mean, norm.running_var = buffers["running_mean"], buffers["running_var"]
