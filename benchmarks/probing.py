"""What looking inside costs: our probes, and the usual ways to read the same quantities, on an mlp of 100 layers."""

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch
from by_hand_probes import BlockHooks, CockpitStyle, PerTensor, WandbWatch, check_numbers
from loops import MLP, minimal, probed, training_of
from measure import Loop, Row, Setup, row, speed, take_turns

from plainres.probes.cadence import probe_steps
from plainres.probes.collected import Collected
from plainres.probes.grad_norm import GradNorm
from plainres.probes.parameters import parameter_scopes
from plainres.probes.update_ratio import UpdateRatio
from plainres.schema import ProbeConf, TrainerConf
from plainres.train import Training

STEPS = 6


class ParametersAlone:
    """The real probes of gradients, weights and updates, without those of blocks and activations."""

    waits = False

    def __init__(self, training: Training) -> None:
        parts = training.parts
        scopes = parameter_scopes(parts.network, parts.flat)
        self._probes = (GradNorm(parts.flat, scopes), UpdateRatio(parts.flat, scopes))

    def arm(self, num_examples: float, scale: float = 1.0) -> None:
        """Nothing to put on."""

    def after_backward(self) -> None:
        self._probes[0].after_backward()

    def before_update(self) -> None:
        self._probes[1].before_update()

    def after_update(self) -> None:
        self._probes[1].after_update()

    def collect(self, *more: torch.Tensor) -> Collected:
        return Collected(self._probes, [], {}, more)


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Probes at every step, and at the default steps, beside the usual ways."""
    torch.set_num_threads(1)
    os.environ["WANDB_SILENT"] = "true"
    off, parameters, everything, spare = (
        training_of(setup, probed(MLP.conf, every), results) for every in (0, 1, 1, 1)
    )
    check_numbers(setup, spare)
    parameters.parts.probe = ParametersAlone(parameters)  # type: ignore[assignment]
    watch = WandbWatch(results)
    loops: dict[str, Loop] = {
        "minimal": minimal(setup, MLP),
        "per tensor": minimal(setup, MLP, PerTensor()),
        "cockpit": minimal(setup, MLP, CockpitStyle()),
        "watch": minimal(setup, MLP, watch),
        "same hooks": minimal(setup, MLP, BlockHooks(all_of_ours=True)),
        "usual hooks": minimal(setup, MLP, BlockHooks(all_of_ours=False)),
        "off": off.update,
        "parameters": parameters.update,
        "everything": everything.update,
    }
    seconds = take_turns(setup, loops, STEPS)
    watch.run.finish()
    yield from _judge(seconds)


def _judge(seconds: dict[str, list[float]]) -> Iterator[Row]:
    def added(name: str, base: str) -> list[float]:
        return [a - b for a, b in zip(seconds[name], seconds[base], strict=True)]

    conf = TrainerConf()
    probed = len(probe_steps(ProbeConf().every, conf.steps))
    off, cost = seconds["off"], added("everything", "off")
    share = [100 * probed * c / (conf.steps * o) for c, o in zip(cost, off, strict=True)]
    note = f"{probed} of {conf.steps} steps, {1000 * statistics.median(cost):.1f} ms each"
    yield row("default probes: time added to a run's steps", share, "%", at_most=2, note=note)
    yield row(
        "parameter metrics at every step / minimal loop without probes",
        speed(seconds["minimal"], seconds["parameters"]), "x", at_least=0.97,
    )  # fmt: skip
    ours = added("everything", "parameters")
    for hooks, what, at_most in (("same hooks", "the same numbers", 0.5), ("usual hooks", "7 of the 15 kinds", None)):
        theirs = added(hooks, "minimal")
        yield row(
            f"block and forward metrics at every step: overhead / that of hooks with .item() for {what}",
            [o / t for o, t in zip(ours, theirs, strict=True)], "x", at_most=at_most,
            note=f"{1000 * statistics.median(ours):.1f} ms against {1000 * statistics.median(theirs):.1f} ms a step",
        )  # fmt: skip
    others = {name: added(name, "minimal") for name in ("per tensor", "cockpit", "watch")}
    best = min(others, key=lambda name: statistics.median(others[name]))
    mine = added("parameters", "off")
    words = ", ".join(f"{name} +{1000 * statistics.median(values):.1f} ms" for name, values in others.items())
    yield row(
        "gradient norm and update ratio at every step: overhead / that of the best other way",
        [m / t for m, t in zip(mine, others[best], strict=True)], "x", at_most=0.5,
        note=f"ours {1000 * statistics.median(mine):+.1f} ms a step; {words}",
    )  # fmt: skip
