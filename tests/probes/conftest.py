"""A probed step and its slow twin: a float64 copy of the network, written out with plain autograd."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from plainres.optim import build_optimizer
from plainres.probes.probe import Probe


@dataclass
class Step:
    """What the probe read, and what it is to be compared with."""

    network: Any
    flat: Any
    probe: Any
    row: dict[str, Any]
    before: dict[str, torch.Tensor]  # parameters around optimizer.step(), float64
    after: dict[str, torch.Tensor]
    twin: "Twin"

    def values(self, scope: str, metric: str) -> list[float | None]:
        return [None if v is None else float(v) for v in self.row["values"][scope][metric]]


class Twin:
    """Every tensor of one forward and backward pass in float64, with operations spelled out."""

    def __init__(self, network: Any, x_NCHW: torch.Tensor, y_N: torch.Tensor) -> None:
        self.p = {n: t.detach().double().requires_grad_() for n, t in network.named_parameters()}
        self.batch = len(y_N)
        self.mlp = self.p["stem.op.weight"].dim() == 2
        self.residual = network.blocks[0].shortcut is not None
        self.responses: list[torch.Tensor] = []
        self.activations: list[torch.Tensor] = []
        self.x, self.f, self.y = [], [], []
        self.num_blocks = len(network.blocks)
        self.m = len(network.blocks[0].branch)
        logits = self.forward(x_NCHW.double())
        self.responses.append(logits)
        self.loss = F.cross_entropy(logits, y_N)
        self.names = list(self.p)
        self.grads = dict(
            zip(self.names, torch.autograd.grad(self.loss, list(self.p.values()), retain_graph=True), strict=True)
        )
        self.trunk = [*self.x[:1], *self.y]
        self.trunk_grads = torch.autograd.grad(self.loss, self.trunk)

    def layer(self, x: torch.Tensor, path: str) -> torch.Tensor:
        w = self.p[f"{path}.op.weight"]
        z = F.linear(x, w) if self.mlp else F.conv2d(x, w, padding=1)
        y = F.batch_norm(z, None, None, self.p[f"{path}.norm.weight"], self.p[f"{path}.norm.bias"], training=True)
        self.responses.append(y)
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.layer(x.flatten(1) if self.mlp else x, "stem"))
        self.activations.append(x)
        for b in range(self.num_blocks):
            self.x.append(x)
            f = x
            for i in range(self.m):
                f = self.layer(f, f"blocks.{b}.branch.{i}")
                if i < self.m - 1:
                    f = F.relu(f)
                    self.activations.append(f)
            self.f.append(f)
            x = F.relu(x + f if self.residual else f)
            self.y.append(x)
            self.activations.append(x)
        return F.linear(x if self.mlp else x.mean((2, 3)), self.p["head.weight"], self.p["head.bias"])


@pytest.fixture(scope="session")
def take_step(make_conf, make_network, make_flat, tiny_data):
    """take_step(conf): a few updates, then a probed one in the trainer's order. ``prepare`` may change the network."""

    def take(conf, updates=3, prepare=None):
        network = make_network(conf)
        flat = make_flat(network, conf)
        optimizer = build_optimizer(conf.optimizer, flat)
        x, y = tiny_data.train.images[:32], tiny_data.train.y_N[:32]

        def backward():
            flat.zero_grad()
            F.cross_entropy(network(x), y).backward()

        for _ in range(updates):
            backward()
            optimizer.step()
        if prepare is not None:
            with torch.no_grad():
                prepare(network)
        twin = Twin(copy.deepcopy(network), x, y)
        probe = Probe(network, flat)
        probe.arm(len(y))
        backward()
        probe.after_backward()
        flat.grad.mul_(conf.optimizer.clip_norm or 1.0)  # as clipping does, after the gradients were read
        before = {n: p.detach().double().clone() for n, p in network.named_parameters()}
        probe.before_update()
        optimizer.step()
        probe.after_update()
        after = {n: p.detach().double().clone() for n, p in network.named_parameters()}
        return Step(network, flat, probe, probe.collect().sent().row(7), before, after, twin)

    return take
