"""make bench: seconds of a training step, plainres beside a minimal hand-written PyTorch loop of the same net.

All variants take turns in one process (A B C D, A B C D, ...), so that a machine whose speed drifts slows all
alike; reported are medians over the rounds: milliseconds a step, and the ratio to the minimal loop of the same round.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

from plainres.assembly import assemble
from plainres.data import load
from plainres.launch.prepare import prepare
from plainres.probes.cadence import probe_steps
from plainres.schema import ConnectionConf, DataConf, ProbeConf, RunConf, Shortcut

BATCH = 128


class MinimalBlock(nn.Module):
    """Linear-BN-ReLU-Linear-BN, the shortcut added, ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)
        self.fc2, self.bn2 = nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x))))))


def minimal_loop(depth: int, width: int) -> Callable[[int], None]:
    """The loop that one would write by hand: torch's modules, torch's SGD, data in memory, no probes."""
    stem = [nn.Flatten(), nn.Linear(64, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    net = nn.Sequential(*stem, *[MinimalBlock(width) for _ in range((depth - 2) // 2)], nn.Linear(width, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
    data = load(DataConf())

    def step(number: int) -> None:
        start = BATCH * (number % 11)
        x, y = data.train.images[start : start + BATCH], data.train.y_N[start : start + BATCH]
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def plainres_loop(depth: int, width: int, every: int, results: str) -> Callable[[int], None]:
    """A step of the real training loop, with probes every ``every`` steps (0: never) written to a real folder."""
    conf = RunConf(depth=depth, connection=ConnectionConf("residual", Shortcut.identity), probe=ProbeConf(every=every))
    conf = replace(conf, model=replace(conf.model, width=width), study=f"every{every}", results_dir=results)
    conf.trainer = replace(conf.trainer, steps=10**6, device="cpu")
    study, (spec,) = prepare([conf])
    training = assemble(spec, study.run_folder(spec.name), load(DataConf()), {}, lambda lengths: None, lambda: False)
    plan = replace(training.parts.plan, probes=probe_steps(every, 10**4))
    training.parts.plan = plan
    return training.update


def rounds(steps: int, count: int, loops: dict[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """Milliseconds a step of each loop in each round; every loop is warmed up first."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    position = 0
    for turn in range(-1, count):
        for name, loop in loops.items():
            began = time.perf_counter()
            for i in range(steps):
                loop(position + i)
            if turn >= 0:
                times[name].append(1000 * (time.perf_counter() - began) / steps)
        position += steps
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50, help="steps of each loop in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="also write the numbers to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as results:
        loops = {"minimal PyTorch loop": minimal_loop(args.depth, args.width)}
        for name, every in (("probe=off", 0), ("probe=default", 50), ("probe=every_step", 1)):
            loops[f"plainres, {name}"] = plainres_loop(args.depth, args.width, every, results)
        times = rounds(args.steps, args.rounds, loops)
    base = times["minimal PyTorch loop"]
    rows = []
    for name, values in times.items():
        speed = [b / v for b, v in zip(base, values, strict=True)]
        rows.append({
            "name": name, "ms_per_step": statistics.median(values), "speed": statistics.median(speed),
            "speed_min": min(speed), "speed_max": max(speed),
        })  # fmt: skip
    machine = f"{platform.processor() or platform.machine()}, 1 thread, torch {torch.__version__}"
    table = Table(title=f"mlp depth {args.depth} width {args.width} batch {BATCH}: {machine}", box=None)
    for column in ("loop", "ms a step (median)", "speed against minimal [min, max]"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for row in rows:
        span = f"{row['speed']:.2f}x [{row['speed_min']:.2f}, {row['speed_max']:.2f}]"
        table.add_row(str(row["name"]), f"{row['ms_per_step']:.2f}", span)
    Console(width=110).print(table)
    if args.json:
        with open(args.json, "w") as file:  # noqa: PTH123
            json.dump({"machine": machine, "rounds": args.rounds, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
