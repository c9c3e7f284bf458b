"""scikit-learn's handwritten digits: 1,797 real 8x8 grey images in ten classes, shipped inside the package."""

import torch

NUM_VAL = 360


def load_digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A fixed stratified split into 1,437 training and 360 validation images.

    Returns:
        train_x_NCHW, train_y_N, val_x_NCHW, val_y_N, pixel values 0..16 as float32.
    """
    from sklearn import datasets, model_selection

    digits = datasets.load_digits()
    # An int random_state makes a generator of its own: numpy's global state is neither read nor moved.
    train_x, val_x, train_y, val_y = model_selection.train_test_split(
        digits.images, digits.target, test_size=NUM_VAL, stratify=digits.target, random_state=0
    )

    def images(array: object) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.float32).unsqueeze(1)

    def labels(array: object) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.int64)

    return images(train_x), labels(train_y), images(val_x), labels(val_y)
