"""Images as four arrays on disk, decoded once and mapped into memory by every process that trains on them.

A data set's folder holds train_x, train_y, val_x and val_y as .npy files and meta.json. It appears whole or not at
all, whoever is killed; a file lock lets one process make it while the others wait.

Shape suffixes: N examples, C channels, H height, W width.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from numpy.lib.format import open_memmap
from platformdirs import user_cache_path

from plainres.errors import UserError

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
VERSION = 1  # of the files; another number makes them anew
CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Stored:
    """A decoded data set.

    Attributes:
        train_x_NCHW, val_x_NCHW: uint8, mapped from disk.
        train_y_N, val_y_N: int64, in memory.
        classes: names, in the order of the labels.
        content: hash of pixels, labels and class names.
        verified: whether a published checksum vouches for the content.
        mean_C, std_C: of the training pixels.
    """

    train_x_NCHW: Bytes
    train_y_N: Labels
    val_x_NCHW: Bytes
    val_y_N: Labels
    classes: list[str]
    content: str
    verified: bool
    mean_C: list[float]
    std_C: list[float]


@dataclass(frozen=True)
class Filled:
    """What a source says of the arrays that it has written."""

    classes: list[str]
    verified: bool


class Writer:
    """Hands out the arrays that a source fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pixels(self, split: str, shape_NCHW: tuple[int, ...]) -> Bytes:
        """A zeroed uint8 array on disk."""
        array: Bytes = open_memmap(self.folder / f"{split}_x.npy", "w+", np.uint8, shape_NCHW)
        return array

    def keep_first_channel(self, split: str) -> None:
        """Replace a written array by its first channel, a piece at a time."""
        path, smaller = self.folder / f"{split}_x.npy", self.folder / f"{split}_x_grey.npy"
        whole = np.load(path, mmap_mode="r")
        one: Bytes = open_memmap(smaller, "w+", np.uint8, (len(whole), 1, *whole.shape[2:]))
        done = 0
        for piece in _pieces(whole):
            one[done : done + len(piece)] = piece[:, :1]
            done += len(piece)
        smaller.replace(path)

    def labels(self, split: str, y_N: Labels) -> None:
        np.save(self.folder / f"{split}_y.npy", y_N.astype(np.int64))


def cache_dir(wanted: str | None) -> Path:
    """``data.cache_dir``, or plainres in the user's cache folder (XDG_CACHE_HOME moves it)."""
    return Path(wanted).expanduser() if wanted else user_cache_path("plainres")


def stored(root: Path, name: str, key: str, fill: Callable[[Writer], Filled]) -> Stored:
    """The data set ``name`` whose source has this ``key``, made by ``fill`` where it is not there yet.

    Raises:
        UserError: the source, or the stored copy, cannot be used.
    """
    folder = root / f"{name}-{_hash(f'{VERSION}/{key}'.encode())}"
    if not (folder / "meta.json").exists():
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "meta.json").exists():
                _make(folder, fill)
    return _open(folder)


def _make(folder: Path, fill: Callable[[Writer], Filled]) -> None:
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed: we hold the lock
    shutil.rmtree(folder, ignore_errors=True)  # without its meta.json it was never whole
    part.mkdir()
    try:
        filled = fill(Writer(part))
        (part / "meta.json").write_text(json.dumps(_meta(part, filled), indent=1))
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _meta(part: Path, filled: Filled) -> dict[str, Any]:
    """Class names, shapes, content hash, and the statistics of the training pixels."""
    digest = hashlib.sha256(json.dumps(filled.classes).encode())
    shapes = {}
    for array in ("train_x", "train_y", "val_x", "val_y"):
        values = np.load(part / f"{array}.npy", mmap_mode="r")
        shapes[array] = list(values.shape)
        digest.update(f"{array}{values.shape}".encode())
        for piece in _pieces(values):
            digest.update(piece.tobytes())
    mean_C, std_C = channel_statistics(np.load(part / "train_x.npy", mmap_mode="r"), None)
    return {
        "classes": filled.classes,
        "verified": filled.verified,
        "content": digest.hexdigest()[:16],
        "shapes": shapes,
        "mean": mean_C,
        "std": std_C,
    }


def channel_statistics(x_NCHW: Bytes, rows: npt.NDArray[np.int64] | None) -> tuple[list[float], list[float]]:
    """Mean and standard deviation (divided by N) of every channel, exact to float64, a piece at a time.

    Args:
        x_NCHW: uint8 pixels.
        rows: the images that count; None for all.
    """
    channels = x_NCHW.shape[1]
    counts_CV = np.zeros((channels, 256), np.int64)
    for piece in _pieces(x_NCHW, rows):
        for c in range(channels):
            counts_CV[c] += np.bincount(piece[:, c].ravel(), minlength=256)
    values_V = np.arange(256, dtype=np.float64)
    total = counts_CV[0].sum()
    mean_C = counts_CV @ values_V / total
    variance_C = [(counts @ (values_V - mean) ** 2) / total for counts, mean in zip(counts_CV, mean_C, strict=True)]
    std_C = np.sqrt(variance_C)
    return mean_C.tolist(), np.where(std_C > 0, std_C, 1.0).tolist()  # a channel that never changes stays 0


def _pieces(values: Any, rows: npt.NDArray[np.int64] | None = None) -> Any:
    count = len(values) if rows is None else len(rows)
    size = max(1, CHUNK_BYTES // max(1, values[:1].nbytes))
    for first in range(0, count, size):
        yield values[first : first + size] if rows is None else values[rows[first : first + size]]


def _open(folder: Path) -> Stored:
    try:
        meta = json.loads((folder / "meta.json").read_text())
        # "c": pages are shared with other processes; torch wants memory that it could write to.
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("train_x", "val_x")}
        arrays |= {name: np.load(folder / f"{name}.npy") for name in ("train_y", "val_y")}
        if any(list(array.shape) != meta["shapes"][name] for name, array in arrays.items()):
            raise ValueError("an array has another shape than was written")
        return Stored(
            train_x_NCHW=arrays["train_x"],
            train_y_N=arrays["train_y"],
            val_x_NCHW=arrays["val_x"],
            val_y_N=arrays["val_y"],
            classes=meta["classes"],
            content=meta["content"],
            verified=meta["verified"],
            mean_C=meta["mean"],
            std_C=meta["std"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: this stored copy of a data set is broken ({error}); delete the folder") from error


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
