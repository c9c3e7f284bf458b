"""Whether a user's branch or shortcut is what plainres needs, tried on a few numbers before anything is trained."""

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from plainres.errors import UserError
from plainres.models.layer import ACTIVATIONS, NORMS, OPS
from plainres.models.networks import Network
from plainres.models.own import OwnBranch, OwnShortcut, words_of
from plainres.seeding import generator

Own = OwnBranch | OwnShortcut
BATCH = 4


class _SeenError(Exception):
    """The first own part has been reached; what follows is not needed."""


def check_own(network: Network, input_shape: tuple[int, ...]) -> None:
    """Try the first block's own parts, and whether those of the next block are independent of them.

    Args:
        network: on the meta device.
        input_shape: (C, H, W) of an example.

    Raises:
        UserError: names the block, what is wrong, and the remedy.
    """
    for kind in (OwnBranch, OwnShortcut):
        found = [m for m in network.modules() if isinstance(m, kind)]
        if found:
            _check_instance(found[0], _input_of(network, found[0], input_shape))
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


def _check_instance(own: Own, x: torch.Tensor) -> None:
    module = own.fresh(0)
    name = type(module).__name__
    where = f"{own.field}: block {own.index}: {name}"
    for parameter, p in module.named_parameters():
        if p.dtype is not torch.float32 or not p.requires_grad:
            raise UserError(f"{where}: parameter {parameter} must be float32 and trained; make it a buffer")
    given, states, uncalled = x.clone(), _global_states(), _watch_layers(module)
    y = _forward(module, given.requires_grad_(), where)
    if _global_states() != states:
        raise UserError(
            f"{where}: draws random numbers in its forward pass (dropout?), so both arms could not see the same ones; "
            "leave that out, or use connection.drop"
        )
    if tuple(y.shape) != tuple(x.shape):
        mine, wanted = ("x".join(map(str, s[1:])) for s in (y.shape, x.shape))
        raise UserError(f"{where}: gives {mine} where it was given {wanted}; it must keep the shape of its input")
    if given._version or not torch.equal(given, x):
        raise UserError(
            f"{where}: writes to its input, which the trunk still needs; use operations that are not in place"
        )
    with torch.no_grad():
        again = _forward(own.fresh(0), x.clone(), where)
    if not torch.equal(again, y):
        raise UserError(
            f"{where}: gives other numbers for the same input and weights; a run could not be repeated: "
            "leave out what is random or kept from call to call"
        )
    if uncalled:
        layer = sorted(uncalled)[0]
        raise UserError(
            f"{where}: its layer {layer} is never called as a module, so no probe would see it; call it, or"
        )
    _backward(y, where)
    _on_meta(module, x, where)


def _watch_layers(module: nn.Module) -> set[str]:
    """Names of layers, norms and activations; each leaves the set when it is called."""
    waiting = {name for name, m in module.named_modules() if isinstance(m, (*OPS, *NORMS, *ACTIVATIONS))}
    for name, layer in module.named_modules():
        if name in waiting:
            layer.register_forward_hook(lambda m, args, out, name=name: waiting.discard(name))
    return waiting


def _forward(module: nn.Module, x: torch.Tensor, where: str) -> torch.Tensor:
    try:
        y = module(x)
    except Exception as error:  # whatever the user's forward raises
        raise UserError(
            f"{where}: fails on {_shape(x)} ({words_of(error)}); it is given (examples, …, width)"
        ) from error
    if not isinstance(y, torch.Tensor) or y.dtype is not torch.float32:
        raise UserError(
            f"{where}: must return one float32 tensor, not {type(y).__name__}; it keeps the shape of its input"
        )
    return y


def _backward(y: torch.Tensor, where: str) -> None:
    try:
        y.sum().backward()
    except RuntimeError as error:
        raise UserError(
            f"{where}: has no backward pass ({words_of(error)}); leave out detach and in-place writes"
        ) from error


def _on_meta(module: nn.Module, x: torch.Tensor, where: str) -> None:
    """Shapes and operations are read without numbers."""
    try:
        with torch.no_grad():
            module.to("meta")(x.to("meta"))
    except Exception as error:  # whatever the user's forward raises
        raise UserError(
            f"{where}: needs the numbers to know what to do ({words_of(error)}); leave out .item(), numpy and the like"
        ) from error


def _check_independent(found: list[Any]) -> None:
    if len(found) < 2:
        return
    one, two = (own.fresh(0) for own in found[:2])
    ids = {id(p) for p in one.parameters()}
    shared = [name for name, p in two.named_parameters() if id(p) in ids]
    if shared:
        raise UserError(
            f"{found[0].field}: blocks {found[0].index} and {found[1].index} share the parameter {shared[0]} of "
            f"{type(two).__name__}; make parameters in its constructor"
        )


def _global_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), numpy_state[1].tolist(), random.getstate()


def _shape(x: torch.Tensor) -> str:
    return "x".join(map(str, x.shape))
