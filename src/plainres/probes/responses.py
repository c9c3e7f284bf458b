"""What layers put out: response_std and dead_fraction, one forward hook each.

    response_std    standard deviation (over batch and units) of a layer's response: its output after its norm,
                    before nonlinearity and addition (He 2015, Fig. 7); the layer's own output where no norm
                    follows, which the run's record labels
    dead_fraction   share of units (conv: channels, over batch and space) that are 0 on the whole batch, after the
                    activation that follows the layer; for the last layer of a branch that is the one after the
                    addition; null where no activation follows

Both belong to the step whose batch they saw.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from plainres.models.networks import LayerSite
from plainres.probes.hooks import ForwardHooks, Hook
from plainres.probes.readings import Readings
from plainres.probes.together import Together


def response_stds(outputs_K: torch.Tensor) -> torch.Tensor:
    """(K, …) -> (K,) float32: population standard deviation over all elements of each."""
    flat = outputs_K.flatten(1).float()
    centred = flat - flat.mean(1, keepdim=True)
    norms: torch.Tensor = torch.linalg.vector_norm(centred, dim=1)
    return norms / math.sqrt(flat.shape[1])


def dead_fractions(outputs_K: torch.Tensor) -> torch.Tensor:
    """(K, N, C, …) or (K, N, T, D) -> (K,): share of units (channels, features) that are 0 for the whole batch and at
    every place or token."""
    unit = 3 if outputs_K.dim() == 4 else 2
    others = [dim for dim in range(1, outputs_K.dim()) if dim != unit]
    largest_KC = outputs_K.abs().amax(others)  # not a number where one of them is: not dead
    return (largest_KC == 0).float().mean(1)


_METRICS = {"response_std": response_stds, "dead_fraction": dead_fractions}


class LayerOutputs:
    """Forward hooks on the layers' norms and activations during a probed step."""

    def __init__(self, sites: list[LayerSite], at_once: bool = False) -> None:
        """
        Args:
            sites: of the layers.
            at_once: reduce every output when it comes (together.py).
        """
        self._sites = sites
        acting = [i for i, site in enumerate(sites) if site.activation is not None]
        self._places = {"response_std": list(range(len(sites))), "dead_fraction": acting}  # layers that have the metric
        self._seen = {name: Together(f, len(sites), at_once) for name, f in _METRICS.items()}
        hooks = [(site.response, self._keep("response_std", i)) for i, site in enumerate(sites)]
        hooks += [(s.activation, self._keep("dead_fraction", i)) for i, s in enumerate(sites) if s.activation]
        self._hooks = ForwardHooks(hooks)

    def arm(self) -> None:
        for seen in self._seen.values():
            seen.clear()
        self._hooks.put_on()

    def disarm(self) -> None:
        self._hooks.take_off()
        for seen in self._seen.values():
            seen.flush()

    def _keep(self, metric: str, index: int) -> Hook:
        add = self._seen[metric].add

        def hook(module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            add(index, output)

        return hook

    def collect(self) -> list[torch.Tensor]:
        """Raises: RuntimeError when a layer was never seen."""
        collected: list[torch.Tensor] = []
        for metric, outputs in self._seen.items():
            seen, places = outputs.found(), self._places[metric]
            if lost := [i for i in places if seen[i] is None]:
                raise RuntimeError(f"the {metric} probe never saw layer {self._sites[lost[0]].name} in a probed step")
            known = [value for value in seen if value is not None]
            collected.append(torch.stack(known) if known else collected[0].new_empty(0))  # no layer has an activation
        return collected

    def put(self, readings: Readings, values: list[npt.NDArray[np.float32]]) -> None:
        for metric, found in zip(self._seen, values, strict=True):
            whole = np.full(len(self._sites), np.nan, np.float32)
            whole[self._places[metric]] = found
            readings.put("layer", metric, whole, NO_ACTIVATION)


NO_ACTIVATION = "no activation follows this layer"
