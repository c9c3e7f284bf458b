"""Parts of a connection: paths around the branch, and how they meet it."""

import torch
from torch import nn

from plainres.schema import ConnectionConf, Shortcut


class Identity(nn.Module):
    """h(x) = x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Add(nn.Module):
    """h + F, out of place: a probe that holds either sees it unchanged."""

    def forward(self, h: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return h + f


def build_connection(conf: ConnectionConf) -> tuple[nn.Module | None, nn.Module | None]:
    """The shortcut and merge of one block; (None, None) for the plain arm."""
    if conf.shortcut is Shortcut.none:
        return None, None
    return Identity(), Add()
