"""Branches and what a placement puts around them. A branch knows nothing of shortcuts.

Shape suffixes: N examples, T tokens, D features, H heads, K features a head.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.block import Frame
from plainres.models.layer import Kit, Layer
from plainres.options import Placement


def layered_branch(kit: Kit, placement: Placement, layers: int, width_in: int, width: int, stride: int) -> nn.Module:
    """m weighted layers in a row; the first changes width and resolution where the stage does.

    post_activation: op-norm-act … op-norm. pre_activation: norm-act-op … norm-act-op. Else: op-act … op.
    """
    widths = [width_in] + [width] * (layers - 1)
    strides = [stride] + [1] * (layers - 1)
    parts: list[nn.Module] = []
    for i, (w, s) in enumerate(zip(widths, strides, strict=True)):
        op, last = kit.op(w, width, s), i == layers - 1
        if placement is Placement.pre_activation:
            parts.append(Layer(op, kit.make_norm(w), kit.make_act(), pre=True))
        elif placement is Placement.post_activation:
            parts.append(Layer(op, kit.make_norm(width), None if last else kit.make_act()))
        else:
            parts.append(Layer(op, None, None if last else kit.make_act()))
    return nn.Sequential(*parts)


def frame(kit: Kit, placement: Placement, width_in: int, width: int) -> Frame:
    """What stands before the branch, after it, and after the addition."""
    if placement is Placement.post_activation:
        return Frame(post=kit.make_act())
    if placement is Placement.pre_norm:
        return Frame(pre=kit.make_norm(width_in))
    if placement is Placement.post_norm:
        return Frame(post=kit.make_norm(width))
    if placement is Placement.sandwich:
        return Frame(pre=kit.make_norm(width_in), out=kit.make_norm(width))
    return Frame()


def final_part(kit: Kit, placement: Placement, width: int) -> nn.Module:
    """What stands between the last block and the head: the norm (and activation) that the placement has not had yet."""
    if placement is Placement.pre_activation:
        parts = [kit.make_norm(width), kit.make_act()]
    elif placement in (Placement.pre_norm, Placement.sandwich):
        parts = [kit.make_norm(width)]
    else:
        parts = []
    return nn.Sequential(*[part for part in parts if part is not None])


class Attention(nn.Module):
    """Multi-head self-attention (arXiv 1706.03762): (N, T, D) -> (N, T, D).

    Attributes:
        entropy_tap: called with the attention weights (N, H, T, T) in a probed step, else None.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.watch = False
        self.entropy: torch.Tensor | None = None

    def forward(self, x_NTD: torch.Tensor) -> torch.Tensor:
        n, t, d = x_NTD.shape
        # Split before the heads are: their gradients then lie side by side, and joining them is one copy and not two.
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x_NTD).split(d, dim=2))
        if self.watch:
            self.entropy = _entropy(q.detach(), k.detach())
        out_NHTK = F.scaled_dot_product_attention(q, k, v)
        y: torch.Tensor = self.proj(out_NHTK.transpose(1, 2).reshape(n, t, d))
        return y


def _entropy(q_NHTK: torch.Tensor, k_NHTK: torch.Tensor) -> torch.Tensor:
    """Mean entropy (nats) of the attention weights over samples, heads and queries; ln T when uniform."""
    with torch.autocast(q_NHTK.device.type, enabled=False):  # a reading is float32 whatever the network computes in
        logits = q_NHTK.float() @ k_NHTK.float().transpose(-1, -2) / math.sqrt(q_NHTK.shape[-1])
        log_weights = logits.log_softmax(-1)
    return -(log_weights.exp() * log_weights).sum(-1).mean()


class FeedForward(nn.Module):
    """Linear, activation, linear, position by position: (…, D) -> (…, D)."""

    def __init__(self, kit: Kit, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = kit.make_act()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return y
