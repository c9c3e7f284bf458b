"""The usual ways to look at a step from outside, as one would write them around the loop by hand."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import wandb
from by_hand import MlpBlock, check_same
from loops import BATCH, MLP, Around, in_memory
from measure import Setup
from torch import nn

from plainres.train import Training


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
    """Hooks on blocks and norms of the mlp, with ``.item()`` for every number.

    Attributes:
        values: by name, one number a block or layer, in order.
    """

    def __init__(self, all_of_ours: bool) -> None:
        """
        Args:
            all_of_ours: the 15 kinds of number that the probes give of blocks and layers; else 7 that are usual.
        """
        self._all = all_of_ours
        self.values: dict[str, list[float]] = {}

    def start(self, net: nn.Module) -> None:
        block: Callable[[MlpBlock], Any] = self._whole_block if self._all else self._usual_block
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.register_forward_hook(self._response)
            if self._all and isinstance(module, nn.ReLU):
                module.register_forward_hook(lambda module, args, out: self._dead(out))
            if isinstance(module, MlpBlock):
                if self._all:
                    module.bn1.register_forward_hook(lambda module, args, out: self._dead(F.relu(out)))
                module.bn2.register_forward_hook(self._branch)
                module.register_forward_hook(block(module))
        if self._all and isinstance(net, nn.Sequential):
            net[-1].register_forward_hook(self._response)

    def before(self) -> None:
        grads = self.values["activation_grad_norm"][::-1]  # from the last block to the first one's input
        if self._all:
            self.values["block_gain"] = [a / b for a, b in itertools.pairwise(grads)]

    def after(self) -> None:
        self.values = {}

    def _put(self, name: str, value: torch.Tensor) -> None:
        self.values.setdefault(name, []).append(value.item())

    def _response(self, module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
        self._put("response_std", out.detach().std(correction=0))

    def _dead(self, out: torch.Tensor) -> None:
        self._put("dead_fraction", (out.detach() == 0).all(0).float().mean())

    def _branch(self, module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
        self._f = out.detach()

    def _usual_block(self, block: MlpBlock) -> Any:
        def hook(module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
            branch, carried = self._f.norm(dim=1).mean(), args[0].detach().norm(dim=1).mean()
            self._put("branch_norm", branch)
            self._put("input_norm", carried)
            self.values.setdefault("ratio", []).append(self.values["branch_norm"][-1] / self.values["input_norm"][-1])
            self._put("output_norm", out.detach().norm(dim=1).mean())
            self._dead(out)
            out.register_hook(self._grad)

        return hook

    def _whole_block(self, block: MlpBlock) -> Any:
        def hook(module: nn.Module, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
            x, y, f = args[0].detach(), out.detach(), self._f
            x_N, y_N, f_N = x.norm(dim=1), y.norm(dim=1), f.norm(dim=1)
            ratio_N = f_N / x_N
            self._put("input_norm", x_N.mean())
            self._put("branch_norm", f_N.mean())
            self._put("output_norm", y_N.mean())
            self._put("forward_gain", (y_N / x_N).mean())
            self._put("branch_ratio", ratio_N.mean())
            self._put("branch_ratio_q10", ratio_N.quantile(0.1))
            self._put("branch_ratio_q90", ratio_N.quantile(0.9))
            self._put("branch_ratio_left_out", (x_N == 0).sum())
            self._put("branch_cosine", ((x * f).sum(1) / (x_N * f_N)).mean())
            self._dead(out)
            if "activation_grad_norm" not in self.values:
                self.values["activation_grad_norm"] = []
                args[0].register_hook(self._grad)
            out.register_hook(self._grad)

        return hook

    def _grad(self, grad: torch.Tensor) -> None:
        self._put("activation_grad_norm", BATCH * grad.norm(dim=1).mean())


def check_numbers(setup: Setup, training: Training) -> None:
    """The hooks by hand read what our probes read.

    Args:
        setup: of the benchmark.
        training: of the mlp, with our probes; it is used up: its norms and gradients are another step's.

    Raises:
        AssertionError: another number.
    """
    net = MLP.theirs(1).to(setup.device)
    x, y = next(in_memory(training.parts.data))
    check_same(training.parts.network, net, x)
    hooks = BlockHooks(all_of_ours=True)
    hooks.start(net)
    F.cross_entropy(net(x), y).backward()
    hooks.before()
    probe = training.parts.probe
    training.parts.flat.zero_grad()
    probe.arm(BATCH)
    F.cross_entropy(training.parts.network(x), y).backward()
    probe.after_backward()
    probe.before_update()
    probe.after_update()
    ours = probe.collect().sent().row(0)["values"]
    theirs, grads = hooks.values, hooks.values.pop("activation_grad_norm")[::-1]
    theirs |= {"activation_grad_norm_input": grads[:-1], "activation_grad_norm_output": grads[1:]}
    theirs["shortcut_norm"] = theirs["input_norm"]  # the shortcut is the identity, which the hooks know
    mine = ours["block"] | {name: ours["layer"][name] for name in ("response_std", "dead_fraction")}
    mine["dead_fraction"] = mine["dead_fraction"][:-1]  # no activation follows the head
    assert set(theirs) == set(mine)
    for name, values in mine.items():
        np.testing.assert_allclose(values, theirs[name], rtol=2e-2, atol=1e-4, err_msg=name)
