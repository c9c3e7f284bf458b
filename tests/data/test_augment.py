"""Pad, crop and mirror against a loop over images, and what the draws depend on."""

import numpy as np
import pytest
import torch

from plainres.data.augment import Augmentation
from plainres.data.split import Split
from plainres.options import Augment
from plainres.schema import DataConf
from plainres.seeding import generator

N = 40


@pytest.fixture
def split():
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (N, 3, 7, 6), generator=draw, dtype=torch.uint8)
    return Split(
        pixels,
        torch.arange(N) % 3,
        mean_C=torch.tensor([100.0, 120.0, 140.0]).view(1, 3, 1, 1),
        std_C=torch.tensor([50.0, 60.0, 70.0]).view(1, 3, 1, 1),
    )


def by_hand(x_NCHW, index, epoch, kind, pad, crop, seed, sides):
    """One image after the other with numpy, from draws made anew."""
    height, width = (crop, crop) if crop else sides
    draw = generator(seed, "augmentation", epoch)
    top = torch.randint(sides[0] + 2 * pad - height + 1, (N,), generator=draw).tolist()
    left = torch.randint(sides[1] + 2 * pad - width + 1, (N,), generator=draw).tolist()
    flip = torch.randint(2, (N,), generator=draw).tolist()
    seen = []
    for x, i in zip(x_NCHW.numpy(), index.tolist(), strict=True):
        padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        window = padded[:, top[i] : top[i] + height, left[i] : left[i] + width]
        seen.append(window[:, :, ::-1] if kind is Augment.crop_flip and flip[i] else window)
    return torch.from_numpy(np.stack(seen))


@pytest.mark.parametrize("kind", [Augment.crop, Augment.crop_flip])
@pytest.mark.parametrize(("pad", "crop"), [(4, None), (0, None), (2, 5), (0, 4)])
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_image_is_the_window_that_a_loop_cuts(split, kind, pad, crop, epoch):
    augment = Augmentation(DataConf(augment=kind, pad=pad), Split(**(vars(split) | {"crop": crop})), seed=7)
    index = torch.randperm(N, generator=torch.Generator().manual_seed(2))[:17]
    x, _ = split.take(index)
    assert torch.equal(augment(x, index, epoch), by_hand(x, index, epoch, kind, pad, crop, 7, (7, 6)))


def test_the_batch_an_image_comes_in_does_not_matter(split):
    def make():
        return Augmentation(DataConf(augment=Augment.crop_flip), split, seed=0)

    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    whole = make()(split.take(order)[0], order, 2)
    augment = make()
    augment(split.take(order[:5])[0], order[:5], 1)  # another epoch before
    pieces = [augment(split.take(i)[0], i, 2) for i in order.split(7)]
    assert torch.equal(torch.cat(pieces), whole)


def test_epochs_and_seeds_differ_and_all_places_occur(split):
    augment = Augmentation(DataConf(augment=Augment.crop_flip, pad=1), split, seed=0)
    draws = torch.cat([augment.draws(epoch) for epoch in range(60)])
    assert draws.min(0).values.tolist() == [0, 0, 0] and draws.max(0).values.tolist() == [2, 2, 1]
    for column, places in zip(draws.unbind(1), (3, 3, 2), strict=True):
        shares = torch.bincount(column).double() / len(column)
        assert (shares - 1 / places).abs().max() < 0.04  # 2,400 draws: four standard errors
    assert not torch.equal(augment.draws(0), augment.draws(1))
    other = Augmentation(DataConf(augment=Augment.crop_flip, pad=1), split, seed=1)
    assert not torch.equal(augment.draws(0), other.draws(0))


def test_what_is_padded_is_the_mean_colour(split):
    """Zeros stand around the normalised image, so that the border says nothing."""
    augment = Augmentation(DataConf(augment=Augment.crop, pad=6), split, seed=0)
    index = torch.arange(N)
    corner = augment.draws(0)[:, 0] == 0  # the window begins in the border, and lies in it for six of its seven rows
    seen = augment(split.take(index)[0], index, 0)[corner]
    assert len(seen) and (seen[:, :, :6] == 0).all()


@pytest.mark.parametrize(("crop", "top", "left"), [(None, 0, 0), (4, 1, 1), (5, 1, 0)])
def test_without_augmentation_training_sees_what_evaluation_sees(split, crop, top, left):
    cropped = Split(**(vars(split) | {"crop": crop}))
    index = torch.arange(6)
    seen = Augmentation(DataConf(), cropped, seed=0)(split.take(index)[0], index, 0)
    assert torch.equal(seen, cropped.clean(index)[0])
    high, wide = (crop, crop) if crop else (7, 6)
    assert torch.equal(seen, split.take(index)[0][:, :, top : top + high, left : left + wide])


def test_no_global_generator_is_moved(split):
    before = torch.get_rng_state()
    index = torch.arange(N)
    Augmentation(DataConf(augment=Augment.crop_flip), split, 0)(split.take(index)[0], index, 0)
    assert torch.equal(torch.get_rng_state(), before)
