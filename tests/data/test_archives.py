"""MNIST's and CIFAR's own formats in small, and every way in which their files can be wrong."""

import gzip
import multiprocessing
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from torchvision import datasets
from torchvision.datasets import utils

from plainres.data import archives, load
from plainres.errors import UserError
from plainres.options import DataName

from files import idx, md5  # isort: skip


def test_mnist_files_in_the_folder_itself(conf_of, mnist_files, published):
    folder, arrays = mnist_files
    data = load(conf_of("mnist", root=str(folder)))
    x, y = arrays["train"]
    expected = (x[:, None].astype(np.float64) - x.mean()) / x.std()
    assert np.allclose(data.train.images.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert data.train.y_N.tolist() == y.tolist() and data.val.y_N.tolist() == arrays["t10k"][1].tolist()
    assert data.train.pixels_NCHW.dtype == torch.uint8 and data.content is None
    assert (data.num_classes, data.input_shape) == (10, (1, 28, 28))
    val = (arrays["t10k"][0][:, None].astype(np.float64) - x.mean()) / x.std()
    assert np.allclose(data.val.images.numpy(), val, rtol=1e-5, atol=1e-6), "normalised by training statistics"


def test_files_that_no_checksum_vouches_for_are_named_by_their_content(conf_of, mnist_files):
    """As Debian's Fashion-MNIST: the same images, packed anew."""
    folder, _ = mnist_files
    data = load(conf_of("mnist", root=str(folder)))
    assert data.content is not None
    again = folder.parent / "again"
    again.mkdir()
    for path in folder.iterdir():
        (again / path.name).write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=5))
    assert load(conf_of("mnist", root=str(again))).content == data.content


def test_torchvisions_layout_unpacked(conf_of, mnist_files):
    folder, arrays = mnist_files
    raw = folder.parent / "tv" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in folder.iterdir():
        (raw / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    data = load(conf_of("mnist", root=str(folder.parent / "tv")))
    assert data.train.y_N.tolist() == arrays["train"][1].tolist() and data.content is not None


def test_cifar_batches(conf_of, cifar):
    name, folder, arrays = cifar
    data = load(conf_of(name, root=str(folder)))
    x, y = arrays["train"]
    mean, std = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    assert np.allclose(data.train.images.numpy(), (x - mean) / std, rtol=1e-5, atol=1e-5)
    assert data.train.y_N.tolist() == y.tolist() and data.val.y_N.tolist() == arrays["test"][1].tolist()
    assert data.num_classes == int(name.removeprefix("cifar")) and data.content is None


def test_svhn_matrices(conf_of, tmp_path, monkeypatch, draw):
    folder, sums, made = tmp_path / "svhn", {}, {}
    folder.mkdir()
    for split, count in (("train", 20), ("test", 10)):
        x, y = draw.integers(0, 256, (32, 32, 3, count), np.uint8), np.arange(1, count + 1) % 10
        y[y == 0] = 10  # SVHN's own label of the digit 0
        path = folder / f"{split}_32x32.mat"
        scipy.io.savemat(path, {"X": x, "y": y[:, None].astype(np.uint8)})
        sums[split], made[split] = ["http://x", path.name, md5(path)], (x, y)
    monkeypatch.setattr(datasets.SVHN, "split_list", sums)
    data = load(conf_of("svhn", root=str(folder)))
    x, y = made["train"]
    assert torch.equal(data.train.pixels_NCHW, torch.from_numpy(x.transpose(3, 2, 0, 1).copy()))
    assert data.train.y_N.tolist() == (y % 10).tolist()


def fails(conf, *parts):
    with pytest.raises(UserError) as caught:
        load(conf)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in parts), message


def test_a_missing_file_is_named_with_the_remedy(conf_of, mnist_files):
    folder, _ = mnist_files
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    fails(conf_of("mnist", root=str(folder)), "data.root=", "t10k-labels-idx1-ubyte.gz is not there", "data.root=null")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><title>503 Service Unavailable</title>", "it is a web page"),
        (gzip.compress(b"x" * 5000, mtime=0)[:-20], "cannot be unpacked"),
        (b"\x1f\x8b nonsense", "cannot be unpacked"),
        (gzip.compress(b"x" * 50, mtime=0), "cannot be read"),
        (gzip.compress(idx(np.zeros((30, 27, 28))), mtime=0), "images of 27x28, where 28x28 is due"),
        (gzip.compress(idx(np.zeros((29, 28, 28))), mtime=0), "29 images and 30 labels"),
    ],
    ids=["empty", "web page", "cut", "no gzip", "no idx", "size", "count"],
)
def test_a_broken_file_gets_one_line(conf_of, mnist_files, content, words):
    folder, _ = mnist_files
    (folder / "train-images-idx3-ubyte.gz").write_bytes(content)
    fails(conf_of("mnist", root=str(folder)), "train", str(folder), words)
    assert not list((folder.parent / "cache").glob("mnist*/")), "nothing half-written stays"


