"""Pad, crop and mirror: the augmentation of He 2015, for a whole batch at once, on its device.

Which window an image gets, and whether it is mirrored, is a function of seed, epoch and the image's index: the batch
it comes in, its size and the device do not matter, and both arms of a pair see the same pictures.

Shape suffixes: N examples, C channels, H height, W width.
"""

import torch
import torch.nn.functional as F

from plainres.data.split import Split, centre
from plainres.options import Augment
from plainres.schema import DataConf
from plainres.seeding import generator
from plainres.transfer import to_device


class Augmentation:
    """What the training images of a run go through."""

    def __init__(self, data: DataConf, split: Split, seed: int) -> None:
        """
        Args:
            data: ``augment``, ``pad`` and ``crop``.
            split: the training images; their stored size bounds the window.
            seed: of the run.
        """
        self.kind, self.pad = data.augment, data.pad
        self.seed = seed
        height, width = split.pixels_NCHW.shape[2:]
        self.window: tuple[int, ...] = split.shape[1:]
        self._places = (height + 2 * self.pad - self.window[0] + 1, width + 2 * self.pad - self.window[1] + 1)
        self._count = len(split)
        self._cached = (-1, "")
        self._draws_N3 = torch.empty(0)

    def draws(self, epoch: int, device: str = "cpu") -> torch.Tensor:
        """(num_examples, 3) int64: row and column of each window, and whether it is mirrored."""
        if (epoch, device) != self._cached:
            draw = generator(self.seed, "augmentation", epoch)
            columns = [torch.randint(n, (self._count,), generator=draw) for n in (*self._places, 2)]
            self._draws_N3 = to_device(torch.stack(columns, dim=1), device)
            self._cached = (epoch, device)
        return self._draws_N3

    def __call__(self, x_NCHW: torch.Tensor, index_N: torch.Tensor, epoch: int) -> torch.Tensor:
        """The images as this epoch shows them.

        Args:
            x_NCHW: normalised images at their stored size. Zeros around them are the mean colour.
            index_N: which training examples they are.
            epoch: number of passes over the data before this one.
        """
        if self.kind is Augment.none:
            return x_NCHW if x_NCHW.shape[2:] == self.window else centre(x_NCHW, self.window[0])
        top_N, left_N, flip_N = to_device(self.draws(epoch, str(index_N.device))[index_N], x_NCHW.device).unbind(1)
        height, width = self.window
        rows_NH = top_N[:, None] + torch.arange(height, device=x_NCHW.device)
        columns_NW = torch.arange(width, device=x_NCHW.device).expand(len(left_N), -1)
        if self.kind is Augment.crop_flip:  # read from right to left
            columns_NW = torch.where(flip_N[:, None] == 1, width - 1 - columns_NW, columns_NW)
        columns_NW = left_N[:, None] + columns_NW
        padded_NCHW = F.pad(x_NCHW, (self.pad,) * 4)
        # One look-up for the whole batch; the channels of an image share their window.
        pixel_NHW = rows_NH[:, :, None] * padded_NCHW.shape[3] + columns_NW[:, None, :]
        index_NCP = pixel_NHW.flatten(1)[:, None].expand(-1, x_NCHW.shape[1], -1)
        seen_NCHW: torch.Tensor = padded_NCHW.flatten(2).gather(2, index_NCP).unflatten(2, (height, width))
        return seen_NCHW
