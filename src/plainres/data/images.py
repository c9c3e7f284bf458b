"""Image folders and ImageNet: every picture decoded once, in parallel, into the cached array.

Shape suffixes: N examples, C channels, H height, W width.
"""

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plainres.data.cache import Bytes, Filled, Stored, Writer, cache_dir, stored
from plainres.data.tree import TRAIN, Entry, Tree, looks_like
from plainres.errors import UserError
from plainres.options import DataName
from plainres.schema import DataConf

PIECE = 256  # images a task of the pool


def load_images(data: DataConf) -> Stored:
    """The images below ``data.root``; decoded now if that was not done before.

    Raises:
        UserError: no root, no images, a class without images, a file that is no image or has another size.
    """
    if data.root is None:
        raise UserError(f"data.root=null: data={data.name} needs the folder of its images; give data.root=PATH")
    root = Path(data.root).expanduser()
    if data.name is DataName.imagenet:
        _unpack_imagenet(root)
    tree = Tree(root)
    key = f"{tree.key()}/{data.size}/{data.val_share}"
    try:
        return stored(cache_dir(data.cache_dir), str(data.name), key, lambda writer: _fill(tree, data, writer))
    finally:
        tree.close()


def _unpack_imagenet(root: Path) -> None:
    """Let torchvision verify and unpack the original archives where only those are there."""
    archives = [root / f"ILSVRC2012_{name}" for name in ("img_train.tar", "img_val.tar", "devkit_t12.tar.gz")]
    if (root / TRAIN).is_dir() or not any(a.exists() for a in archives):
        return
    from torchvision.datasets import ImageNet

    try:
        for split in ("train", "val"):
            ImageNet(str(root), split=split)
    except (RuntimeError, OSError) as error:
        wanted = ", ".join(a.name for a in archives)
        raise UserError(f"data.root={root}: {str(error).splitlines()[0]}; put {wanted} there whole") from error


def _fill(tree: Tree, data: DataConf, writer: Writer) -> Filled:
    classes, splits = tree.splits(data.val_share)
    first, _ = splits[TRAIN][0]
    side = None if data.size is None else (data.size, data.size)
    shape_HW = side or decode(tree, first, None, "").shape[:2]
    arrays = {s: writer.pixels(s, (len(found), 3, *shape_HW)) for s, found in splits.items()}
    total = sum(map(len, splits.values()))
    pieces = [
        (arrays[s], found[at : at + PIECE], at) for s, found in splits.items() for at in range(0, len(found), PIECE)
    ]
    where = f"{tree.root}/{first.name}"
    grey = True
    with _progress(total, tree.root) as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(_decode_piece, tree, array, found, at, shape_HW, side, where) for array, found, at in pieces
        ]
        try:
            for job, (_, found, _) in zip(jobs, pieces, strict=True):
                grey = job.result() and grey
                advance(len(found))
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
    if grey:  # three equal channels would only cost memory and stem weights
        for split in splits:
            writer.keep_first_channel(split)
    for split, found in splits.items():
        writer.labels(split, np.array([label for _, label in found], np.int64))
    return Filled(classes, verified=False)


def _decode_piece(
    tree: Tree,
    array: Bytes,
    found: list[tuple[Entry, int]],
    at: int,
    shape_HW: tuple[int, ...],
    side: tuple[int, int] | None,
    first: str,
) -> bool:
    """Decode some images into their rows; whether all of them are grey."""
    grey = True
    for i, (entry, _) in enumerate(found):
        pixels_HWC = decode(tree, entry, side, first, shape_HW)
        array[at + i] = pixels_HWC.transpose(2, 0, 1)
        grey = grey and bool((pixels_HWC[..., :1] == pixels_HWC).all())
    return grey


def decode(
    tree: Tree, entry: Entry, side: tuple[int, int] | None, first: str, expected_HW: tuple[int, ...] | None = None
) -> npt.NDArray[np.uint8]:
    """(H, W, 3) uint8: as it is, or resized by its short side (bilinear, antialiased) and cut at the centre.

    Raises:
        UserError: it is no image, or not of the expected size.
    """
    raw = b""
    try:
        raw = tree.read(entry)
        with Image.open(io.BytesIO(raw)) as image:
            rgb = image.convert("RGB")
    except Exception as error:  # PIL and zipfile raise many kinds for a broken file
        unknown = isinstance(error, UnidentifiedImageError)  # its own words name a buffer of ours
        what = looks_like(raw[:64], ValueError("of no format that is known") if unknown else error)
        raise UserError(f"{tree.root}/{entry.name}: cannot be read as an image ({what})") from error
    if side is not None:
        rgb = _fit(rgb, side[0])
    pixels_HWC: npt.NDArray[np.uint8] = np.asarray(rgb, np.uint8)
    if expected_HW is not None and pixels_HWC.shape[:2] != tuple(expected_HW):
        mine, other = (f"{h}x{w}" for h, w in (pixels_HWC.shape[:2], expected_HW))
        raise UserError(f"{tree.root}/{entry.name}: is {mine}, and {first} is {other}; set data.size to resize them")
    return pixels_HWC


def _fit(image: Image.Image, side: int) -> Image.Image:
    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return resized.crop((left, top, left + side, top + side))


@contextmanager
def _progress(total: int, root: Path) -> Iterator[Any]:
    """A bar on the terminal; a line where there is none."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"plainres: decoding {total} images of {root}, once", soft_wrap=True, highlight=False)
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"decoding {root.name}, once", total=total)
        yield lambda count: bar.advance(task, count)
