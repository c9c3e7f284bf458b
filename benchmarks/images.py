"""Images: how fast augmented batches come, and a whole training step on them, beside the usual DataLoader with PIL."""

import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from loops import BATCH, DECAY, MOMENTUM, RATE, RESNET, augmented, training_of
from measure import Loop, Row, Setup, row, speed, take_turns
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from plainres.options import Precision

WORKERS = 2
COUNT = 2560


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Images of CIFAR's size in memory, given out through PIL as torchvision's CIFAR10 does."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
        mean, std = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.262)
        self.transform = transforms.Compose([
            transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ])  # fmt: skip

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), index % 10


def endless(loader: DataLoader[tuple[torch.Tensor, int]]) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from loader


def pil_batches(setup: Setup) -> Iterator[list[torch.Tensor]]:
    pinned = setup.device == "cuda"
    loader = DataLoader(
        Pictures(), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, persistent_workers=True, pin_memory=pinned
    )
    return endless(loader)


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Batches alone, then training steps on them."""
    torch.set_num_threads(1)
    conf = augmented(RESNET.conf)
    training = training_of(setup, conf, results)
    batches = pil_batches(setup)
    loops: dict[str, Loop] = {"pil": lambda i: next(batches), "ours": training._batch}
    seconds = take_turns(setup, loops, 40)
    note = f"{BATCH / statistics.median(seconds['ours']):,.0f} against {BATCH / statistics.median(seconds['pil']):,.0f}"
    yield row(
        f"pad, crop, mirror of 32x32 images / DataLoader with PIL, {WORKERS} workers",
        speed(seconds["pil"], seconds["ours"]), "x", at_least=10, note=f"{note} images/s; ours on one thread",
    )  # fmt: skip
    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    loops = {"script": script(setup)}
    for precision, target, steps in ((Precision.float32, 1.3, 4), (Precision.bf16, 2.0, 1)):
        ours = replace(conf, trainer=replace(conf.trainer, precision=precision))
        loops["ours"] = training_of(setup, ours, results, threads).update
        seconds = take_turns(setup, loops, steps)
        note = f"{1000 * statistics.median(seconds['ours']):.0f} ms a step, {threads} threads"
        yield row(
            f"cifar_resnet d20 on augmented batches, {precision} / script with DataLoader, PIL, NCHW",
            speed(seconds["script"], seconds["ours"]), "x", at_least=target, note=note,
        )  # fmt: skip
    torch.set_num_threads(1)


def script(setup: Setup) -> Loop:
    """A step as public ResNet-20 scripts take it."""
    net = RESNET.theirs(3).to(setup.device)
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    batches = pil_batches(setup)
    total = 0.0

    def step(number: int) -> None:
        nonlocal total
        x, y = (part.to(setup.device, non_blocking=True) for part in next(batches))
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()  # such scripts keep a running loss

    return step
