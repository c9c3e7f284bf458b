"""Initial values, drawn by name.

Weights: He normal, std = √(2 / fan_in) (He 2015, arXiv 1502.01852), for stem, branches and head alike. Norm
scales 1, norm shifts and biases 0. Every parameter is drawn on the CPU in float32 by a generator seeded with
SHA-256(seed, its name) and then moved, so that both arms, and every device, begin with the same bits.
"""

import hashlib
import math

import torch
from torch import nn

from plainres.models.layer import BatchNorm
from plainres.seeding import generator


def draw(name: str, shape: torch.Size, seed: int) -> torch.Tensor:
    """Initial value of the parameter ``name``: float32 on the CPU."""
    if len(shape) > 1:
        fan_in = math.prod(shape[1:])
        return torch.randn(shape, generator=generator(seed, "init", name)) * math.sqrt(2 / fan_in)
    return torch.ones(shape) if name.endswith("norm.weight") else torch.zeros(shape)


def materialise(network: nn.Module, seed: int, device: str) -> None:
    """Give a meta-device network storage on ``device``, its initial draws, and fresh norm statistics."""
    network.to_empty(device=device)
    for module in network.modules():
        if isinstance(module, BatchNorm):
            module.reset_statistics()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(draw(name, parameter.shape, seed))


def draw_hashes(network: nn.Module, seed: int) -> dict[str, str]:
    """Hash of the draw of every parameter, by name; a meta-device network will do."""
    return {
        name: hashlib.sha256(draw(name, parameter.shape, seed).numpy().tobytes()).hexdigest()[:16]
        for name, parameter in network.named_parameters()
    }
