"""Examples as they are stored, and as a network sees them.

Images are kept as they came, one byte a channel, in memory, on the device or in a memory map, and normalised batch by
batch; float data is normalised once. Where pixels live changes no bit: the arithmetic is the same, on the device.

Shape suffixes: N examples, C channels, H height, W width.
"""

from dataclasses import dataclass, replace

import torch

from plainres.transfer import to_device

Index = torch.Tensor | slice


@dataclass(frozen=True)
class Split:
    """Training or validation examples.

    Attributes:
        pixels_NCHW: uint8 as stored, or float32 that is normalised already.
        y_N: int64 labels of the chosen rows, where the pixels are.
        rows_N: the stored examples that belong to this split, in order; None for all.
        mean_C, std_C: of the training pixels, (1, C, 1, 1) float32 on ``device``; None for float data.
        crop: side of the centre that clean passes see; None for the whole image.
        device: where batches are handed out.
    """

    pixels_NCHW: torch.Tensor
    y_N: torch.Tensor
    rows_N: torch.Tensor | None = None
    mean_C: torch.Tensor | None = None
    std_C: torch.Tensor | None = None
    crop: int | None = None
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.y_N)

    @property
    def home(self) -> str:
        """Where the pixels are, and an index should be."""
        return str(self.pixels_NCHW.device)

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W) of what a network sees."""
        channels, *sides = self.pixels_NCHW.shape[1:]
        return (channels, *(sides if self.crop is None else (self.crop, self.crop)))

    @property
    def images(self) -> torch.Tensor:
        """(N, C, H, W), all of them as clean passes see them."""
        return self.clean(slice(None))[0]

    def take(self, index: Index) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised images at their stored size, and labels, on ``device``."""
        rows = index if self.rows_N is None else self.rows_N[index]
        x_NCHW = to_device(self.pixels_NCHW[rows], self.device)
        if self.mean_C is not None and self.std_C is not None:
            x_NCHW = (x_NCHW.float() - self.mean_C) / self.std_C
        return x_NCHW, to_device(self.y_N[index], self.device)

    def clean(self, index: Index) -> tuple[torch.Tensor, torch.Tensor]:
        """What an evaluation sees: ``take``, and of a cropped data set the centre."""
        x_NCHW, y_N = self.take(index)
        return (x_NCHW if self.crop is None else centre(x_NCHW, self.crop)), y_N

    def to(self, device: str, keep: bool) -> "Split":
        """Hand batches out on ``device``; with ``keep`` the pixels move there too."""
        home = device if keep else "cpu"
        return replace(
            self,
            pixels_NCHW=self.pixels_NCHW.to(home),
            y_N=self.y_N.to(home),
            rows_N=None if self.rows_N is None else self.rows_N.to(home),
            mean_C=None if self.mean_C is None else self.mean_C.to(device),
            std_C=None if self.std_C is None else self.std_C.to(device),
            device=device,
        )


def centre(x_NCHW: torch.Tensor, side: int) -> torch.Tensor:
    """The middle side x side pixels; of an odd margin the smaller half stands above and left."""
    top, left = ((length - side) // 2 for length in x_NCHW.shape[2:])
    return x_NCHW[:, :, top : top + side, left : left + side]
