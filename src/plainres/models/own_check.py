"""Whether a user's branch or shortcut is what plainres needs, tried on a few numbers before anything is trained."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from plainres.errors import UserError
from plainres.models.layer import ACTIVATIONS, NORMS, OPS
from plainres.models.networks import Network
from plainres.models.own import OwnBranch, OwnShortcut, same_bits
from plainres.options import ZeroInit
from plainres.own_class import words_of
from plainres.seeding import generator, global_draws

Own = OwnBranch | OwnShortcut
BATCH = 4
_AXES = {2: "(examples, width)", 3: "(examples, tokens, width)", 4: "(examples, width, rows, columns)"}


class _SeenError(Exception):
    """The own part has been reached; what follows is not needed."""


def check_own(network: Network, input_shape: tuple[int, ...], zero_init: ZeroInit = ZeroInit.none) -> None:
    """Try the first own part of every width, and whether those of two blocks are independent.

    Args:
        network: on the meta device.
        input_shape: (C, H, W) of an example.
        zero_init: the connection's: with ``last_weight`` a branch has to be 0 once that weight is.

    Raises:
        UserError: names the field, the block, what is wrong, and the remedy.
    """
    with global_draws(0, "own check"):
        for kind in (OwnBranch, OwnShortcut):
            found: list[Any] = [m for m in network.modules() if isinstance(m, kind)]
            for own in {part.width: part for part in reversed(found)}.values():
                x = _input_of(network, own, input_shape)
                _Trial(own, x).run()
                if kind is OwnBranch and zero_init is ZeroInit.last_weight:
                    _check_last_weight(own, x)
            _check_independent(found)


def _input_of(network: Network, own: Own, input_shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers of the shape that the trunk has there."""
    shape: list[int] = []

    def note(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        shape.extend(args[0].shape)
        raise _SeenError

    handle = own.register_forward_pre_hook(note)
    try:
        with torch.no_grad():
            network(torch.empty((BATCH, *input_shape), device="meta"))
    except _SeenError:
        pass
    finally:
        handle.remove()
    return torch.randn(shape, generator=generator(0, "own check"))


def _where(own: Own, module: nn.Module) -> str:
    return f"{own.field}: block {own.index}: {type(module).__name__}"


class _Trial:
    """One own part on a few numbers."""

    def __init__(self, own: Own, x: torch.Tensor) -> None:
        self._own, self._x = own, x
        self._module = own.fresh(0)
        self._where = _where(own, self._module)

    def run(self) -> None:
        """Raises: UserError for the first thing that is wrong."""
        self._parameters()
        self._forward_and_backward()
        with torch.no_grad():
            forward(self._module.eval(), self._x.clone(), self._where)
        self._without_numbers()

    def _refuse(self, sentence: str) -> UserError:
        return UserError(f"{self._where}: {sentence}")

    def _parameters(self) -> None:
        """Of one kind, under one name each, and the same at every construction."""
        once = dict(self._module.named_parameters())
        for name, p in once.items():
            if p.dtype is not torch.float32:
                raise self._refuse(f"parameter {name} is {_kind(p)}; it must be float32, or a buffer")
            if not p.requires_grad:
                raise self._refuse(f"parameter {name} is not trained; make it a buffer")
        for name, p in self._module.named_parameters(remove_duplicate=False):
            if name not in once:
                first = next(n for n, q in once.items() if q is p)
                raise self._refuse(f"{first} and {name} are one parameter; give it one name, or make two")
        again = _numbers(self._own.fresh(0))
        for name, value in _numbers(self._module).items():
            if not same_bits(value, again[name]):
                raise self._refuse(
                    f"{name} begins with other numbers each time, so no run could be repeated; draw them with the "
                    "global generators of torch, numpy or random"
                )

    def _forward_and_backward(self) -> None:
        leaf = self._x.clone().requires_grad_()
        given, states, uncalled = leaf.clone(), _global_states(), _watch_layers(self._module)
        y = forward(self._module, given, self._where)
        if _global_states() != states:
            raise self._refuse(
                "draws random numbers in its forward pass (dropout?), so both arms could not see the same ones; "
                "leave that out, or use connection.drop"
            )
        if given._version or not torch.equal(given, self._x):
            raise self._refuse("writes to its input, which the trunk still needs; use operations that are not in place")
        with torch.no_grad():
            again = forward(self._module, self._x.clone(), self._where)
        if not same_bits(again, y):
            raise self._refuse(
                "gives other numbers for the same input and weights, so no run could be repeated; leave out what is "
                "random or kept from call to call"
            )
        if uncalled:
            raise self._refuse(
                f"layer {min(uncalled)} is never called, so no probe would see it; call it as a module, or leave it out"
            )
        self._backward(y, leaf)

    def _backward(self, y: torch.Tensor, leaf: torch.Tensor) -> None:
        try:
            y.sum().backward()
        except RuntimeError as error:
            raise self._refuse(
                f"has no backward pass ({words_of(error)}); leave out detach and in-place writes"
            ) from error
        if leaf.grad is None:
            raise self._refuse("passes no gradient to its input; leave out detach")
        for name, p in self._module.named_parameters():
            if p.grad is None:
                raise self._refuse(f"parameter {name} gets no gradient; use it without detach, or leave it out")

    def _without_numbers(self) -> None:
        """The audit reads shapes and operations without numbers."""
        try:
            with torch.no_grad():
                self._module.to("meta")(self._x.to("meta"))
        except Exception as error:  # whatever the user's forward raises
            raise self._refuse(
                f"cannot run on shapes alone ({words_of(error)}); leave out .item(), numpy and tests of values, make "
                "kept tensors buffers, and new ones with device=x.device"
            ) from error


def forward(module: nn.Module, x: torch.Tensor, where: str) -> torch.Tensor:
    """The user's forward pass.

    Raises:
        UserError: it fails, or what it gives is not a tensor like ``x``.
    """
    shape = tuple(x.shape)
    try:
        y = module(x)
    except Exception as error:  # whatever the user's forward raises
        raise UserError(
            f"{where}: fails on an input of shape {shape} ({words_of(error)}); it is given {_AXES[len(shape)]}"
        ) from error
    if not isinstance(y, torch.Tensor):
        raise UserError(f"{where}: gives {_article(type(y).__name__)}; it must give one tensor")
    if y.dtype is not torch.float32:
        raise UserError(f"{where}: gives {_kind(y)}; it must keep float32")
    if tuple(y.shape) != shape:
        raise UserError(
            f"{where}: gives shape {tuple(y.shape)} for shape {shape}; it must keep the shape {_AXES[len(shape)]}"
        )
    return y


def _numbers(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _kind(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _article(name: str) -> str:
    return "nothing" if name == "NoneType" else f"a {name}"


def _watch_layers(module: nn.Module) -> set[str]:
    """Names of layers, norms and activations; each leaves the set when it is called."""
    waiting = {name for name, m in module.named_modules() if isinstance(m, (*OPS, *NORMS, *ACTIVATIONS))}
    for name, layer in module.named_modules():
        if name in waiting:
            layer.register_forward_hook(lambda m, args, out, name=name: waiting.discard(name))
    return waiting


def _check_last_weight(own: Own, x: torch.Tensor) -> None:
    """The class says which weight it is, and without it the branch is 0."""
    module, asked = own.fresh(0), "connection.zero_init=last_weight"
    kind, found = type(module).__name__, dict(module.named_parameters())
    name = getattr(module, "last_weight", None)
    if name not in found:
        has = f"{kind}.last_weight = {name!r} is no parameter of it" if name else f"{kind} must name its last weight"
        raise UserError(f"{asked}: {has}; write last_weight = 'NAME' in the class, NAME one of {', '.join(found)}")
    with torch.no_grad():
        found[name].zero_()
        y = forward(module, x.clone(), _where(own, module))
    if y.any():
        raise UserError(
            f"{asked}: {kind} is not 0 when its {name} is; name the weight that everything passes, and start what is "
            "added after it (its bias) at 0"
        )


def _check_independent(found: Sequence[Own]) -> None:
    if len(found) < 2:
        return
    one, two = (own.fresh(0) for own in found[:2])
    ids = {id(p) for p in one.parameters()}
    shared = [name for name, p in two.named_parameters() if id(p) in ids]
    if shared:
        raise UserError(
            f"{_where(found[1], two)}: shares the parameter {shared[0]} with block {found[0].index}; make parameters "
            "in its constructor"
        )


def _global_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), numpy_state[1].tolist(), numpy_state[2], random.getstate()
