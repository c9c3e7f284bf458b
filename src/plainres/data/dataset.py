"""A data set on the device, and the batches that a step takes from it.

Shape suffixes: N examples, C channels, H height, W width.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from plainres.errors import UserError
from plainres.seeding import epoch_order

NAMES = ("digits",)


@dataclass(frozen=True)
class Dataset:
    """Training and validation examples, normalised with training statistics.

    Attributes:
        train_x_NCHW, val_x_NCHW: float32.
        train_y_N, val_y_N: int64 labels.
        num_classes: number of classes.
        sha256: hash of all four tensors.
    """

    train_x_NCHW: torch.Tensor
    train_y_N: torch.Tensor
    val_x_NCHW: torch.Tensor
    val_y_N: torch.Tensor
    num_classes: int
    sha256: str

    @property
    def num_train(self) -> int:
        return len(self.train_y_N)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.train_x_NCHW.shape[1:])

    @property
    def chance_error(self) -> float:
        """1 − share of the largest class: the training error of the best constant answer (a fraction)."""
        return 1 - torch.bincount(self.train_y_N).max().item() / self.num_train

    def to(self, device: str) -> "Dataset":
        moved = {name: getattr(self, name).to(device) for name in _TENSORS}
        return replace(self, **moved)

    def describe(self) -> dict[str, Any]:
        """What run.json keeps of the data."""
        return {
            "num_train": self.num_train,
            "num_val": len(self.val_y_N),
            "num_classes": self.num_classes,
            "input_shape": list(self.input_shape),
            "chance_error": self.chance_error,
            "sha256": self.sha256,
        }


_TENSORS = ("train_x_NCHW", "train_y_N", "val_x_NCHW", "val_y_N")


def make_dataset(
    train_x_NCHW: torch.Tensor, train_y_N: torch.Tensor, val_x_NCHW: torch.Tensor, val_y_N: torch.Tensor
) -> Dataset:
    """Normalise each channel by mean and standard deviation over the training set, and hash the result."""
    dims = (0, 2, 3)
    mean = train_x_NCHW.double().mean(dims, keepdim=True)
    std = train_x_NCHW.double().std(dims, correction=0, keepdim=True)
    train, val = (((x.double() - mean) / std).float().contiguous() for x in (train_x_NCHW, val_x_NCHW))
    tensors = (train, train_y_N, val, val_y_N)
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    return Dataset(*tensors, num_classes=int(train_y_N.max()) + 1, sha256=digest.hexdigest()[:16])


@lru_cache(maxsize=1)
def load(name: str) -> Dataset:
    """A data set by its name, on the CPU; kept for the next run of the same process.

    Raises:
        UserError: there is no such data set.
    """
    if name == "digits":
        from plainres.data.digits import load_digits

        return make_dataset(*load_digits())
    raise UserError(f"data.name={name}: must be one of {', '.join(NAMES)}")


class Batches:
    """Which examples each step trains on: ``epoch_order`` cut into whole batches, the short last one dropped."""

    def __init__(self, seed: int, num_examples: int, batch: int) -> None:
        """
        Raises:
            UserError: the batch is larger than the data.
        """
        if batch > num_examples:
            raise UserError(
                f"trainer.batch={batch}: larger than the {num_examples} training examples; lower trainer.batch"
            )
        self.seed = seed
        self.num_examples = num_examples
        self.batch = batch
        self.per_epoch = num_examples // batch
        self._cached = (-1, "")
        self._order_N = torch.empty(0)

    def indices(self, step: int, device: str = "cpu") -> torch.Tensor:
        """(batch,) int64 indices into the training set for this step."""
        epoch, position = divmod(step, self.per_epoch)
        if (epoch, device) != self._cached:
            self._order_N = epoch_order(self.seed, epoch, self.num_examples).to(device)
            self._cached = (epoch, device)
        return self._order_N[position * self.batch : (position + 1) * self.batch]

    def digest(self, steps: int, cap: int = 20_000_000) -> str:
        """Hash of the index sequence of a whole budget (of its first ``cap`` indices when it is longer)."""
        digest = hashlib.sha256(f"{self.num_examples}/{self.batch}/{steps}".encode())
        for step in range(min(steps, cap // self.batch + 1)):
            digest.update(self.indices(step).numpy().tobytes())
        return digest.hexdigest()[:16]
