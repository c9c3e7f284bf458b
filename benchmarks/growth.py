"""How time and memory grow with depth, batch and width: straight lines, and how straight."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from loops import BATCH, MLP, training_of
from measure import Row, Setup, take_turns
from scipy import stats

from plainres.schema import RunConf
from plainres.signature import forward_flops
from plainres.train import Training

DEPTHS = (10, 32, 100, 316, 1000)
WIDTHS = (64, 128, 256, 512)
BATCHES = (64, 128, 256, 512)


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """A line through each series; the last stretch shows whether something grows faster."""
    torch.set_num_threads(1)
    base = replace(MLP.conf, model=replace(MLP.conf.model, width=16))
    by_depth = {depth: training_of(setup, replace(base, depth=depth), results) for depth in DEPTHS}
    loops = {str(depth): training.update for depth, training in by_depth.items()}
    times = [statistics.median(s) for s in take_turns(setup, loops, 3).values()]
    yield straight("seconds of a step against depth (10 to 1000)", DEPTHS, times, "ms a layer", 1000)
    memory = [kept_bytes(training) for training in by_depth.values()]
    yield straight("memory kept for the backward pass against depth", DEPTHS, memory, "KiB a layer", 1 / 1024)
    sizes = [replace(MLP.conf, depth=20, model=replace(MLP.conf.model, width=width)) for width in WIDTHS]
    widths = [training_of(setup, conf, results) for conf in sizes]
    times = [statistics.median(s) for s in take_turns(setup, _named(widths), 5).values()]
    flops = [3 * BATCH * forward_flops(conf, t.parts.data) / 1e9 for conf, t in zip(sizes, widths, strict=True)]
    yield straight(
        f"seconds of a step against FLOPs (width {WIDTHS[0]} to {WIDTHS[-1]})", flops, times, "ms a GFLOP", 1000
    )
    batches = [_with_batch(setup, base, size, results) for size in BATCHES]
    times = [statistics.median(s) for s in take_turns(setup, _named(batches), 5).values()]
    yield straight(
        f"seconds of a step against batch ({BATCHES[0]} to {BATCHES[-1]})", BATCHES, times, "µs an example", 1e6
    )


def _named(trainings: Sequence[Training]) -> dict[str, object]:
    return {str(i): training.update for i, training in enumerate(trainings)}


def _with_batch(setup: Setup, conf: RunConf, size: int, results: Path) -> Training:
    training = training_of(setup, replace(conf, depth=20), results)
    training.parts.batches = type(training.parts.batches)(conf.seed, training.parts.data.num_train, size)
    return training


def straight(name: str, x: Sequence[float], y: Sequence[float], unit: str, scale: float) -> Row:
    """Slope of the least-squares line, its R², and the exponent between the last two points (1: proportional)."""
    line = stats.linregress(x, y)
    slope, r2 = float(line.slope), float(line.rvalue) ** 2
    ratio = (y[-1] / y[-2]) / (x[-1] / x[-2])  # > 1: grew faster than proportionally at the end
    note = f"R² {r2:.4f}; the last stretch grew {ratio:.2f}x as fast as proportionally"
    return Row(name, slope * scale, unit, None, "last stretch ≤ 1.1x", ratio <= 1.1, note)


def kept_bytes(training: Training) -> float:
    """Bytes of all different tensors that autograd keeps between forward and backward, parameters left out."""
    known = {p.untyped_storage().data_ptr() for p in training.parts.network.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        training.update(0)
    return float(sum(kept.values()))
