"""The images of a folder of classes, or of a zip of one: which there are, of which class and split.

Layouts: ``train/CLASS/image`` beside ``val/``, ``valid/``, ``validation/`` or ``test/CLASS/image``; or ``CLASS/image``
alone, of which ``data.val_share`` of every class validates. Images may lie in folders below a class's.
"""

import hashlib
import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from plainres.errors import UserError
from plainres.seeding import generator

EXTENSIONS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
TRAIN = "train"
VALIDATION = ("val", "valid", "validation", "test")


@dataclass(frozen=True)
class Entry:
    """One image: its path below the root, and what tells that it has changed (size and mtime, or checksum)."""

    name: str
    stamp: str


class Tree:
    """A folder or a zip, read the same way."""

    def __init__(self, root: Path) -> None:
        """
        Raises:
            UserError: there is no such folder or file.
        """
        self.root = root
        self._zip: zipfile.ZipFile | None = None
        if not root.exists():
            raise UserError(f"data.root={root}: there is no such folder or zip; give the one that holds the images")

    @cached_property
    def _listed(self) -> tuple[set[str], list[Entry]]:
        """Folders and images, by name."""
        if self.root.is_file():
            try:
                self._zip = zipfile.ZipFile(self.root)
            except (zipfile.BadZipFile, OSError) as error:
                what = looks_like(self.root, error)
                raise UserError(f"data.root={self.root}: cannot be read as a zip ({what})") from error
        folders, entries = self._listed_zip(self._zip) if self._zip else self._listed_folder()
        if not entries:
            kinds = " ".join(sorted(EXTENSIONS))
            raise UserError(f"data.root={self.root}: no image in there ({kinds}); give a folder of one folder a class")
        return folders, sorted(entries, key=lambda e: e.name)

    def _listed_zip(self, archive: zipfile.ZipFile) -> tuple[set[str], list[Entry]]:
        folders, entries = set(), []
        for info in archive.infolist():
            name = info.filename
            if info.is_dir():
                folders.add(name.rstrip("/"))
            elif _is_image(name) and not name.startswith("__MACOSX/"):
                entries.append(Entry(name, f"{info.file_size}/{info.CRC:08x}"))
        return folders, entries

    def _listed_folder(self) -> tuple[set[str], list[Entry]]:
        folders, entries = set(), []
        for directory, names, files in os.walk(self.root, followlinks=True):
            names[:] = [n for n in names if not n.startswith(".")]
            below = os.path.relpath(directory, self.root)
            prefix = "" if below == "." else f"{below}/"
            folders.add(prefix.rstrip("/"))
            for name in filter(_is_image, files):
                stat = os.stat(f"{directory}/{name}")  # noqa: PTH116 - a Path for each of a million files costs seconds
                entries.append(Entry(f"{prefix}{name}", f"{stat.st_size}/{stat.st_mtime_ns}"))
        return folders - {""}, entries

    def key(self) -> str:
        """Changes when an image is added, removed, renamed or rewritten; of a zip, when the zip is."""
        if self.root.is_file():
            stat = self.root.stat()
            return f"{self.root.name}/{stat.st_size}/{stat.st_mtime_ns}"
        digest = hashlib.sha256()
        for entry in self._listed[1]:
            digest.update(f"{entry.name}\0{entry.stamp}\n".encode())
        return digest.hexdigest()

    def read(self, entry: Entry) -> bytes:
        """The file's bytes. Threads may read at once."""
        return self._zip.read(entry.name) if self._zip else (self.root / entry.name).read_bytes()

    def close(self) -> None:
        """Let go of the zip."""
        if self._zip:
            self._zip.close()

    def splits(self, val_share: float) -> tuple[list[str], dict[str, list[tuple[Entry, int]]]]:
        """Class names, and the images of ``train`` and ``val`` with their labels, by class and name.

        Raises:
            UserError: a class without images, or the splits have different classes.
        """
        prefix = self._common_folder()
        paths = {entry: entry.name.removeprefix(prefix).split("/") for entry in self._listed[1]}
        tops = {parts[0] for parts in paths.values() if len(parts) > 2}
        val = next((name for name in VALIDATION if name in tops), None)
        own_split = TRAIN in tops and val is not None
        if TRAIN in tops and val is None:
            raise UserError(
                f"data.root={self.root}: has train/ but none of {'/, '.join(VALIDATION)}/; add one, or give "
                f"{self.root / TRAIN} to split off data.val_share of it"
            )
        keep = {TRAIN, val} if own_split else None
        by_class: dict[str, dict[str, list[Entry]]] = {TRAIN: {}, "val": {}}
        for entry, parts in paths.items():
            if keep is not None and parts[0] not in keep:
                continue
            if len(parts) < (3 if own_split else 2):
                raise UserError(f"{self.root}/{entry.name}: lies in no class's folder; move it into one, or away")
            split = "val" if own_split and parts[0] == val else TRAIN
            by_class[split].setdefault(parts[1 if own_split else 0], []).append(entry)
        self._check_classes(by_class, val if own_split else None, prefix)
        classes = sorted(by_class[TRAIN])
        if not own_split:
            by_class = _split_off(self.root, by_class[TRAIN], val_share)
        return classes, {
            split: [(entry, label) for label, name in enumerate(classes) for entry in found[name]]
            for split, found in by_class.items()
        }

    def _common_folder(self) -> str:
        """A zip is often one folder that holds the rest; its name with a slash, or nothing."""
        firsts = {e.name.split("/")[0] for e in self._listed[1]}
        (first,) = firsts if len(firsts) == 1 else ("",)
        deep = all(e.name.count("/") > 1 for e in self._listed[1])
        return f"{first}/" if first and deep and first != TRAIN else ""

    def _check_classes(self, by_class: dict[str, dict[str, list[Entry]]], val: str | None, prefix: str) -> None:
        depth = 1 if val else 0
        for folder in sorted(f.removeprefix(prefix) for f in self._listed[0] if f"{f}/" != prefix):
            parts = folder.split("/")
            if len(parts) != depth + 1 or (val and parts[0] not in (TRAIN, val)):
                continue
            split = "val" if val and parts[0] == val else TRAIN
            if parts[depth] not in by_class[split]:
                raise UserError(f"{self.root}/{prefix}{folder}: a class without images; add some, or remove it")
        if val and set(by_class[TRAIN]) != set(by_class["val"]):
            odd = sorted(set(by_class[TRAIN]) ^ set(by_class["val"]))
            raise UserError(
                f"data.root={self.root}: class {odd[0]} is in only one of train/ and {val}/; give it to both"
            )
        if len(by_class[TRAIN]) < 2:
            raise UserError(f"data.root={self.root}: has one class only; give a folder with two classes or more")


