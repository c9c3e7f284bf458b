"""Two branches, a shortcut and a probe of my own."""

import torch
from torch import nn

from plainres.probes.own import OwnProbe


class GatedLinear(nn.Module):
    """out(value(x) · σ(gate(x))): a gated linear unit (arXiv 1612.08083) on the last axis. Two layers deep."""

    last_weight = "out.weight"  # what connection=zero_init starts at 0

    def __init__(self, width, hidden=None):
        super().__init__()
        self.value = nn.Linear(width, hidden or width)
        self.gate = nn.Linear(width, hidden or width)
        self.out = nn.Linear(hidden or width, width, bias=False)

    def forward(self, x):
        return self.out(self.value(x) * torch.sigmoid(self.gate(x)))


class DepthwiseConv(nn.Module):
    """A convolution within each channel, a norm, ReLU, and a 1x1 convolution across them (arXiv 1704.04861)."""

    last_weight = "pointwise.weight"

    def __init__(self, width, kernel=3):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU()
        self.pointwise = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x):
        return self.pointwise(self.act(self.norm(self.depthwise(x))))


class Leaky(nn.Module):
    """A shortcut h(x) = a · x with one learned number a, which starts at ``start``."""

    def __init__(self, width, start=0.9):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(start))

    def forward(self, x):
        return self.a * x


class TrunkMean(OwnProbe):
    """trunk_mean: the mean of what each block puts out."""

    def arm(self, num_examples):
        self.means = []
        self.hooks = [block.register_forward_hook(self.see) for block in self.network.blocks]

    def see(self, block, inputs, output):
        self.means.append(output.detach().mean().item())

    def after_backward(self):
        for hook in self.hooks:
            hook.remove()

    def read(self):
        return {"block": {"trunk_mean": self.means}}
