"""Which parameter belongs to which scope: the rows of grad_norm, weight_norm and update_ratio."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plainres.flat import FlatParameters
from plainres.models.networks import Network, layer_sites


@dataclass(frozen=True)
class ParameterScopes:
    """Names of each scope's parameters in forward order, and where they stand in the flat buffer.

    Scopes: ``layer`` (weight matrices and filters of stem, branches and head), ``norm_scale``, ``norm_shift``,
    ``bias``, and ``connection`` for what shortcuts, scales and gates bring.
    """

    names: dict[str, list[str]]
    positions: dict[str, npt.NDArray[np.int64]]


def parameter_scopes(network: Network, flat: FlatParameters) -> ParameterScopes:
    """Sort the parameters of a network into scopes."""
    layers = [site.name for site in layer_sites(network)]
    names: dict[str, list[str]] = {"layer": layers}
    for name, parameter in network.named_parameters():
        if name not in layers:
            names.setdefault(_scope(name, parameter.dim()), []).append(name)
    where = {name: i for i, name in enumerate(flat.names)}
    positions = {scope: np.array([where[n] for n in members]) for scope, members in names.items()}
    return ParameterScopes(names, positions)


def _scope(name: str, dim: int) -> str:
    if name.endswith("norm.weight"):
        return "norm_scale"
    if name.endswith("norm.bias"):
        return "norm_shift"
    return "bias" if (name.endswith("bias") and ".branch." in name) or name == "head.bias" else "connection"
