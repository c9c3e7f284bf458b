"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN: torchvision downloads, verifies and reads them.

With ``data.root`` nothing is downloaded: the files are taken from there, in torchvision's layout or lying in the folder
itself (as in Debian's package dataset-fashion-mnist). Shape suffixes: N examples, C channels, H height, W width.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from plainres.data.cache import Filled, Stored, Writer, cache_dir, stored
from plainres.data.tree import looks_like, start_of
from plainres.errors import UserError
from plainres.options import DataName
from plainres.schema import DataConf

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Archive:
    """A file as it is published, and what it becomes.

    Attributes:
        name: of the file.
        md5: published checksum.
        unpacked: file or folder that stands for it where it was unpacked before; "" where it is used as it is.
    """

    name: str
    md5: str
    unpacked: str


@dataclass(frozen=True)
class Source:
    """One of torchvision's data sets.

    Attributes:
        archives: the published files.
        below: where torchvision keeps them below its root.
        read: (torchvision's root, whether training) -> pixels (N, C, H, W) and labels.
        download: fetch everything below a root.
        classes: names.
        sides: (H, W) of every image.
        checks_itself: torchvision compares checksums of the files that it reads, not only of a download.
    """

    archives: list[Archive]
    below: str
    read: Callable[[str, bool], Arrays]
    download: Callable[[str], None]
    classes: list[str]
    sides: tuple[int, int]
    checks_itself: bool


def load_archives(data: DataConf) -> Stored:
    """A named data set from ``data.root``, or downloaded into the cache folder when that is null.

    Raises:
        UserError: the files are not there, broken, or cannot be downloaded.
    """
    source, cache = source_of(data.name), cache_dir(data.cache_dir)
    given = None if data.root is None else Path(data.root).expanduser()
    root = given or cache / "downloads"
    if given is None:
        _download(data, source, root)
    files = _locate(data, source, root)
    stamps = [f"{archive.name}/{path.stat().st_size}/{path.stat().st_mtime_ns}" for archive, path in files]
    return stored(cache, str(data.name), "\n".join(stamps), lambda writer: _fill(data, source, files, writer))


def source_of(name: DataName) -> Source:
    """How torchvision has this data set. It is imported only here: a run on other data does without."""
    from torchvision import datasets

    if name in (DataName.mnist, DataName.fashion_mnist):
        mnist: Any = datasets.MNIST if name is DataName.mnist else datasets.FashionMNIST
        archives = [Archive(file, md5, file.removesuffix(".gz")) for file, md5 in mnist.resources]
        below = f"{mnist.__name__}/raw"
        return Source(archives, below, _reader(mnist, _read_mnist), _fetch(mnist), list(mnist.classes), (28, 28), False)
    if name in (DataName.cifar10, DataName.cifar100):
        cifar: Any = datasets.CIFAR10 if name is DataName.cifar10 else datasets.CIFAR100
        archives = [Archive(cifar.filename, cifar.tgz_md5, cifar.base_folder)]
        names = [str(i) for i in range(10 if name is DataName.cifar10 else 100)]
        return Source(archives, "", _reader(cifar, _read_cifar), _fetch(cifar), names, (32, 32), True)
    svhn: Any = datasets.SVHN
    archives = [Archive(svhn.split_list[s][1], svhn.split_list[s][2], "") for s in ("train", "test")]

    def read_svhn(root: str, train: bool) -> Arrays:
        found = svhn(root, "train" if train else "test")
        return found.data, found.labels

    def fetch_svhn(root: str) -> None:
        for split in ("train", "test"):
            svhn(root, split, download=True)

    return Source(archives, "", read_svhn, fetch_svhn, [str(i) for i in range(10)], (32, 32), True)


def _reader(kind: Any, arrays_of: Callable[[Any], Arrays]) -> Callable[[str, bool], Arrays]:
    return lambda root, train: arrays_of(kind(root, train=train))


def _fetch(kind: Any) -> Callable[[str], None]:
    def fetch(root: str) -> None:
        kind(root, download=True)

    return fetch


def _read_mnist(found: Any) -> Arrays:
    return found.data.numpy()[:, None], found.targets.numpy()


def _read_cifar(found: Any) -> Arrays:
    return found.data.transpose(0, 3, 1, 2), np.asarray(found.targets, np.int64)


def _download(data: DataConf, source: Source, root: Path) -> None:
    """Fetch what is missing, one process at a time."""
    if all(_find(root, source, archive) for archive in source.archives):
        return
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{data.name}.lock"):
        if all(_find(root, source, archive) for archive in source.archives):
            return
        try:
            source.download(str(root))
        except (RuntimeError, OSError) as error:
            broken = [p for a in source.archives if (p := root / source.below / a.name).exists() and not _intact(p, a)]
            reason = f"{broken[0]}: {looks_like(broken[0], error)}" if broken else _reason(error)
            for path in broken:
                path.unlink()
            names = ", ".join(a.name for a in source.archives)
            raise UserError(
                f"data={data.name}: cannot be downloaded ({reason}); try again online, or put {names} "
                "into a folder and give data.root=FOLDER"
            ) from error


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _find(root: Path, source: Source, archive: Archive) -> Path | None:
    """The archive, or what it was unpacked to, in torchvision's layout or in the folder itself."""
    for folder in (root / source.below, root):
        for name in (archive.name, archive.unpacked):
            if name and (folder / name).exists():
                return folder / name
    return None


def _locate(data: DataConf, source: Source, root: Path) -> list[tuple[Archive, Path]]:
    found = []
    for archive in source.archives:
        path = _find(root, source, archive)
        if path is None:
            raise UserError(
                f"data.root={root}: {archive.name} is not there; give the folder that holds the files of "
                f"{data.name}, or data.root=null to download them"
            )
        found.append((archive, path))
    return found


def _intact(path: Path, archive: Archive) -> bool:
    from torchvision.datasets.utils import check_integrity

    return bool(check_integrity(str(path), archive.md5))


def _fill(data: DataConf, source: Source, files: list[tuple[Archive, Path]], writer: Writer) -> Filled:
    """Verify, unpack beside the cache, read through torchvision, check, and write the arrays."""
    intact = [path.name == archive.name and _intact(path, archive) for archive, path in files]
    for (archive, path), whole in zip(files, intact, strict=True):
        start = start_of(path) if path.is_file() else b"a folder"
        if path.name == archive.name and not whole and (not start or start.lstrip()[:1] == b"<"):
            what = looks_like(start, ValueError())
            raise UserError(f"{path}: cannot be used ({what}); put the original file there, or delete it")
    scratch = writer.folder / "unpacked"
    _lay_out(source, files, scratch)
    for split, train in (("train", True), ("val", False)):
        try:
            x_NCHW, y_N = source.read(str(scratch), train)
        except Exception as error:  # torchvision, pickle and scipy raise many kinds for a broken file
            names = ", ".join(str(path) for _, path in files)
            raise UserError(
                f"data={data.name}: {names} cannot be read ({_reason(error)}); get the files again"
            ) from error
        _check(data, source, split, x_NCHW, y_N, files[0][1].parent)
        writer.pixels(split, x_NCHW.shape)[:] = x_NCHW
        writer.labels(split, y_N)
    shutil.rmtree(scratch)
    return Filled(source.classes, verified=source.checks_itself or all(intact))


def _lay_out(source: Source, files: list[tuple[Archive, Path]], scratch: Path) -> None:
    """The files as torchvision expects them: unpacked, or links to what is unpacked."""
    from torchvision.datasets.utils import extract_archive

    folder = scratch / source.below
    folder.mkdir(parents=True)
    for archive, path in files:
        if path.name == archive.name and archive.unpacked:
            try:
                extract_archive(str(path), str(folder))
            except Exception as error:  # gzip, tarfile and zlib raise their own
                raise UserError(
                    f"{path}: cannot be unpacked ({looks_like(path, error)}); get the file again"
                ) from error
        else:
            (folder / path.name).symlink_to(path.resolve())


def _check(data: DataConf, source: Source, split: str, x_NCHW: Any, y_N: Any, where: Path) -> None:
    """What a checksum would have caught, for files that have none.

    Raises:
        UserError: counts, sizes or labels are not those of this data set.
    """
    sides, classes = tuple(x_NCHW.shape[2:]), len(source.classes)
    problem = ""
    if len(x_NCHW) != len(y_N) or len(y_N) == 0:
        problem = f"{len(x_NCHW)} images and {len(y_N)} labels"
    elif sides != source.sides:
        problem = f"images of {sides[0]}x{sides[1]}, where {source.sides[0]}x{source.sides[1]} is due"
    elif y_N.min() < 0 or y_N.max() >= classes:
        problem = f"labels from {y_N.min()} to {y_N.max()}, where 0 to {classes - 1} are due"
    if problem:
        raise UserError(f"{where}: the {split} files of {data.name} have {problem}; get the files again")
