"""Which examples each step trains on."""

import hashlib

import torch

from plainres.errors import UserError
from plainres.seeding import epoch_order
from plainres.transfer import to_device


class Batches:
    """``epoch_order`` cut into whole batches, the short last one dropped."""

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

    def epoch(self, step: int) -> int:
        """Number of passes over the data before this step."""
        return step // self.per_epoch

    def indices(self, step: int, device: str = "cpu") -> torch.Tensor:
        """(batch,) int64 indices into the training set for this step."""
        epoch, position = divmod(step, self.per_epoch)
        if (epoch, device) != self._cached:
            self._order_N = to_device(epoch_order(self.seed, epoch, self.num_examples), device)
            self._cached = (epoch, device)
        return self._order_N[position * self.batch : (position + 1) * self.batch]

    def digest(self, steps: int, cap: int = 20_000_000) -> str:
        """Hash of the index sequence of a whole budget (of its first ``cap`` indices when it is longer)."""
        digest = hashlib.sha256(f"{self.num_examples}/{self.batch}/{steps}".encode())
        for step in range(min(steps, cap // self.batch + 1)):
            digest.update(self.indices(step).numpy().tobytes())
        return digest.hexdigest()[:16]
