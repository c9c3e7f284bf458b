"""Probes that users write: ``probe.own=[package.module:Class]``, beside ours and at the same steps."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from plainres.errors import UserError
from plainres.probes.readings import Readings


class OwnProbe:
    """Base of a user's probe. Called in this order in every probed step; override what is needed, and ``read``.

    A probe must change no number: it reads parameters, gradients and, by hooks that ``arm`` sets and ``after_backward``
    takes off, activations.
    """

    def __init__(self, network: nn.Module) -> None:
        """
        Args:
            network: the run's; ``network.blocks`` are its blocks.
        """
        self.network = network

    def arm(self, num_examples: int) -> None:
        """Before the forward pass of a batch of so many examples."""

    def after_backward(self) -> None:
        """Gradients are there, unclipped."""

    def before_update(self) -> None:
        """Gradients are clipped, parameters not yet moved."""

    def after_update(self) -> None:
        """Parameters have moved."""

    def read(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """scope -> metric -> one number for every member of the scope; NaN where it does not exist.

        Scopes are those of run.json's ``layout``: ``block``, ``layer``, ``norm_scale``, …
        """
        raise NotImplementedError


def read_own(probe: OwnProbe, layout: Mapping[str, Sequence[str]]) -> Readings:
    """A user's numbers of a step.

    Raises:
        UserError: an unknown scope, or a wrong number of values.
    """
    name, readings, found = type(probe).__name__, Readings(), probe.read()
    if not (isinstance(found, Mapping) and all(isinstance(metrics, Mapping) for metrics in found.values())):
        raise UserError(
            f'probe.own: {name}: read gave no scope -> metric -> numbers; return as {{"block": {{"mine": [0.1, ...]}}}}'
        )
    for scope, metrics in found.items():
        if scope not in layout:
            raise UserError(f"probe.own: {name}: there is no scope {scope}; use one of {', '.join(layout)}")
        for metric, values in metrics.items():
            try:
                array = np.asarray(values, dtype=np.float32).copy()  # it may be written to before it is kept
            except (TypeError, ValueError, RuntimeError) as error:  # None, text, uneven lists, a tensor with a gradient
                raise UserError(
                    f"probe.own: {name}: {metric} is no list of numbers ({str(error).splitlines()[0]}); "
                    "give floats, and NaN where there is none"
                ) from error
            if array.shape != (len(layout[scope]),):
                members = len(layout[scope])
                raise UserError(
                    f"probe.own: {name}: {metric} has shape {array.shape}; scope {scope} has {members} members"
                )
            readings.put(scope, metric, array, f"{name} gave no number")
    return readings


def add_own(readings: Readings, name: str, own: Readings) -> None:
    """Numbers of a user's probe beside those that are there.

    Raises:
        UserError: one has the name of another metric.
    """
    for scope, metrics in own.values.items():
        for metric in metrics:
            if metric in readings.values.get(scope, {}):
                raise UserError(f"probe.own: {name}: {metric} of scope {scope} is measured already; use another name")
    readings.add(own)
