"""Subsets, noise and random labels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plainres.data import load
from plainres.data.labels import noisy_labels, random_labels, stratified_subset
from plainres.errors import UserError
from plainres.options import DataName
from plainres.schema import DataConf

Y = torch.cat([torch.full((n,), label) for label, n in enumerate((50, 30, 17, 3))])


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 100), st.integers(0, 3))
def test_a_subset_keeps_the_shares_of_the_classes(count, seed):
    rows = stratified_subset(Y, count, 4, seed)
    assert len(rows) == count == len(rows.unique()) and torch.equal(rows, rows.sort().values)
    sizes, taken = torch.bincount(Y), torch.bincount(Y[rows], minlength=4)
    exact = sizes * count / 100
    assert (taken >= 1).all() and (taken <= sizes).all()
    small = exact < 1  # one example is taken of a class that is due less
    assert ((taken - exact).abs()[~small] < 1 + small.sum()).all()


def test_smaller_subsets_lie_within_larger_ones_class_by_class():
    small, large = set(stratified_subset(Y, 20, 4, 0).tolist()), set(stratified_subset(Y, 60, 4, 0).tolist())
    assert small < large
    assert stratified_subset(Y, 20, 4, 1).tolist() != stratified_subset(Y, 20, 4, 0).tolist()


@pytest.mark.parametrize("count", [3, 101])
def test_a_subset_that_cannot_be_is_refused(count):
    with pytest.raises(UserError, match=rf"^data.subset={count}: must be from 4 \(one example a class\) to 100"):
        stratified_subset(Y, count, 4, 0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_noise_changes_exactly_its_share_to_other_classes(share):
    y = torch.arange(3000) % 5
    noisy = noisy_labels(y, share, 5, 0)
    assert (noisy != y).sum() == round(share * 3000)
    assert noisy.min() >= 0 and noisy.max() <= 4
    shifts = torch.bincount((noisy - y)[noisy != y] % 5, minlength=5)
    if share:
        assert shifts[0] == 0 and (shifts[1:] / shifts.sum() - 0.25).abs().max() < 0.1


def test_random_labels_say_nothing_and_are_named_by_their_seed():
    y = torch.arange(5000) % 5
    drawn = random_labels(y, 5, 0)
    assert (torch.bincount(drawn) / 5000 - 0.2).abs().max() < 0.03
    assert abs((drawn == y).double().mean().item() - 0.2) < 0.03
    assert torch.equal(drawn, random_labels(y, 5, 0)) and not torch.equal(drawn, random_labels(y, 5, 1))


def test_digits_with_fewer_and_noisy_labels(monkeypatch):
    whole = load(DataConf())
    fewer = load(DataConf(subset=200, label_noise=0.25))
    assert (fewer.num_train, fewer.num_noisy, len(fewer.val)) == (200, 50, len(whole.val))
    assert fewer.describe()["num_noisy"] == 50
    rows = stratified_subset(whole.train.y_N, 200, 10, 0)
    clean = whole.train.y_N[rows]
    assert (fewer.train.y_N != clean).sum() == 50
    assert torch.equal(fewer.val.y_N, whole.val.y_N), "validation labels are never touched"
    mean = fewer.train.images.double().mean()
    assert abs(mean) < 1e-6, "normalised by the statistics of what is trained on"
    assert len({whole.sha256, fewer.sha256, load(DataConf(subset=200)).sha256, load(DataConf(subset=201)).sha256}) == 4


def test_random_labels_in_a_data_set():
    whole, drawn = load(DataConf()), load(DataConf(random_labels=True))
    assert torch.equal(whole.train.images, drawn.train.images)
    assert drawn.num_noisy == (drawn.train.y_N != whole.train.y_N).sum() > 1200


@pytest.mark.parametrize("depth", [1, 3, 30])
def test_a_teacher_uses_all_classes_and_its_depth_matters(depth):
    data = load(DataConf(name=DataName.synthetic, teacher_depth=depth, examples=1000, classes=5))
    assert (data.num_train, len(data.val), data.input_shape, data.num_classes) == (1000, 250, (1, 8, 8), 5)
    shares = torch.bincount(data.train.y_N) / 1000
    assert shares.min() > 0.02 and shares.max() < 0.6
    other = load(DataConf(name=DataName.synthetic, teacher_depth=depth + 1, examples=1000, classes=5))
    assert (
        torch.equal(other.train.images, data.train.images) and (other.train.y_N != data.train.y_N).double().mean() > 0.2
    )


def test_a_teacher_of_one_layer_is_a_linear_rule():
    """Labels by hand in numpy: the weights drawn by name, outputs standardised, the largest one."""
    import numpy as np

    from plainres.data.synthetic import load_synthetic
    from plainres.seeding import generator

    train_x, train_y, val_x, val_y = load_synthetic(DataConf(name=DataName.synthetic, teacher_depth=1, size=3, seed=4))
    x = torch.cat([train_x, val_x]).flatten(1).double().numpy()
    w = torch.randn(10, 9, generator=generator(4, "synthetic", "teacher", 0), dtype=torch.float64).numpy()
    out = x @ w.T * np.sqrt(2 / 9)
    assert torch.cat([train_y, val_y]).tolist() == ((out - out.mean(0)) / out.std(0)).argmax(1).tolist()


def test_mnist1d_is_the_packages_data_and_moves_no_generator():
    import random

    import numpy as np

    random.seed(5)
    np.random.seed(6)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    data = load(DataConf(name=DataName.mnist1d))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert (data.num_train, len(data.val), data.input_shape, data.num_classes) == (4000, 1000, (1, 40, 1), 10)
    assert data.sha256 == "3b1ff426691605e8", "other bits of data: no stored run can be compared with a new one"
