"""Small data sets in the files' real formats."""

import gzip
import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from plainres.data import dataset
from plainres.options import DataName
from plainres.schema import DataConf

from files import idx, md5  # isort: skip


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No data set is kept from one test to the next."""
    monkeypatch.setattr(dataset, "_last", None)


@pytest.fixture
def conf_of(tmp_path):
    """conf_of("cifar10", root=PATH): settings whose cache is the test's own."""
    return lambda name, **values: DataConf(name=DataName(name), cache_dir=str(tmp_path / "cache"), **values)


@pytest.fixture
def draw():
    return np.random.default_rng(0)


@pytest.fixture
def mnist_files(tmp_path, draw):
    """A folder with MNIST's four files as published (gzip), 30 + 10 images; and what is in them."""
    folder, arrays = tmp_path / "mnist", {}
    folder.mkdir()
    for split, count in (("train", 30), ("t10k", 10)):
        x, y = draw.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count) % 10
        arrays[split] = x, y
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x), mtime=0))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y), mtime=0))
    return folder, arrays


@pytest.fixture
def published(monkeypatch, mnist_files):
    """The checksums of ``mnist_files`` are the published ones."""
    folder, _ = mnist_files
    sums = [(name, md5(folder / name)) for name, _ in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", sums)


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request, monkeypatch, tmp_path, draw):
    """(name, folder with the tar.gz, training and test arrays) with the class's checksums set to it."""
    kind = datasets.CIFAR10 if request.param == "cifar10" else datasets.CIFAR100
    classes, key = (10, "labels") if request.param == "cifar10" else (100, "fine_labels")
    made, sums, arrays = {}, {}, {"train": [], "test": []}
    for name, _ in [*kind.train_list, *kind.test_list]:
        x, y = draw.integers(0, 256, (classes, 3072), np.uint8), np.arange(classes)
        arrays["test" if name.startswith("test") else "train"].append((x.reshape(-1, 3, 32, 32), y))
        made[name] = pickle.dumps({"data": x, key: y.tolist()})
    meta = "label_names" if classes == 10 else "fine_label_names"
    made[kind.meta["filename"]] = pickle.dumps({meta: [str(i) for i in range(classes)]})
    sums = {name: hashlib.md5(data, usedforsecurity=False).hexdigest() for name, data in made.items()}
    folder = tmp_path / "cifar"
    folder.mkdir()
    with tarfile.open(folder / kind.filename, "w:gz") as archive:
        for name, data in made.items():
            info = tarfile.TarInfo(f"{kind.base_folder}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    monkeypatch.setattr(kind, "train_list", [[name, sums[name]] for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [[name, sums[name]] for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": sums[kind.meta["filename"]]})
    monkeypatch.setattr(kind, "tgz_md5", md5(folder / kind.filename))
    joined = {s: tuple(np.concatenate(part) for part in zip(*found, strict=True)) for s, found in arrays.items()}
    return request.param, folder, joined


@pytest.fixture
def image_tree(tmp_path, draw):
    """train/ and test/ with two classes of 6x5 PNG images each; and their pixels by name."""
    root, pixels = tmp_path / "images", {}
    for split, count in (("train", 5), ("test", 2)):
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for i in range(count):
                x = draw.integers(0, 256, (6, 5, 3), np.uint8)
                name = f"{split}/{label}/{i}.png"
                Image.fromarray(x).save(root / name)
                pixels[name] = x.transpose(2, 0, 1)
    return root, pixels
