"""Weights, optimizer and position of a run, in one file that is replaced atomically.

Loads with ``weights_only=True``: a checkpoint from elsewhere cannot run code.
"""

import io
import pickle
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plainres.flat import FlatParameters
from plainres.store import write_atomic

FORMAT = 1


@dataclass
class Position:
    """Where training stands, beside the weights.

    Attributes:
        step: updates made; one more than the budget once the final evaluation is written too.
        running: sums since the last evaluation: wrong answers, loss, examples.
        lengths: bytes of each row file that this checkpoint covers.
        last_eval: the last evaluation whose values were all finite.
        seconds: seconds spent so far, by activity.
        loss_scale: of a float16 run (precision.LossScale), else None.
    """

    step: int = 0
    running: dict[str, float] = field(default_factory=lambda: {"wrong": 0.0, "loss": 0.0, "examples": 0.0})
    lengths: dict[str, int] | None = None
    last_eval: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    loss_scale: dict[str, float] | None = None


def save(
    path: Path,
    network: nn.Module,
    flat: FlatParameters,
    optimizer: torch.optim.Optimizer,
    position: Position,
    place: dict[str, str],
) -> None:
    """Write a checkpoint.

    Args:
        path: file to replace.
        network, flat, optimizer: what is saved.
        position: where training stands.
        place: what has to be equal for a bit-identical resume (versions, device, code).

    Raises:
        OSError: the disk is full or unwritable; the old checkpoint is still whole.
    """
    content = {
        "format": FORMAT,
        "parameters": flat.data,
        "buffers": dict(network.named_buffers()),
        "optimizer": optimizer.state_dict(),
        "position": asdict(position),
        "place": place,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomic(path, buffer.getvalue())


def read(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint on the CPU, or None when there is none or it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:  # torch writes checksums and does not read them
                return None
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError, zipfile.BadZipFile):
        return None
    usable = isinstance(content, dict) and content.get("format") == FORMAT
    return content if usable else None


def restore(
    content: dict[str, Any], network: nn.Module, flat: FlatParameters, optimizer: torch.optim.Optimizer
) -> Position:
    """Put a checkpoint's weights, norm statistics and optimizer state back; returns its position."""
    restore_weights(content, network, flat)
    optimizer.load_state_dict(content["optimizer"])
    return Position(**content["position"])


def restore_weights(content: dict[str, Any], network: nn.Module, flat: FlatParameters) -> None:
    """Put a checkpoint's weights and norm statistics back.

    Raises:
        RuntimeError, KeyError: it is another network's.
    """
    flat.data.copy_(content["parameters"])
    for name, buffer in network.named_buffers():
        buffer.copy_(content["buffers"][name])
