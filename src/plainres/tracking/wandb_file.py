"""The file of an offline W&B run, read as far as it takes to say whether it is whole.

It is a log in LevelDB's format (blocks of 32 kB; records with checksum, length, type) of W&B's protobuf records. The
last one of a run that was finished is ``exit``. W&B gives no word of a disk that was full; this does.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 1 << 15
_HEAD = struct.Struct("<IHB")  # checksum, length, type
_FILE_HEAD = 7
_LAST_PARTS = (1, 4)  # types of a record in one piece, and of the last piece of several


def run_folders(wandb_dir: Path, run_id: str, prefix: str = "(offline-)?run") -> list[Path]:
    """The folders that W&B made for a run, oldest first; a symbolic link is none.

    Args:
        wandb_dir: where they lie.
        run_id: of the run.
        prefix: pattern of how their names begin; the time follows, the id, and a number where both are taken.
    """
    pattern = re.compile(rf"{prefix}-(\d+_\d+)-{re.escape(run_id)}(?:-(\d+))?")
    found = [(match, path) for path in wandb_dir.glob("*run-*") if (match := pattern.fullmatch(path.name))]
    found.sort(key=lambda pair: (*pair[0].groups()[-2:-1], int(pair[0].groups()[-1] or 0)))
    return [path for _, path in found if not path.is_symlink()]


def is_whole(path: Path) -> bool:
    """Whether a .wandb file ends with the record that says how the run ended."""
    kind = None
    try:
        for record in read_records(path):
            kind = record.WhichOneof("record_type")
    except (OSError, ValueError):
        return False
    return kind == "exit"


def read_records(path: Path) -> Iterator[Any]:
    """W&B's records, in order, up to one that is torn.

    Raises:
        OSError: there is no such file.
        ValueError: its content is none of W&B's.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # made at import

    content = path.read_bytes()
    position, parts = _FILE_HEAD, b""
    while True:
        left = BLOCK - position % BLOCK
        if left < _HEAD.size:
            position += left
        if position + _HEAD.size > len(content):
            return
        _, length, kind = _HEAD.unpack_from(content, position)
        position += _HEAD.size
        parts += content[position : position + length]
        position += length
        if position > len(content):
            return
        if kind in _LAST_PARTS:
            try:
                yield Record.FromString(parts)
            except DecodeError as error:
                raise ValueError(f"{path}: not a W&B run ({error})") from error
            parts = b""
