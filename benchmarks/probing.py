"""What looking inside costs: our probes, and the usual ways to read the same quantities, on an mlp of 100 layers."""

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import wandb
from loops import BATCH, MLP, Around, minimal, probed, training_of
from measure import Loop, Row, Setup, row, speed, take_turns
from torch import nn

from plainres.probes.cadence import probe_steps
from plainres.probes.grad_norm import GradNorm
from plainres.probes.parameters import parameter_scopes
from plainres.probes.readings import Readings
from plainres.probes.update_ratio import UpdateRatio
from plainres.schema import ProbeConf, TrainerConf
from plainres.train import Training

STEPS = 6


class ParametersAlone:
    """The real probes of gradients, weights and updates, without those of blocks and activations."""

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

    def row(self, step: int) -> dict[str, Any]:
        readings = Readings()
        for probe in self._probes:
            probe.read(readings)
        return readings.row(step)


class PerTensor(Around):
    """``.norm().item()`` of every gradient, weight and update."""

    def start(self, net: nn.Module) -> None:
        self.parameters = list(net.parameters())
        self.kept: list[Any] = []

    def before(self) -> None:
        self.grads = [p.grad.norm().item() for p in self.parameters if p.grad is not None]
        self.old = [p.detach().clone() for p in self.parameters]

    def after(self) -> None:
        weights = [w.norm().item() for w in self.old]
        updates = [(p.detach() - w).norm().item() for p, w in zip(self.parameters, self.old, strict=True)]
        self.kept = [self.grads, [u / w if w else None for u, w in zip(updates, weights, strict=True)]]


class CockpitStyle(PerTensor):
    """Gradient norm, update size, distance from the start and a histogram of the gradient, tensor by tensor: the
    quantities of Schneider et al. 2021 (arXiv 2102.06604) that need one backward pass."""

    def start(self, net: nn.Module) -> None:
        super().start(net)
        self.first = [p.detach().clone() for p in self.parameters]

    def before(self) -> None:
        super().before()
        self.histograms = [torch.histc(p.grad, 20).tolist() for p in self.parameters if p.grad is not None]

    def after(self) -> None:
        super().after()
        moved = [(p.detach() - w).norm().item() for p, w in zip(self.parameters, self.first, strict=True)]
        self.kept.append(moved)


class WandbWatch(Around):
    """``wandb.watch(net, log="all", log_freq=1)``, offline."""

    def __init__(self, place: Path) -> None:
        self.run = wandb.init(mode="offline", dir=str(place), project="bench", settings=wandb.Settings(silent=True))

    def start(self, net: nn.Module) -> None:
        self.run.watch(net, log="all", log_freq=1)

    def after(self) -> None:
        self.run.log({})


class BlockHooks(Around):
    """A hook on every block and layer, with ``.item()`` for every number: norms of branch and input, their ratio, norm
    of the output and of its gradient, standard deviation of every norm's output, share of dead units."""

    def start(self, net: nn.Module) -> None:
        self.kept: dict[str, list[float]] = {}
        for name, module in net.named_modules():
            if isinstance(module, nn.BatchNorm1d):
                module.register_forward_hook(self._response(name))
            if hasattr(module, "bn2"):
                module.register_forward_hook(self._block(name))
                module.bn2.register_forward_hook(self._branch(name))

    def _put(self, name: str, value: torch.Tensor) -> float:
        number = value.item()
        self.kept.setdefault(name, []).append(number)
        return number

    def _response(self, name: str) -> Any:
        def hook(module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
            self._put(f"{name}.std", out.detach().std(correction=0))

        return hook

    def _branch(self, name: str) -> Any:
        def hook(module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
            self._put(f"{name}.branch", out.detach().norm(dim=1).mean())

        return hook

    def _block(self, name: str) -> Any:
        def hook(module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
            carried = self._put(f"{name}.input", args[0].detach().norm(dim=1).mean())
            self.kept.setdefault(f"{name}.ratio", []).append(self.kept[f"{name}.branch"][-1] / carried)
            self._put(f"{name}.output", out.detach().norm(dim=1).mean())
            self._put(f"{name}.dead", (out.detach() == 0).all(0).float().mean())
            out.register_hook(lambda grad: self._grad(name, grad))

        return hook

    def _grad(self, name: str, grad: torch.Tensor) -> None:
        self._put(f"{name}.activation_grad", BATCH * grad.norm(dim=1).mean())


def rows(setup: Setup, results: Path) -> Iterator[Row]:
    """Probes at every step, and at the default steps, beside the usual ways."""
    torch.set_num_threads(1)
    os.environ["WANDB_SILENT"] = "true"
    off, parameters, everything = (training_of(setup, probed(MLP.conf, every), results) for every in (0, 1, 1))
    parameters.parts.probe = ParametersAlone(parameters)  # type: ignore[assignment]
    watch = WandbWatch(results)
    loops: dict[str, Loop] = {
        "minimal": minimal(setup, MLP),
        "per tensor": minimal(setup, MLP, PerTensor()),
        "cockpit": minimal(setup, MLP, CockpitStyle()),
        "watch": minimal(setup, MLP, watch),
        "hooks": minimal(setup, MLP, BlockHooks()),
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
    ours, theirs = added("everything", "parameters"), added("hooks", "minimal")
    yield row(
        "block and forward metrics at every step: overhead / that of hooks with .item()",
        [o / t for o, t in zip(ours, theirs, strict=True)], "x", at_most=0.5,
        note=f"{1000 * statistics.median(ours):.1f} ms against {1000 * statistics.median(theirs):.1f} ms a step",
    )  # fmt: skip
    others = {name: added(name, "minimal") for name in ("per tensor", "cockpit", "watch")}
    best = min(others, key=lambda name: statistics.median(others[name]))
    mine = added("parameters", "off")
    words = ", ".join(f"{name} +{1000 * statistics.median(values):.1f} ms" for name, values in others.items())
    yield row(
        "gradient norm and update ratio at every step: overhead / that of the best other way",
        [m / t for m, t in zip(mine, others[best], strict=True)], "x", at_most=0.5,
        note=f"ours +{1000 * statistics.median(mine):.1f} ms a step; {words}",
    )  # fmt: skip
