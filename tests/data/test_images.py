"""Image folders: what is found, how it is decoded and kept, what is refused."""

import multiprocessing
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from plainres.data import dataset, images, load
from plainres.data.cache import channel_statistics
from plainres.data.dataset import with_content
from plainres.data.tree import Tree
from plainres.errors import UserError
from plainres.options import Residence

from files import zipped  # isort: skip


def test_a_folder_of_classes_with_its_own_split(conf_of, image_tree):
    root, pixels = image_tree
    data = load(conf_of("image_folder", root=str(root)))
    train = sorted(n for n in pixels if n.startswith("train"))
    assert np.array_equal(data.train.pixels_NCHW.numpy(), np.stack([pixels[n] for n in train]))
    assert data.train.y_N.tolist() == [0] * 5 + [1] * 5 and data.val.y_N.tolist() == [0, 0, 1, 1]
    assert (data.num_classes, data.input_shape) == (2, (3, 6, 5))
    x = np.stack([pixels[n] for n in train]).astype(np.float64)
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    assert np.allclose(data.train.images.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prefix", ["", "dataset/"])
def test_a_zip_of_it_is_the_same_data(conf_of, image_tree, tmp_path, prefix):
    root, _ = image_tree
    folder = load(conf_of("image_folder", root=str(root)))
    archive = load(conf_of("image_folder", root=str(zipped(root, tmp_path / "x.zip", prefix))))
    assert (folder.content, folder.sha256) == (archive.content, archive.sha256)
    assert folder.content is not None, "no published checksum vouches for a user's images"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99, 0.01])
def test_classes_alone_are_split_stratified_and_always_the_same(conf_of, image_tree, share):
    root, pixels = image_tree
    made = conf_of("image_folder", root=str(root / "train"), val_share=share)
    data = load(made)
    each = min(max(1, round(share * 5)), 4)
    assert torch.bincount(data.val.y_N).tolist() == [each, each]
    together = np.concatenate([data.train.pixels_NCHW, data.val.pixels_NCHW])
    assert sorted(x.tobytes() for x in together) == sorted(pixels[n].tobytes() for n in pixels if "train" in n)
    dataset._last = None
    shutil.rmtree(made.cache_dir)
    assert load(made).sha256 == data.sha256


def count_decodes(monkeypatch):
    calls = []
    real = images.decode

    def counting(tree, entry, *rest):
        calls.append(entry.name)
        return real(tree, entry, *rest)

    monkeypatch.setattr(images, "decode", counting)
    return calls


def test_decoded_once_and_again_when_an_image_changes(conf_of, image_tree, monkeypatch):
    root, _ = image_tree
    calls, made = count_decodes(monkeypatch), conf_of("image_folder", root=str(root))
    first = load(made)
    assert set(calls) >= {"train/cat/0.png", "test/dog/1.png"}
    calls.clear()
    dataset._last = None
    assert load(made).sha256 == first.sha256 and not calls
    Image.fromarray(np.zeros((6, 5, 3), np.uint8)).save(root / "train" / "cat" / "0.png")
    dataset._last = None
    assert load(made).content != first.content and calls
    calls.clear()
    os.utime(root / "train" / "cat" / "1.png", ns=(1, 1))  # touched, not changed: decoded again, the same content
    before, dataset._last = load(made).content, None
    assert load(made).content == before and calls


def test_the_content_is_part_of_a_runs_identity(conf_of, image_tree, set_values):
    from plainres.pair import make_spec

    root, _ = image_tree
    conf = replace(set_values({}), data=with_content(conf_of("image_folder", root=str(root))))
    Image.fromarray(np.ones((6, 5, 3), np.uint8)).save(root / "test" / "dog" / "0.png")
    dataset._last = None
    other = replace(conf, data=with_content(conf_of("image_folder", root=str(root))))
    moved = replace(conf, data=replace(conf.data, root="/elsewhere", cache_dir=None))
    ids = [make_spec(c, "cpu").run_id for c in (conf, other, moved)]
    assert ids[0] != ids[1] and ids[0] == ids[2]
    with pytest.raises(UserError, match="its images are not those that the run began with"):
        load(conf.data)


