"""The loops that take turns: plainres' own training loop, and the usual ones around the same network."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import by_hand
import torch
import torch.nn.functional as F
from measure import Loop, Setup
from torch import nn

from plainres import memory
from plainres.assembly import assemble
from plainres.data import Dataset, load
from plainres.launch.prepare import prepare
from plainres.options import Activation, Augment, DataName, Family, Init, Norm, Placement, Shortcut
from plainres.probes.cadence import probe_steps
from plainres.schema import ConnectionConf, DataConf, ModelConf, ProbeConf, RunConf, TrainerConf
from plainres.train import Training

BATCH = 128
RATE, MOMENTUM, DECAY = 0.03, 0.9, 1e-4
DIGITS = DataConf()
CIFAR_SIZE = DataConf(name=DataName.synthetic, size=32, examples=2560)  # 32x32; what a pixel holds takes no time
PLAIN = torch.contiguous_format  # NCHW
FOREVER = 10**6  # steps of a run of which only some are taken


@dataclass(frozen=True)
class Case:
    """A network that is timed, and the same by hand."""

    name: str
    conf: RunConf
    theirs: Callable[[int], nn.Module]  # by the number of channels of its images
    tuned: str = ""  # what one who knows torch would add to the loop by hand; "" is not timed


def _case(
    name: str, depth: int, model: ModelConf, data: DataConf, theirs: Callable[[int], nn.Module], tuned: str = ""
) -> Case:
    connection = ConnectionConf("residual", Shortcut.identity)
    conf = RunConf(depth=depth, model=model, connection=connection, data=data, probe=ProbeConf("off", 0))
    return Case(name, conf, theirs, tuned)


FUSED, LAST = "SGD(fused=True)", "SGD(fused=True) and channels-last"
MLP = _case("mlp d100", 100, ModelConf(), DIGITS, lambda c: by_hand.mlp(100, 64, 64), FUSED)
CNN = _case("cnn d50", 50, ModelConf(Family.cnn, width=8), DIGITS, lambda c: by_hand.cnn(50, 8, c), LAST)
RESNET = _case(
    "cifar_resnet d20", 20, ModelConf(Family.cifar_resnet, width=16), CIFAR_SIZE,
    lambda c: by_hand.cifar_resnet(20, 16, c), LAST,
)  # fmt: skip
_VIT = ModelConf(
    Family.vit, width=64, heads=4, patch=4, placement=Placement.pre_norm, norm=Norm.layer, activation=Activation.gelu,
    init=Init.xavier,
)  # fmt: skip
VIT = _case("vit d12", 12, _VIT, CIFAR_SIZE, lambda c: by_hand.Vit(12, 64, 4, c, 32, 4))
CASES = (MLP, CNN, RESNET, VIT)


def training_of(setup: Setup, conf: RunConf, results: Path, threads: int = 1) -> Training:
    """The run's real training loop in a real folder, ready for its first step."""
    trainer = replace(conf.trainer, steps=FOREVER, device=setup.device, batch=BATCH, threads=threads)
    conf = replace(conf, trainer=trainer, results_dir=str(results), study=f"bench{next(_numbers)}")
    memory.keep_freed()  # as every job does; here it also serves the loops by hand
    study, (spec,) = prepare([conf])
    folder = study.run_folder(spec.name)
    training = assemble(spec, folder, load(conf.data), {}, lambda lengths: None, lambda: False)
    training.parts.plan = replace(training.parts.plan, probes=probe_steps(conf.probe.every, 10**4))
    return training


_numbers = itertools.count()


def minimal(setup: Setup, case: Case, around: "Around | None" = None, tuned: bool = False) -> Loop:
    """The loop that one would write: torch's modules, torch's SGD, the data in memory, no probes but ``around``.

    Args:
        setup, case: what is timed.
        around: looks at every step.
        tuned: with torch's fused SGD, and images channels-last.
    """
    data = load(case.conf.data).to(setup.device)
    net = case.theirs(data.input_shape[0]).to(setup.device)
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=tuned)
    form = torch.channels_last if tuned else PLAIN
    net = net.to(memory_format=form)
    batches = in_memory(data, form)
    if around is not None:
        around.start(net)

    def step(number: int) -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        if around is None:
            optimizer.step()
        else:
            around.before()
            optimizer.step()
            around.after()

    return step


class Around:
    """The usual way to look at a step from outside."""

    def start(self, net: nn.Module) -> None:
        """Put hooks on."""

    def before(self) -> None:
        """After backward."""

    def after(self) -> None:
        """After the update."""


def in_memory(data: Dataset, form: torch.memory_format = PLAIN) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches one after the other, without shuffling: the cheapest there can be."""
    images, labels = data.train.take(torch.arange(len(data.train), device=data.train.home))
    images = images.clone(memory_format=form)
    starts = range(0, len(labels) - BATCH + 1, BATCH)
    pieces = [(images[start : start + BATCH], labels[start : start + BATCH]) for start in starts]
    return itertools.cycle(pieces)


def check(setup: Setup, case: Case, training: Training) -> None:
    """Both sides train the same network."""
    x, _ = next(in_memory(training.parts.data))
    net = case.theirs(training.parts.data.input_shape[0]).to(setup.device)
    by_hand.check_same(training.parts.network, net, x)


def augmented(conf: RunConf) -> RunConf:
    """With pad, crop and mirror."""
    return replace(conf, data=replace(conf.data, augment=Augment.crop_flip))


def probed(conf: RunConf, every: int) -> RunConf:
    return replace(conf, probe=ProbeConf(every=every), trainer=TrainerConf())
