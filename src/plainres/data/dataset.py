"""A data set as runs use it: two splits, chosen and labelled as the settings say.

Shape suffixes: N examples, C channels, H height, W width.
"""

import hashlib
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch

from plainres.data.cache import Stored, channel_statistics
from plainres.data.labels import noisy_labels, random_labels, stratified_subset
from plainres.data.split import Split
from plainres.errors import UserError
from plainres.options import DataName, Residence
from plainres.schema import DataConf

Floats = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
IN_MEMORY = (DataName.digits, DataName.mnist1d, DataName.synthetic)  # packaged or generated: no files
DEVICE_SHARE = 0.5  # of free device memory that pixels may take; the network needs the rest


@dataclass(frozen=True)
class Dataset:
    """Training and validation examples.

    Attributes:
        train, val: the splits.
        num_classes: number of classes.
        sha256: hash of everything that training and evaluation see.
        content: hash of the files where no published checksum vouches for them, else None.
        num_noisy: training labels that were replaced.
    """

    train: Split
    val: Split
    num_classes: int
    sha256: str
    content: str | None = None
    num_noisy: int = 0

    @property
    def num_train(self) -> int:
        return len(self.train)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return self.train.shape

    @property
    def chance_error(self) -> float:
        """1 − share of the largest class: the training error of the best constant answer (a fraction)."""
        return 1 - torch.bincount(self.train.y_N).max().item() / self.num_train

    def to(self, device: str, residence: Residence = Residence.auto) -> "Dataset":
        """Batches come out on ``device``. Pixels move there, or stay mapped from disk, as ``residence`` says."""
        train, val = (split.to(device, _moves(split, device, residence)) for split in (self.train, self.val))
        return replace(self, train=train, val=val)

    def describe(self) -> dict[str, Any]:
        """What run.json keeps of the data."""
        return {
            "num_train": self.num_train,
            "num_val": len(self.val),
            "num_classes": self.num_classes,
            "num_noisy": self.num_noisy,
            "input_shape": list(self.input_shape),
            "chance_error": self.chance_error,
            "sha256": self.sha256,
        }


def _moves(split: Split, device: str, residence: Residence) -> bool:
    if residence is not Residence.auto:
        return residence is Residence.device
    if not device.startswith("cuda"):  # the system keeps a mapped file in memory, once for all processes
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return split.pixels_NCHW.nbytes <= DEVICE_SHARE * free


def make_dataset(
    train_x_NCHW: torch.Tensor, train_y_N: torch.Tensor, val_x_NCHW: torch.Tensor, val_y_N: torch.Tensor
) -> Dataset:
    """Normalise each channel by mean and standard deviation over the training set, and hash the result."""
    dims = (0, 2, 3)
    mean = train_x_NCHW.double().mean(dims, keepdim=True)
    std = train_x_NCHW.double().std(dims, correction=0, keepdim=True)
    train, val = (((x.double() - mean) / std).float().contiguous() for x in (train_x_NCHW, val_x_NCHW))
    digest = hashlib.sha256()
    for tensor in (train, train_y_N, val, val_y_N):
        digest.update(tensor.numpy().tobytes())
    num_classes = int(train_y_N.max()) + 1
    return Dataset(Split(train, train_y_N), Split(val, val_y_N), num_classes, digest.hexdigest()[:16])


def _from_floats(data: DataConf, make: Callable[[], Floats]) -> Dataset:
    """A generated or packaged data set, which fits into memory."""
    train_x, train_y, val_x, val_y = make()
    num_classes = int(train_y.max()) + 1
    rows, labels = _chosen(data, train_y, num_classes)
    _check_crop(data, train_x.shape[2:])
    dataset = make_dataset(train_x if rows is None else train_x[rows], labels, val_x, val_y)
    clean = train_y if rows is None else train_y[rows]
    return replace(
        dataset,
        train=replace(dataset.train, crop=data.crop),
        val=replace(dataset.val, crop=data.crop),
        num_classes=num_classes,
        num_noisy=int((labels != clean).sum()),
    )


def _from_stored(data: DataConf, found: Stored) -> Dataset:
    """Images that stay one byte a channel, mapped from the cache."""
    num_classes = len(found.classes)
    clean = torch.from_numpy(found.train_y_N)
    rows, labels = _chosen(data, clean, num_classes)
    mean, std = (found.mean_C, found.std_C) if rows is None else channel_statistics(found.train_x_NCHW, rows.numpy())
    _check_crop(data, found.train_x_NCHW.shape[2:])
    shared: dict[str, Any] = {
        "mean_C": torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1),
        "std_C": torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1),
        "crop": data.crop,
    }
    digest = hashlib.sha256(f"{found.content}/{mean}/{std}/{data.crop}".encode())
    digest.update(labels.numpy().tobytes() + (b"" if rows is None else rows.numpy().tobytes()))
    return Dataset(
        train=Split(torch.from_numpy(found.train_x_NCHW), labels, rows, **shared),
        val=Split(torch.from_numpy(found.val_x_NCHW), torch.from_numpy(found.val_y_N), None, **shared),
        num_classes=num_classes,
        sha256=digest.hexdigest()[:16],
        content=None if found.verified else found.content,
        num_noisy=int((labels != (clean if rows is None else clean[rows])).sum()),
    )


def _check_crop(data: DataConf, sides: tuple[int, ...]) -> None:
    if data.crop is not None and data.crop > min(sides):
        raise UserError(f"data.crop={data.crop}: larger than the images, {sides[0]}x{sides[1]}; choose a smaller one")


def _chosen(data: DataConf, y_N: torch.Tensor, num_classes: int) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The training rows that ``data.subset`` keeps (None: all), and their labels after noise."""
    rows = None if data.subset is None else stratified_subset(y_N, data.subset, num_classes, data.seed)
    kept = y_N if rows is None else y_N[rows]
    if data.random_labels:
        return rows, random_labels(kept, num_classes, data.seed)
    if data.label_noise:
        return rows, noisy_labels(kept, data.label_noise, num_classes, data.seed)
    return rows, kept


_last: tuple[tuple[Any, ...], Dataset] | None = None


def load(data: DataConf) -> Dataset:
    """The data set of these settings, on the CPU; kept for the next run of the same process.

    Raises:
        UserError: it cannot be had, or is not the one that the sweep was checked with.
    """
    global _last
    key = astuple(replace(data, content=None))
    if _last is None or _last[0] != key:
        _last = (key, _load(data))
    dataset = _last[1]
    if data.content is not None and data.content != dataset.content:
        raise UserError(
            f"data.root={data.root}: its images are not those that the run began with; begin a new study=NAME"
        )
    return dataset


def _load(data: DataConf) -> Dataset:
    # Imported only where needed: each of these takes up to a second.
    if data.name is DataName.digits:
        from plainres.data.digits import load_digits

        return _from_floats(data, load_digits)
    if data.name is DataName.mnist1d:
        from plainres.data.mnist1d import load_mnist1d

        return _from_floats(data, load_mnist1d)
    if data.name is DataName.synthetic:
        from plainres.data.synthetic import load_synthetic

        return _from_floats(data, lambda: load_synthetic(data))
    if data.name in (DataName.image_folder, DataName.imagenet):
        from plainres.data.images import load_images

        return _from_stored(data, load_images(data))
    from plainres.data.archives import load_archives

    return _from_stored(data, load_archives(data))


def with_content(data: DataConf) -> DataConf:
    """The settings with the hash of the files, where it is what identifies them."""
    if data.name in IN_MEMORY:
        return data
    return replace(data, content=load(data).content)