def test_images_are_resized_by_the_short_side_and_cut_at_the_centre(conf_of, image_tree):
    root, _ = image_tree
    wide = Image.fromarray(np.tile(np.arange(24, dtype=np.uint8)[None, :, None] * 10, (8, 1, 3)))
    wide.save(root / "train" / "cat" / "0.png")
    data = load(conf_of("image_folder", root=str(root), size=4))
    assert data.input_shape == (3, 4, 4)
    expected = np.asarray(wide.resize((12, 4), Image.Resampling.BILINEAR).crop((4, 0, 8, 4))).transpose(2, 0, 1)
    assert np.array_equal(data.train.pixels_NCHW[0], expected)


def test_grey_images_have_one_channel(conf_of, tmp_path, draw):
    grey = {}
    for label in "ab":
        (tmp_path / "g" / label).mkdir(parents=True)
        for i in range(3):
            grey[label, i] = draw.integers(0, 256, (4, 4), np.uint8)
            Image.fromarray(grey[label, i]).save(tmp_path / "g" / label / f"{i}.png")
    data = load(conf_of("image_folder", root=str(tmp_path / "g"), val_share=0.3))
    assert data.input_shape == (1, 4, 4)
    found = sorted(x.tobytes() for x in np.concatenate([data.train.pixels_NCHW, data.val.pixels_NCHW]))
    assert found == sorted(x.tobytes() for x in grey.values())


def test_other_files_are_passed_over(conf_of, image_tree):
    root, _ = image_tree
    before = load(conf_of("image_folder", root=str(root))).content
    for name in (".DS_Store", "train/notes.txt", "train/cat/Thumbs.db", "train/cat/._0.png"):
        (root / name).write_text("x")
    dataset._last = None
    assert load(conf_of("image_folder", root=str(root))).content == before


def test_a_subset_normalises_by_itself(conf_of, image_tree):
    root, _ = image_tree
    data = load(conf_of("image_folder", root=str(root), subset=4))
    assert torch.bincount(data.train.y_N).tolist() == [2, 2]
    assert data.train.images.double().mean((0, 2, 3)).abs().max() < 1e-6
    assert (data.train.images.double().std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("crop", [None, 4])
@pytest.mark.parametrize("subset", [None, 6])
def test_where_pixels_live_changes_no_bit(conf_of, image_tree, crop, subset):
    """What streams from disk, what is moved, and what is a copy in memory give equal batches."""
    root, _ = image_tree
    data = load(conf_of("image_folder", root=str(root), crop=crop, subset=subset))
    index = torch.tensor([3, 0, 5])
    expected = data.train.clean(index)
    copied = replace(data.train, pixels_NCHW=data.train.pixels_NCHW.clone())
    wanted_all = (*expected, *data.train.take(index))
    for split in (copied, *(data.to("cpu", r).train for r in Residence)):
        for found, wanted in zip((*split.clean(index), *split.take(index)), wanted_all, strict=True):
            assert torch.equal(found, wanted)


def test_channel_statistics_are_numpys(draw):
    x = draw.integers(0, 256, (50, 3, 9, 4), np.uint8)
    x[:, 2] = 7
    rows = np.array([4, 5, 40])
    for kept, chosen in ((x, None), (x[rows], rows)):
        mean, std = channel_statistics(x, chosen)
        assert np.allclose(mean, kept.mean((0, 2, 3)), rtol=1e-12)
        assert np.allclose(std[:2], kept.std((0, 2, 3))[:2], rtol=1e-12)
        assert std[2] == 1.0, "a channel that never changes is not divided by 0"


def _load_in_a_process(made, results):
    results.put(load(made).sha256)


def test_processes_that_start_together_decode_once(conf_of, image_tree):
    root, _ = image_tree
    context, made = multiprocessing.get_context("fork"), conf_of("image_folder", root=str(root))
    results = context.Queue()
    processes = [context.Process(target=_load_in_a_process, args=(made, results)) for _ in range(3)]
    for process in processes:
        process.start()
    assert len({results.get(timeout=60) for _ in processes}) == 1
    for process in processes:
        process.join()


def fails(made, *parts):
    with pytest.raises(UserError) as caught:
        load(made)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in parts), message


