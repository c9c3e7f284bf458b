"""The signature of an arm: what the audit of a pair compares, reduced to hashes, sizes and lists of operations.

The operations are those of a forward pass, recorded on the meta device and split into those of branch and post
(which must be equal in both arms) and those that the connection brings (which it declares).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from plainres.data.batches import Batches
from plainres.data.dataset import Dataset
from plainres.models.block import Block
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.networks import Network
from plainres.models.parts import ConnectionPart
from plainres.models.rules import rules_of
from plainres.models.shapes import ShapesOnly, check_additions
from plainres.models.shortcuts import Pad, Projection, Resized
from plainres.options import Shortcut
from plainres.pair import identity_fields
from plainres.schema import RunConf, plain_values


@dataclass(frozen=True)
class Signature:
    """What an arm is, in a form that two arms can be compared by.

    Attributes:
        draws: hash of the initial value of every parameter, by name.
        sizes: number of elements of every parameter, by name.
        connection_parameters: names of the parameters that the connection brings.
        order: hash of the data indices of the whole budget.
        operations: what branch and post do, in order: operation, shapes, settings.
        connection_operations: what the connection does, each kind once.
        declared: what the connection declares beside parts and operations, in words.
        settings: every identity field but the connection's.
    """

    draws: dict[str, str]
    sizes: dict[str, int]
    connection_parameters: tuple[str, ...]
    order: str
    operations: tuple[str, ...]
    connection_operations: tuple[str, ...]
    declared: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def num_parameters(self) -> int:
        return sum(self.sizes.values())

    def summary(self) -> dict[str, Any]:
        """The short form that run.json keeps: counts and hashes."""
        rules = {
            name: {k: v for k, v in self.settings.items() if setting_group(k) == name}
            for name in ("optimizer", "schedule")
        }
        return {
            "num_parameters": self.num_parameters,
            "draws": digest(sorted(self.draws.items())),
            "order": self.order,
            "operations": digest(self.operations),
            "optimizer": digest(rules["optimizer"]),
            "schedule": digest(rules["schedule"]),
            "budget": f"{self.settings['trainer.steps']} steps of {self.settings['trainer.batch']}",
        }


_BUDGET = ("trainer.steps", "trainer.batch")


def setting_group(name: str) -> str:
    """The check that a setting belongs to: optimizer, schedule, budget, data, model, trainer or settings."""
    head, dot, _ = name.partition(".")
    return "budget" if name in _BUDGET else head if dot else "settings"


def digest(value: object) -> str:
    """16 hex digits that name a value by its ``repr``."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class _Recorder(ShapesOnly):
    """Writes down every operation below autograd, with whose part of the network it belongs to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.connection_depth = 0
        self.shared: list[str] = []
        self.connection: list[str] = []
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        line = f"{func.__name__}({', '.join(map(_describe, [*args, *(kwargs or {}).values()]))})"
        (self.connection if self.connection_depth else self.shared).append(line)
        if count := flop_counters().get(getattr(func, "_overloadpacket", None)):
            self.flops += int(count(*args, **(kwargs or {}), out_val=out))
        return out


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_describe, value))}]"
    return repr(value)


@cache
def flop_counters() -> dict[Any, Any]:
    """torch's formulas for the operations that multiply matrices; imported late, because it brings triton."""
    from torch.utils.flop_counter import flop_registry

    return flop_registry


@dataclass(frozen=True)
class Operations:
    """What a forward pass in training mode does.

    Attributes:
        shared: operations of stem, branches, post and head, in order.
        connection: those of the connections.
        flops: floating-point operations of its matrix products and convolutions (all else is not counted; a
            multiplication with its addition counts as two), for the whole batch.
    """

    shared: list[str]
    connection: list[str]
    flops: int


def record_operations(network: nn.Module, batch: int, input_shape: Sequence[int]) -> Operations:
    """Run a forward pass on the meta device and write down what it does."""
    recorder = _Recorder()

    def enter(module: nn.Module, args: Any) -> None:
        recorder.connection_depth += 1

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        recorder.connection_depth -= 1

    handles = []
    for part in (m for m in network.modules() if isinstance(m, ConnectionPart)):
        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    x = torch.empty((batch, *input_shape), device="meta")
    with torch.no_grad(), recorder:
        network(x)
    for handle in handles:
        handle.remove()
    return Operations(recorder.shared, recorder.connection, recorder.flops)


