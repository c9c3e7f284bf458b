"""The networks that plainres is timed against, as one would write them by hand with torch's modules.

Each is checked against ours: the same parameters give the same outputs (``check_same``).
"""

import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.networks import Network


class MlpBlock(nn.Module):
    """Linear-BN-ReLU-Linear-BN, the input added, ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)
        self.fc2, self.bn2 = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x))))))


class ConvBlock(nn.Module):
    """The basic block of He et al. 2015, with zero padding (option A) where width and resolution change."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.stride, self.new = stride, width - channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1 or self.new:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))
        return F.relu(x + y)


class Pool(nn.Module):
    """(N, C, H, W) -> (N, C)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class VitLayer(nn.Module):
    """Pre-norm attention and feed-forward, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    """A small vision transformer with a class token and learned positions."""

    def __init__(self, depth: int, width: int, heads: int, channels: int, side: int, patch: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (side // patch) ** 2, width))
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.layers = nn.Sequential(*[VitLayer(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        out: torch.Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return out


def mlp(depth: int, width: int, features: int) -> nn.Module:
    stem = [nn.Flatten(), nn.Linear(features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*stem, *[MlpBlock(width) for _ in range((depth - 2) // 2)], nn.Linear(width, 10))


def cnn(depth: int, width: int, channels: int) -> nn.Module:
    stem = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks = [ConvBlock(width, width) for _ in range((depth - 2) // 2)]
    return nn.Sequential(*stem, *blocks, Pool(), nn.Linear(width, 10))


def cifar_resnet(depth: int, width: int, channels: int) -> nn.Module:
    stem = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks, before = [], width
    for stage in range(3):
        for i in range((depth - 2) // 6):
            blocks.append(ConvBlock(before, width * 2**stage, 2 if stage and not i else 1))
            before = width * 2**stage
    return nn.Sequential(*stem, *blocks, Pool(), nn.Linear(before, 10))


def check_same(ours: Network, theirs: nn.Module, x_NCHW: torch.Tensor) -> None:
    """Give ``theirs`` our parameters and compare outputs in training mode.

    Raises:
        AssertionError: it is another network.
    """
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.copy_(mine)
        running = [buffer.clone() for buffer in ours.buffers()]
        torch.testing.assert_close(ours.train()(x_NCHW), theirs.train()(x_NCHW), rtol=1e-3, atol=1e-3)
        for buffer, before in zip(ours.buffers(), running, strict=True):
            buffer.copy_(before)