def test_mistakes_get_one_line_each(conf_of, image_tree, tmp_path):
    root, _ = image_tree
    made = conf_of("image_folder", root=str(root))
    fails(conf_of("image_folder"), "data.root=null", "give data.root=PATH")
    fails(conf_of("image_folder", root=str(tmp_path / "no")), "data.root=", "no such folder or zip")
    (tmp_path / "bad.zip").write_bytes(b"<html>503</html>")
    fails(conf_of("image_folder", root=str(tmp_path / "bad.zip")), "cannot be read as a zip", "web page")
    (tmp_path / "none").mkdir()
    fails(conf_of("image_folder", root=str(tmp_path / "none")), "no image in there", ".png")
    fails(replace(made, crop=7), "data.crop=7: larger than the images, 6x5")
    fails(replace(made, subset=99), "data.subset=99", "to 10")
    assert not list((tmp_path / "cache").glob("*.part"))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "it is empty"), (b"<html>503</html>", "web page"), (b"\x89PNG\r\n\x1a\nnonsense", "cannot be read")],
)
def test_a_file_that_is_no_image(conf_of, image_tree, content, words):
    root, _ = image_tree
    (root / "train" / "dog" / "3.png").write_bytes(content)
    fails(conf_of("image_folder", root=str(root)), "train/dog/3.png: cannot be read as an image", words)


def test_a_truncated_image(conf_of, image_tree):
    root, _ = image_tree
    path = root / "train" / "dog" / "3.png"
    path.write_bytes(path.read_bytes()[:-30])
    fails(conf_of("image_folder", root=str(root)), "train/dog/3.png: cannot be read as an image")


def test_another_size(conf_of, image_tree):
    root, _ = image_tree
    Image.fromarray(np.zeros((7, 5, 3), np.uint8)).save(root / "test" / "dog" / "0.png")
    fails(conf_of("image_folder", root=str(root)), "test/dog/0.png: is 7x5", "is 6x5", "data.size")


def test_classes_that_are_empty_or_in_one_split_only(conf_of, image_tree, tmp_path):
    root, _ = image_tree
    made = conf_of("image_folder", root=str(root))
    (root / "train" / "bird").mkdir()
    fails(made, "train/bird: a class without images")
    fails(conf_of("image_folder", root=str(zipped(root, tmp_path / "x.zip"))), "train/bird: a class without images")
    shutil.copytree(root / "train" / "cat", root / "train" / "bird", dirs_exist_ok=True)
    fails(made, "class bird is in only one of train/ and test/")
    shutil.rmtree(root / "test")
    fails(made, "has train/ but none of val/, valid/, validation/, test/")
    single = conf_of("image_folder", root=str(root / "train"))
    shutil.rmtree(root / "train" / "bird")
    (root / "train" / "loose.png").write_bytes((root / "train" / "cat" / "0.png").read_bytes())
    fails(single, "loose.png: lies in no class's folder")
    (root / "train" / "loose.png").unlink()
    shutil.rmtree(root / "train" / "dog")
    fails(single, "has one class only")
    (root / "train" / "dog").mkdir()
    (root / "train" / "dog" / "0.png").write_bytes((root / "train" / "cat" / "0.png").read_bytes())
    fails(single, "dog: a single image cannot be split")


def test_a_broken_copy_in_the_cache_is_named(conf_of, image_tree, tmp_path):
    made = conf_of("image_folder", root=str(image_tree[0]))
    load(made)
    (folder,) = (f for f in (tmp_path / "cache").iterdir() if f.is_dir())
    (folder / "train_x.npy").write_bytes((folder / "train_x.npy").read_bytes()[:200])
    dataset._last = None
    fails(made, str(folder), "delete the folder")


def test_a_killed_decoder_leaves_nothing_in_the_way(conf_of, image_tree, tmp_path, monkeypatch):
    made = conf_of("image_folder", root=str(image_tree[0]))

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(images, "_decode_piece", killed)
        with pytest.raises(KeyboardInterrupt):
            load(made)
    assert not [f for f in (tmp_path / "cache").iterdir() if f.is_dir()]
    tree = Tree(image_tree[0])
    assert load(made).num_train == 10 and tree.key()


def test_imagenet_is_cut_to_its_window(conf_of, image_tree):
    root, _ = image_tree
    data = load(conf_of("imagenet", root=str(root), size=8, crop=6))
    assert data.input_shape == (3, 6, 6) and data.train.pixels_NCHW.shape == (10, 3, 8, 8)
    assert torch.equal(data.train.images, data.train.take(slice(None))[0][:, :, 1:7, 1:7])


def test_imagenet_archives_that_are_not_whole(conf_of, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ILSVRC2012_img_train.tar").write_bytes(b"x")
    fails(conf_of("imagenet", root=str(tmp_path / "in")), "ILSVRC2012_img_train.tar", "put")
