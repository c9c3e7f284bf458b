import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as load_raw

from plainres.data import load
from plainres.data.batches import Batches
from plainres.data.dataset import make_dataset
from plainres.data.digits import load_digits
from plainres.errors import UserError
from plainres.schema import DataConf
from plainres.seeding import epoch_order


@pytest.fixture(scope="module")
def digits():
    return load(DataConf())


def test_sizes_types_and_classes(digits):
    assert digits.train.images.shape == (1437, 1, 8, 8) and digits.val.images.shape == (360, 1, 8, 8)
    assert digits.train.images.dtype == digits.val.images.dtype == torch.float32
    assert digits.train.y_N.dtype == digits.val.y_N.dtype == torch.int64
    assert (digits.num_train, digits.num_classes, digits.input_shape) == (1437, 10, (1, 8, 8))


def test_split_is_stratified_and_a_partition(digits):
    raw = load_raw()
    counts = np.bincount(raw.target)
    expected = counts * 360 / 1797
    assert np.abs(torch.bincount(digits.val.y_N).numpy() - expected).max() < 1
    train_x, train_y, val_x, val_y = load_digits()
    mine = torch.cat([torch.cat([train_x, val_x]).flatten(1), torch.cat([train_y, val_y])[:, None]], 1).int().tolist()
    theirs = np.concatenate([raw.data, raw.target[:, None]], 1).astype(int).tolist()
    assert sorted(mine) == sorted(theirs)


def test_the_training_set_is_standardised_and_validation_takes_its_statistics(digits):
    train_x, _, val_x, _ = (t.double().numpy() for t in load_digits())
    expected = (val_x - train_x.mean()) / train_x.std()
    assert np.allclose(digits.val.images.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert digits.train.images.double().mean().abs() < 1e-6
    assert abs(digits.train.images.double().std(correction=0) - 1) < 1e-6
    assert abs(digits.val.images.double().mean()) > 1e-4


def test_each_channel_is_standardised_alone():
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(30, 2, 3, 3, generator=draw) * torch.tensor([5.0, 0.1])[:, None, None] + 7
    made = make_dataset(x[:20], torch.zeros(20).long(), x[20:], torch.zeros(10).long())
    for c in range(2):
        channel = x[:20, c].double().numpy()
        assert np.allclose(
            made.train.images[:, c], (x[:20, c].double().numpy() - channel.mean()) / channel.std(), atol=1e-5
        )
        assert np.allclose(
            made.val.images[:, c], (x[20:, c].double().numpy() - channel.mean()) / channel.std(), atol=1e-5
        )


def test_the_hash_covers_all_tensors_and_is_pinned(digits):
    pieces = (digits.train.images, digits.train.y_N, digits.val.images, digits.val.y_N)
    assert digits.sha256 == hashlib.sha256(b"".join(t.numpy().tobytes() for t in pieces)).hexdigest()[:16]
    assert digits.sha256 == "b6be2810ccf76a0d", "other bits of data: no stored run can be compared with a new one"


def test_chance_and_description(digits):
    largest = np.bincount(digits.train.y_N.numpy()).max()
    assert digits.chance_error == 1 - largest / 1437
    assert digits.describe() == {
        "num_train": 1437, "num_val": 360, "num_classes": 10, "num_noisy": 0, "input_shape": [1, 8, 8],
        "chance_error": digits.chance_error, "sha256": digits.sha256,
    }  # fmt: skip
    assert digits.to("cpu").sha256 == digits.sha256


def test_batches_cut_the_epochs_and_drop_the_short_last_one():
    batches = Batches(seed=5, num_examples=23, batch=5)
    assert batches.per_epoch == 4
    for epoch in range(3):
        taken = torch.cat([batches.indices(epoch * 4 + i) for i in range(4)])
        assert torch.equal(taken, epoch_order(5, epoch, 23)[:20])


def test_batches_do_not_depend_on_what_was_asked_before():
    batches = Batches(seed=5, num_examples=23, batch=5)
    for step in (9, 2, 2, 8, 0):
        assert torch.equal(batches.indices(step), Batches(5, 23, 5).indices(step))


def test_a_batch_of_all_examples_is_allowed_and_a_larger_one_refused():
    assert Batches(0, 7, 7).indices(3).sort().values.tolist() == list(range(7))
    with pytest.raises(UserError, match=r"^trainer.batch=8: larger than the 7 training examples"):
        Batches(0, 7, 8)


@pytest.mark.parametrize("other", [(1, 23, 5, 9), (0, 24, 5, 9), (0, 23, 4, 9), (0, 23, 5, 10)])
def test_digest_sees_seed_data_batch_and_budget(other):
    seed, num_examples, batch, steps = other
    assert Batches(seed, num_examples, batch).digest(steps) != Batches(0, 23, 5).digest(9)
    assert Batches(0, 23, 5).digest(9) == Batches(0, 23, 5).digest(9)


def test_digest_is_the_hash_of_the_index_sequence_up_to_its_cap():
    batches, expected = Batches(0, 23, 5), hashlib.sha256(b"23/5/9")
    for step in range(3):
        expected.update(batches.indices(step).numpy().tobytes())
    assert batches.digest(9, cap=14) == expected.hexdigest()[:16]
    assert batches.digest(9, cap=14) != batches.digest(9)
