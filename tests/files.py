"""Files in the formats of real data sets."""

import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    """The format of MNIST's files: magic number, sides, bytes."""
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def zipped(root: Path, target: Path, prefix: str = "") -> Path:
    """A zip of a folder."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, f"{prefix}{path.relative_to(root).as_posix()}")
    return target
