"""How long the parts of a run take on this machine: a few steps and passes of it, in a folder that is thrown away."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F

from plainres import checkpoint, memory
from plainres.assembly import assemble, make_plan
from plainres.audit import audit
from plainres.checkpoint import Position
from plainres.data import load
from plainres.evaluate import batch_statistics, chunks, evaluation_mode, shuffled_batches
from plainres.models.networks import Network
from plainres.pair import RunSpec
from plainres.precision import computing
from plainres.rows import compact
from plainres.seeding import set_determinism
from plainres.store import RunFolder
from plainres.train import Training

Batched = Iterator[tuple[torch.Tensor, torch.Tensor]]
WARM_UP = 5  # updates that are not counted: memory is taken, kernels are chosen
# How much is timed. Means and not medians: others at work on the machine will disturb the runs as well.
UPDATES, PROBED_UPDATES, PASSES = 60, 10, 3
PATIENCE = 2.0  # seconds for one kind of measurement, when a single update takes long


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine, of one kind of run.

    Attributes:
        start: until the first update: audit, network, initial draws.
        update: an update without probes.
        probe: what the probes of one step add.
        evaluation, batchstats: one pass over both splits; one over the training split with batch statistics.
        checkpoint: one checkpoint.
        end: the last checkpoint and the tables.
    """

    start: float
    update: float
    probe: float
    evaluation: float
    batchstats: float
    checkpoint: float
    end: float

    def of_run(self, spec: RunSpec) -> float:
        """Seconds of a whole run, from its budget and its cadences."""
        plan, trainer = make_plan(spec.conf), spec.conf.trainer
        return (
            self.start
            + trainer.steps * self.update
            + len(plan.probes) * self.probe
            + len(plan.evaluations) * self.evaluation
            + len(plan.batchstats) * self.batchstats
            + (trainer.steps - 1) // trainer.checkpoint_every * self.checkpoint
            + self.end
        )


def measure(spec: RunSpec) -> Speed:
    """Time the parts of a run. Nothing of it is kept.

    Args:
        spec: whose device is here.

    Raises:
        MemoryError, RuntimeError: it does not fit into memory.
    """
    conf = spec.conf
    set_determinism(conf.trainer.threads, conf.trainer.deterministic, conf.trainer.device, conf.trainer.precision)
    memory.keep_freed()
    data = load(conf.data)
    with TemporaryDirectory(prefix="plainres-plan-") as place:
        folder = RunFolder(Path(place) / spec.name)
        folder.write({"name": spec.name})
        began = time.perf_counter()
        audit(conf, data)
        training = assemble(spec, folder, data, {}, lambda lengths: None, lambda: False)
        start = time.perf_counter() - began
        return _measure(training, start, folder)


def _measure(training: Training, start: float, folder: RunFolder) -> Speed:
    parts, steps = training.parts, training.parts.spec.conf.trainer.steps
    stopwatch = _Stopwatch(parts.spec.device)
    unprobed = [s for s in range(steps) if s not in parts.plan.probes] or list(range(steps))
    for step in unprobed[:WARM_UP]:
        training.update(step)
    update = stopwatch.updates(training, unprobed, UPDATES)
    probed = sorted(parts.plan.probes)
    with_probes = stopwatch.updates(training, probed, PROBED_UPDATES) if probed else update
    train, val, batch = parts.data.train, parts.data.val, parts.spec.conf.trainer.micro_batch
    precision = parts.spec.conf.trainer.precision
    with evaluation_mode(parts.network), torch.no_grad(), computing(precision, parts.spec.device):
        evaluation = stopwatch.one_pass(parts.network, lambda: chunks(train), len(train))
        evaluation += stopwatch.one_pass(parts.network, lambda: chunks(val), len(val))
        with batch_statistics(parts.network):
            batchstats = stopwatch.one_pass(parts.network, lambda: shuffled_batches(train, batch), len(train))
    save = partial(checkpoint.save, folder.checkpoint, parts.network, parts.flat, parts.optimizer, Position(), {})
    saved = stopwatch.seconds(save)
    end = stopwatch.seconds(lambda: training.finish(complete=True))
    end += stopwatch.seconds(lambda: compact(folder, parts.probe.layout))
    return Speed(start, update, max(0.0, with_probes - update), evaluation, batchstats, saved, end)


class _Stopwatch:
    """Seconds of something; on a GPU until the device has done it."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")

    def seconds(self, act: Callable[[], object]) -> float:
        self._wait()
        began = time.perf_counter()
        act()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    def updates(self, training: Training, steps: list[int], count: int) -> float:
        """Mean seconds of ``count`` of these updates; fewer are made when they take long."""
        self._wait()
        made, began = 0, time.perf_counter()
        for step in islice(cycle(steps), count):
            training.update(step)
            made += 1
            if time.perf_counter() - began > PATIENCE:
                break
        self._wait()
        return (time.perf_counter() - began) / made

    def one_pass(self, network: Network, batches: Callable[[], Batched], count: int) -> float:
        """Mean seconds of a pass over ``count`` examples, from as many batches as there is patience for."""
        self._wait()
        seen, began = 0, time.perf_counter()
        for x_NCHW, y_N in chain.from_iterable(batches() for _ in range(PASSES)):
            F.cross_entropy(network(x_NCHW), y_N)
            seen += len(y_N)
            if time.perf_counter() - began > PATIENCE:
                break
        self._wait()
        return (time.perf_counter() - began) * count / seen
