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
from collections.abc import Callable

import torch
from torch import nn

from plainres.models.networks import LayerSite
from plainres.probes.readings import Readings


def response_std(output: torch.Tensor) -> torch.Tensor:
    """Population standard deviation over all elements, in float32."""
    return output.detach().float().std(correction=0)


def dead_fraction(output: torch.Tensor) -> torch.Tensor:
    """Share of units (channels, features) that are 0 for the whole batch and at every place or token."""
    units = output.detach().movedim(-1 if output.dim() == 3 else 1, 0).flatten(1)
    return (units == 0).all(1).float().mean()


_METRICS = {"response_std": response_std, "dead_fraction": dead_fraction}


class LayerOutputs:
    """Forward hooks on the layers' norms and activations during a probed step."""

    def __init__(self, sites: list[LayerSite]) -> None:
        self._sites = sites
        self._seen: dict[str, list[torch.Tensor | None]] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def arm(self) -> None:
        self._seen = {metric: [None] * len(self._sites) for metric in _METRICS}
        for i, site in enumerate(self._sites):
            self._handles.append(site.response.register_forward_hook(self._keep("response_std", i)))
            if site.activation is not None:
                self._handles.append(site.activation.register_forward_hook(self._keep("dead_fraction", i)))

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _keep(self, metric: str, index: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
        measure = _METRICS[metric]

        def hook(module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self._seen[metric][index] = measure(output)

        return hook

    def read(self, readings: Readings) -> None:
        """Raises: RuntimeError when a layer was never seen."""
        for metric, seen in self._seen.items():
            expected = [s for s in self._sites if metric == "response_std" or s.activation is not None]
            if sum(v is not None for v in seen) != len(expected):
                lost = next(s for s, v in zip(self._sites, seen, strict=True) if v is None)
                raise RuntimeError(f"the {metric} probe never saw layer {lost.name} in a probed step")
            known = [v for v in seen if v is not None]
            values = iter(torch.stack(known).cpu().tolist() if known else [])
            readings.put("layer", metric, [math.nan if v is None else next(values) for v in seen], NO_ACTIVATION)


NO_ACTIVATION = "no activation follows this layer"
