"""MNIST-1D (Greydanus & Kobak, arXiv 2011.14439): 4,000 + 1,000 generated sequences of 40 numbers in ten classes."""

import random

import numpy as np
import torch


def load_mnist1d() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The package's default data set, made anew (1 s); an example is a column, (1, 40, 1).

    Returns:
        train_x_NCHW, train_y_N, val_x_NCHW, val_y_N, as float32 and int64.
    """
    # The package draws from Python's and numpy's global generators; they are put back as they were.
    before = random.getstate(), np.random.get_state()
    try:
        from mnist1d.data import get_dataset_args, make_dataset

        made = make_dataset(get_dataset_args())
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])

    def sequences(array: object) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.float32)[:, None, :, None]

    def labels(array: object) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.int64)

    return sequences(made["x"]), labels(made["y"]), sequences(made["x_test"]), labels(made["y_test"])
