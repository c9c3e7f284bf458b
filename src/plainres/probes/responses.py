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

    def read(self, readings: Readings) -> None:
        """Raises: RuntimeError when a layer was never seen."""
        for metric, outputs in self._seen.items():
            seen = outputs.found()
            expected = [s for s in self._sites if metric == "response_std" or s.activation is not None]
            if sum(v is not None for v in seen) != len(expected):
                lost = next(s for s, v in zip(self._sites, seen, strict=True) if v is None)
                raise RuntimeError(f"the {metric} probe never saw layer {lost.name} in a probed step")
            known = [v for v in seen if v is not None]
            values = iter(torch.stack(known).cpu().tolist() if known else [])
            readings.put("layer", metric, [math.nan if v is None else next(values) for v in seen], NO_ACTIVATION)


NO_ACTIVATION = "no activation follows this layer"
