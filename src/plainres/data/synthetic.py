"""Generated data with a known rule: Gaussian inputs, labelled by a random network of known depth.

The teacher is a plain ReLU network of ``data.teacher_depth`` weighted layers, 64 wide, He-initialised, in float64.
Each of its outputs is standardised over the inputs before the largest one gives the label: without that, a deep
random network sends nearly every input to one class. With ``data.random_labels`` there is no rule at all.
"""

import math

import torch

from plainres.schema import DataConf
from plainres.seeding import generator

SIDE = 8
TEACHER_WIDTH = 64


def load_synthetic(data: DataConf) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``data.examples`` training images of 1 x size x size and a quarter as many for validation.

    Returns:
        train_x_NCHW, train_y_N, val_x_NCHW, val_y_N.
    """
    side, num_train = data.size or SIDE, data.examples
    total = num_train + max(1, num_train // 4)
    x_NCHW = torch.randn(total, 1, side, side, generator=generator(data.seed, "synthetic", "inputs"))
    y_N = teacher_labels(x_NCHW.flatten(1), data.teacher_depth, data.classes, data.seed)
    return x_NCHW[:num_train], y_N[:num_train], x_NCHW[num_train:], y_N[num_train:]


def teacher_labels(x_ND: torch.Tensor, depth: int, num_classes: int, seed: int) -> torch.Tensor:
    """(N,) int64: what a random network with ``depth`` weighted layers says of each input."""
    h = x_ND.double()
    for layer in range(depth):
        width = num_classes if layer == depth - 1 else TEACHER_WIDTH
        draw = generator(seed, "synthetic", "teacher", layer)
        weight = torch.randn(width, h.shape[1], generator=draw, dtype=torch.float64) * math.sqrt(2 / h.shape[1])
        h = (h if layer == 0 else h.relu()) @ weight.T
    return ((h - h.mean(0)) / h.std(0, correction=0)).argmax(1)
