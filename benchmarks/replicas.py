"""CPU time of an update and replica, of whole runs that train alone and S at once (trainer.replicas).

All sizes take turns in one process, so that a machine whose speed drifts slows all alike. CPU time and not wall time:
on one thread both are the same on a quiet machine, and others at work disturb CPU time less.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from measure import Row, Setup, row

from plainres.launch.groups import execute_group
from plainres.options import Shortcut, TrackerName
from plainres.pair import make_spec
from plainres.schema import ConnectionConf, ProbeConf, RunConf, TrackerConf
from plainres.store import Status, Study

WARM_UP = 3  # updates of every replica that are not counted
SIZES = (1, 2, 4, 8)  # 1: ordinary runs


def milliseconds(depth: int, replicas: int, steps: int) -> float:
    """CPU time of an update and replica: no probes, optimizer and the changes between threads included."""
    trainer = replace(
        RunConf().trainer, device="cpu", steps=steps, replicas=replicas, eval_every=steps, eval_early=False
    )
    conf = RunConf(
        depth=depth,
        connection=ConnectionConf("residual", Shortcut.identity),
        probe=ProbeConf(every=0),
        tracker=TrackerConf(name=TrackerName.none),
        trainer=replace(trainer, batchstats_every=steps, checkpoint_every=steps),
    )
    times = []

    def look() -> bool:  # asked by every replica at every step
        times.append(time.process_time())
        return False

    with tempfile.TemporaryDirectory() as place:
        specs = [make_spec(replace(conf, seed=seed), "cpu") for seed in range(replicas)]
        outcomes = execute_group(specs, Study.create(place, "bench"), look)
        assert all(outcome.status is Status.COMPLETE for outcome in outcomes), outcomes
    first, last = WARM_UP * replicas, steps * replicas - 1
    return 1000 * (times[last] - times[first]) / (last - first)


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Replicas beside ordinary runs, at depth 100; on the CPU only, where CPU time says what a step costs."""
    if setup.device != "cpu":
        return
    found = take_rounds(100, max(setup.steps(12), 2 * WARM_UP), min(setup.rounds, 3))
    for size in SIZES[1:]:
        ratios = [alone / one for alone, one in zip(found[1], found[size], strict=True)]
        note = f"{statistics.median(found[size]):.1f} ms of CPU an update and replica"
        yield row(f"mlp d100, {size} replicas at once / alone", ratios, "x", note=note)


def take_rounds(depth: int, steps: int, rounds: int) -> dict[int, list[float]]:
    """``milliseconds`` of every size, round by round, after one that warms up."""
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    for turn in range(-1, rounds):
        for size in SIZES:
            value = milliseconds(depth, size, steps)
            if turn >= 0:
                found[size].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    found = take_rounds(args.depth, args.steps, args.rounds)
    print(f"mlp depth {args.depth}, torch {torch.__version__}: ms of CPU an update and replica, {args.rounds} rounds")
    for size, values in found.items():
        ratio = statistics.median(v / one for v, one in zip(values, found[1], strict=True))
        print(
            f"{size:3d}  {statistics.median(values):6.2f} [{min(values):.2f}, {max(values):.2f}]  {ratio:.2f} of alone"
        )


if __name__ == "__main__":
    main()