def _split_off(root: Path, found: dict[str, list[Entry]], share: float) -> dict[str, dict[str, list[Entry]]]:
    """A fixed part of every class for validation, at least one image and never all."""
    split: dict[str, dict[str, list[Entry]]] = {TRAIN: {}, "val": {}}
    for name, entries in found.items():
        if len(entries) < 2:
            raise UserError(f"{root}/{name}: a single image cannot be split into training and validation; add more")
        count = min(max(1, round(share * len(entries))), len(entries) - 1)
        order = torch.randperm(len(entries), generator=generator(0, "validation split", name)).tolist()
        chosen = set(order[:count])
        split["val"][name] = [e for i, e in enumerate(entries) if i in chosen]
        split[TRAIN][name] = [e for i, e in enumerate(entries) if i not in chosen]
    return split


def _is_image(name: str) -> bool:
    file = name.rpartition("/")[2]
    return not file.startswith(".") and f".{file.rpartition('.')[2].lower()}" in EXTENSIONS


def start_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(64)


def looks_like(source: Path | bytes, error: Exception) -> str:
    """Why a file cannot be read, in words; a server's error page saved as data is the usual reason."""
    start = source if isinstance(source, bytes) else start_of(source)
    if not start:
        return "it is empty"
    if start.lstrip()[:1] == b"<":
        return "it is a web page, probably a server's error message; delete it and get the data again"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'unreadable'}"