def test_labels_out_of_range(conf_of, mnist_files):
    folder, _ = mnist_files
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(30) % 11)))
    fails(conf_of("mnist", root=str(folder)), "labels from 0 to 10, where 0 to 9 are due")


def test_a_broken_cifar_archive(conf_of, cifar):
    name, folder, _ = cifar
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(b"<html>503</html>")
    fails(conf_of(name, root=str(folder)), str(path), "web page")
    path.write_bytes(whole[: len(whole) // 2])
    fails(conf_of(name, root=str(folder)), str(path))


def test_cifar_with_one_changed_batch_is_refused(conf_of, cifar, monkeypatch):
    name, folder, _ = cifar
    kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    monkeypatch.setattr(kind, "test_list", [[n, "0" * 32] for n, _ in kind.test_list])
    fails(conf_of(name, root=str(folder)), "cannot be read", "get the files again")


def test_offline_the_remedy_is_named(conf_of, monkeypatch):
    def no_network(*args, **kwargs):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(utils, "_urlretrieve", no_network)
    fails(conf_of("cifar10"), "data=cifar10: cannot be downloaded", "cifar-10-python.tar.gz", "data.root=FOLDER")
    fails(conf_of("mnist"), "data=mnist: cannot be downloaded", "train-images-idx3-ubyte.gz")


def test_a_503_page_saved_by_a_download_is_recognised_and_removed(conf_of, monkeypatch, tmp_path):
    def page(url, path, chunk_size=0):
        Path(path).write_bytes(b"<html>503 Service Unavailable</html>")

    monkeypatch.setattr(utils, "_urlretrieve", page)
    monkeypatch.setattr(utils, "_get_redirect_url", lambda url, max_hops=3: url)
    fails(conf_of("svhn"), "data=svhn: cannot be downloaded", "web page")
    assert not list((tmp_path / "cache" / "downloads").glob("*.mat"))


def serve(folder, calls):
    """A download that copies from ``folder`` and notes that it was asked."""

    def retrieve(url, path, chunk_size=0):
        with calls.open("a") as log:
            log.write(f"{url}\n")
        Path(path).write_bytes((folder / url.rpartition("/")[2]).read_bytes())

    return retrieve


def _load_in_a_process(conf, folder, calls, resources, results):
    datasets.MNIST.resources = resources
    utils._urlretrieve = serve(folder, calls)
    utils._get_redirect_url = lambda url, max_hops=3: url
    results.put(load(conf).sha256)


def test_parallel_processes_download_once(conf_of, mnist_files, published, tmp_path):
    folder, _ = mnist_files
    context, calls = multiprocessing.get_context("fork"), tmp_path / "calls"
    results = context.Queue()
    args = (conf_of("mnist"), folder, calls, datasets.MNIST.resources, results)
    processes = [context.Process(target=_load_in_a_process, args=args) for _ in range(3)]
    for process in processes:
        process.start()
    found = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    assert len(calls.read_text().splitlines()) == 4, "each of the four files once"
    load(conf_of("mnist"))  # and now from the cache
    assert len(calls.read_text().splitlines()) == 4


def test_sources_are_those_of_torchvision():
    """Pinned: the published checksums, so that a typing error in torchvision's interface shows."""
    source = archives.source_of(DataName("fashion_mnist"))
    assert source.archives[0].name == "train-images-idx3-ubyte.gz" and len(source.classes) == 10
    assert archives.source_of(DataName("cifar10")).archives[0].md5 == "c58f30108f718f92721af3b95e74349a"
    assert len(archives.source_of(DataName("cifar100")).classes) == 100
    assert {a.name for a in archives.source_of(DataName("svhn")).archives} == {"train_32x32.mat", "test_32x32.mat"}
