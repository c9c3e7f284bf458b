"""A training step without probes beside a minimal loop of the same net; how both come near the machine's peak."""

import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from loops import BATCH, CASES, MLP, Case, check, minimal, training_of
from measure import Loop as Loop
from measure import Row, Setup, row, speed, take_turns, wait

from plainres.signature import forward_flops

STEPS = {"mlp d100": 18, "cnn d50": 6, "cifar_resnet d20": 3, "vit d12": 3}
SIDE = 1024  # of the matrices whose product is the machine's measured peak


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """One row a case, then the share of the peak that each reaches."""
    torch.set_num_threads(1)
    reached = []
    for case in CASES:
        training = training_of(setup, case.conf, results)
        check(setup, case, training)
        loops: dict[str, Loop] = {"minimal": minimal(setup, case), "plainres": training.update}
        if case.tuned:
            loops["tuned"] = minimal(setup, case, tuned=True)
        seconds = take_turns(setup, loops, STEPS[case.name])
        note = f"{1000 * statistics.median(seconds['plainres']):.1f} ms a step"
        target = 1.1 if case is MLP else 1.0
        yield row(
            f"{case.name}, probe=off / minimal loop", speed(seconds["minimal"], seconds["plainres"]), "x",
            at_least=target, note=note,
        )  # fmt: skip
        if case.tuned:
            yield row(
                f"{case.name}, probe=off / the same loop, tuned", speed(seconds["tuned"], seconds["plainres"]), "x",
                note=f"by hand with {case.tuned}",
            )  # fmt: skip
        reached.append((case, seconds["plainres"], 3 * BATCH * forward_flops(case.conf, training.parts.data)))
    yield from _shares(setup, reached)


def _shares(setup: Setup, reached: list[tuple[Case, list[float], int]]) -> Iterator[Row]:
    a, b = torch.randn(2, SIDE, SIDE, device=setup.device)
    seconds = take_turns(setup, {"matmul": lambda i: a @ b}, 10)["matmul"]
    peak = 2 * SIDE**3 / statistics.median(seconds)
    yield row("matmul peak, float32", [2 * SIDE**3 / s / 1e9 for s in seconds], "GFLOP/s", note="one thread")
    for case, taken, flops in reached:
        yield row(f"{case.name}: share of the matmul peak", [100 * flops / s / peak for s in taken], "%")
    wait(setup.device)
