"""Whether a user's probe can be read and changes no number, tried on one small step before anything is trained."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from plainres.errors import UserError
from plainres.flat import FlatParameters
from plainres.models.networks import Network
from plainres.models.own import load_class, same_bits
from plainres.own_class import words_of
from plainres.probes.own import OwnProbe
from plainres.probes.probe import Probe


def check_own_probes(
    texts: Sequence[str], network: Network, flat: FlatParameters, x: torch.Tensor, y: torch.Tensor
) -> None:
    """Read each probe alone in a step that moves nothing.

    Args:
        texts: ``package.module:Class`` of each.
        network, flat: with values, on the CPU.
        x, y: a few examples.

    Raises:
        UserError: names the probe and what is wrong.
    """
    _backward(network, flat, x, y)
    data, grad = flat.data.clone(), flat.grad.clone()
    for text in texts:
        kind = load_class("probe.own", text, OwnProbe)
        try:
            probe = Probe(network, flat, [kind(network)])
            probe.arm(len(y))
            _backward(network, flat, x, y)
            probe.after_backward()
            left = [name for name, module in network.named_modules() if _hooks(module)]
            probe.before_update()
            probe.after_update()
            probe.collect().sent().row(0)
        except UserError:
            raise
        except Exception as error:  # whatever the user's probe raises
            raise UserError(
                f"probe.own: {kind.__name__}: fails in a probed step ({words_of(error)}); its methods are called in "
                "the order arm, after_backward, before_update, after_update, read"
            ) from error
        if left:
            raise UserError(
                f"probe.own: {kind.__name__}: leaves hooks on {left[0] or 'the network'}; remove them in "
                "after_backward, or the next probed step has them twice"
            )
        if not (same_bits(flat.data, data) and same_bits(flat.grad, grad)):
            raise UserError(
                f"probe.own: {kind.__name__}: changes parameters or gradients, so training would be another; read "
                "only, and return nothing from a hook"
            )


def _hooks(module: nn.Module) -> int:
    kept = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return sum(map(len, kept))


def _backward(network: Network, flat: FlatParameters, x: torch.Tensor, y: torch.Tensor) -> None:
    network.begin_step(0, 0)
    flat.zero_grad()
    F.cross_entropy(network(x), y).backward()
