"""Shapes, on the meta device, before anything is trained; and their contract: what is joined has one shape.

torch would broadcast (N, 1) + (N, 64) without a word, or fail in the middle of a step with two sizes and no name.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plainres.errors import UserError
from plainres.models.block import Block
from plainres.models.networks import Network


class ShapesOnly(TorchDispatchMode):
    """Within, the most frequent operations on meta tensors are what they are there: shapes.

    torch (2.14) takes each apart into a dozen Python functions, 2 ms for a batch norm.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of one operation."""
        return _QUICK.get(func, func)(*args, **(kwargs or {}))


def _batch_norm(x: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])  # output; mean and deviation


_QUICK: dict[Any, Any] = {
    torch.ops.aten.relu.default: torch.empty_like,
    torch.ops.aten.native_batch_norm.default: _batch_norm,
}


def check_additions(network: Network, batch: int, input_shape: Sequence[int]) -> None:
    """One forward pass of a meta-device network in which every block's merge compares what it is given.

    Raises:
        UserError: names the block, both shapes, and the shortcuts that would fit.
    """
    blocks = [block for block in network.blocks if isinstance(block, Block)]
    handles = [b.merge.register_forward_pre_hook(_compare(b.index)) for b in blocks if b.merge is not None]
    try:
        with torch.no_grad(), ShapesOnly():  # type: ignore[no-untyped-call]  # torch has no types here
            network(torch.empty((batch, *input_shape), device="meta"))
    finally:
        for handle in handles:
            handle.remove()


def _compare(index: int) -> Any:
    def hook(module: torch.nn.Module, args: tuple[torch.Tensor, torch.Tensor]) -> None:
        h, f = (tuple(tensor.shape[1:]) for tensor in args)
        if h != f:
            raise UserError(
                f"block {index}: the shortcut gives {_text(h)} and the branch {_text(f)}, which cannot be joined; "
                f"{shortcuts_that_fit(h, f)}"
            )

    return hook


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def shortcuts_that_fit(h: Sequence[int], f: Sequence[int]) -> str:
    """Which shortcut would turn ``h`` into ``f``, without the batch: (C, H, W), (T, D) or (D,)."""
    if len(h) != len(f):
        return "none fits: the branch must keep the number of dimensions"
    spatial = len(h) == 3
    channels, wanted = (h[0], f[0]) if spatial else (h[-1], f[-1])
    sides = list(zip(h[1:], f[1:], strict=True)) if spatial else list(zip(h[:-1], f[:-1], strict=True))
    strides = [s for s in range(1, max(h) + 1) if all(-(-a // s) == b for a, b in sides)]
    if not strides or (not spatial and strides[0] != 1):
        return "none fits: the branch must keep the sides, or divide them by one stride"
    fits = [f"a projection {channels} → {wanted}" + (f" with stride {strides[0]}" if strides[0] > 1 else "")]
    if spatial and wanted >= channels:
        fits = [f"zero_pad or pool with {wanted - channels} more channels", *fits]
    return f"what fits is {' or '.join(fits)}"
