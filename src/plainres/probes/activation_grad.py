"""activation_grad_norm at a block's input and output, and block_gain, their quotient.

    activation_grad_norm = mean over samples of ‖∂ℓ_i/∂x_i‖, ℓ_i the loss of sample i: the per-sample norm of
    the tensor's gradient times the number of examples in the loss's mean.
    block_gain = activation_grad_norm(input) / activation_grad_norm(output): a quotient of means, so that the
    product over all blocks is exactly that of the first block's input over the last block's output.

A post-activation block's Jacobian is D(I + J_F), not I + J_F: its gain includes the activation's. Belongs to
the step whose backward pass it saw.
"""

import numpy as np
import numpy.typing as npt
import torch

from plainres.models.block import Block
from plainres.probes.readings import Readings
from plainres.probes.together import Together


def mean_sample_grad_norm(grad: torch.Tensor, num_examples: float) -> torch.Tensor:
    """activation_grad_norm of a tensor from its gradient (N, …): a float32 scalar."""
    return _mean_sample_norms(grad[None])[0] * num_examples


def _mean_sample_norms(grads_KN: torch.Tensor) -> torch.Tensor:
    """(K, N, …) -> (K,) float32: the mean over samples of the L2 norm."""
    norms_KN: torch.Tensor = torch.linalg.vector_norm(grads_KN.flatten(2), dim=2, dtype=torch.float32)
    return norms_KN.mean(1)


def put_block_gain(readings: Readings, top: npt.NDArray[np.float32], bottom: npt.NDArray[np.float32]) -> None:
    """block_gain from activation_grad_norm at the blocks' inputs and outputs; NaN where either is."""
    gain = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
    no_gradient = "no gradient at the block's output"
    reasons = [no_gradient if not b > 0 else "no gradient at the block's input" for b in bottom]
    readings.put("block", "block_gain", gain, reasons)


class ActivationGradNorm:
    """Tensor hooks on the first block's input and on every block's output."""

    def __init__(self, blocks: list[Block]) -> None:
        self._positions = len(blocks) + 1
        self._norms = Together(_mean_sample_norms, 0)
        self._num_examples = 0.0

    def arm(self, num_examples: float) -> None:
        """
        Args:
            num_examples: examples in the loss's mean, divided by what that mean is multiplied by.
        """
        self._num_examples = num_examples
        self._norms = Together(_mean_sample_norms, self._positions)

    def after_backward(self) -> None:
        self._norms.flush()

    def on_block(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        """Listen for the gradients of a block's input and output, as it passes."""
        if index == 0:
            self._hook(x, 0)
        self._hook(y, index + 1)

    def _hook(self, tensor: torch.Tensor, position: int) -> None:
        add = self._norms.add

        def keep(grad: torch.Tensor) -> None:
            add(position, grad)

        tensor.register_hook(keep)

    def collect(self) -> list[torch.Tensor]:
        """Raises: RuntimeError when no gradient reached some block."""
        seen = self._norms.found()
        missed = [i for i, norm in enumerate(seen) if norm is None]
        if missed:
            raise RuntimeError(f"the activation-gradient probe saw no gradient at trunk position {missed[0]}")
        return [torch.stack([n for n in seen if n is not None]) * self._num_examples]

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        (norms,) = values
        top, bottom = norms[:-1], norms[1:]
        readings.put("block", "activation_grad_norm_input", top)
        readings.put("block", "activation_grad_norm_output", bottom)
        put_block_gain(readings, top, bottom)