def sign(conf: RunConf, network: Network, data: Dataset, recorded: Operations | None = None) -> Signature:
    """Signature of an arm.

    Args:
        conf: its settings.
        network: on the meta device.
        data: for the shape of an example and the order of the data.
        recorded: its operations, where ``record_operations`` has been asked before.
    """
    rules = rules_of(conf)
    recorded = recorded or record_operations(network, conf.trainer.micro_batch, data.input_shape)
    return Signature(
        draws=Draws(network, conf.model, rules, conf.seed).hashes(),
        sizes={name: p.numel() for name, p in network.named_parameters()},
        connection_parameters=tuple(network.connection_parameters()),
        order=Batches(conf.seed, data.num_train, conf.trainer.batch).digest(conf.trainer.steps),
        operations=tuple(recorded.shared),
        connection_operations=tuple(dict.fromkeys(recorded.connection)),
        declared=(*rules.declared(), *boundary_words(conf, network), *start_words(conf)),
        settings={k: v for k, v in identity_fields(conf).items() if not k.startswith("connection.")},
    )


def boundary_words(conf: RunConf, network: Network) -> list[str]:
    """Which shortcuts change width or resolution, or are learned, instead of being the identity, in words."""
    if conf.connection.shortcut is Shortcut.none:
        return []
    changing = (Projection, Pad, Resized)
    blocks = [b for b in network.blocks if isinstance(b, Block) and isinstance(b.shortcut, changing)]
    if not blocks:
        return []
    added = sum(p.numel() for b in blocks if b.shortcut is not None for p in b.shortcut.parameters())
    which = f"block{'s' if len(blocks) > 1 else ''} {', '.join(str(b.index) for b in blocks)}"
    where = which if len(blocks) < len(network.blocks) else "every block"
    shortcuts = [b.shortcut.resize if isinstance(b.shortcut, Resized) else b.shortcut for b in blocks]
    kinds = " or ".join(sorted({_kind(shortcut) for shortcut in shortcuts}))
    claim = f", with {added:,} parameters: what it shows is no longer about identity shortcuts alone" if added else ""
    return [f"in {where} the shortcut is not the identity but {kinds}{claim}"]


def start_words(conf: RunConf) -> list[str]:
    """What a constructed arm's start differs in from that of its plain partner, in words."""
    if conf.start.depth is None or conf.connection.shortcut is Shortcut.none:
        return []
    return [f"start: built from its own trained depth {conf.start.depth}; inserted branches end in 0"]


def _kind(shortcut: nn.Module | None) -> str:
    if isinstance(shortcut, Pad):
        return "average pooling and zero channels" if shortcut.pool else "subsampling and zero channels (option A)"
    return "a learned projection"


def arm_signature(conf: RunConf, data: Dataset) -> Signature:
    """Signature of the arm that these settings describe."""
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    return sign(conf, network, data, _operations(conf, data, network))


def forward_flops(conf: RunConf, data: Dataset) -> int:
    """``Operations.flops`` of the arm that these settings describe, for one example. A training step costs about
    three times as much: the backward pass has two matrix products for each of the forward pass's."""
    return _operations(conf, data).flops // conf.trainer.micro_batch


def _operations(conf: RunConf, data: Dataset, network: Network | None = None) -> Operations:
    # Operations depend on neither seed nor data: a warm worker records them once for all seeds of a cell.
    parts = (plain_values(conf.model), plain_values(conf.connection), conf.depth, conf.trainer.micro_batch)
    key = repr((parts, data.input_shape, data.num_classes))
    if key not in _recorded:
        network = network or build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
        check_additions(network, conf.trainer.micro_batch, data.input_shape)
        _recorded[key] = record_operations(network, conf.trainer.micro_batch, data.input_shape)
    return _recorded[key]


_recorded: dict[str, Operations] = {}
