"""Which parameter belongs to which scope: the rows of grad_norm, weight_norm and update_ratio."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plainres.flat import FlatParameters
from plainres.models.layer import NORMS
from plainres.models.networks import Network, layer_sites


@dataclass(frozen=True)
class ParameterScopes:
    """Names of each scope's parameters in forward order, and where they stand in the flat buffer.

    Scopes: ``layer`` (weight matrices and filters of stem, branches and head), ``norm_scale``, ``norm_shift``,
    ``bias``, ``embedding`` (class token, positions), and ``connection`` for what shortcuts, scales and gates bring.
    """

    names: dict[str, list[str]]
    positions: dict[str, npt.NDArray[np.int64]]


def parameter_scopes(network: Network, flat: FlatParameters) -> ParameterScopes:
    """Sort the parameters of a network into scopes."""
    layers = [site.name for site in layer_sites(network)]
    norms = {name for name, module in network.named_modules() if isinstance(module, NORMS)}
    connection = set(network.connection_parameters())
    names: dict[str, list[str]] = {"layer": layers}
    for name, _ in network.named_parameters():
        if name not in layers:
            scope = "connection" if name in connection else small_scope(name, norms)
            names.setdefault(scope, []).append(name)
    where = {name: i for i, name in enumerate(flat.names)}
    positions = {scope: np.array([where[n] for n in members]) for scope, members in names.items()}
    return ParameterScopes(names, positions)


def small_scope(name: str, norms: set[str]) -> str:
    """Scope of a parameter that is no weight matrix, from its name and the names of the norm modules."""
    owner, _, leaf = name.rpartition(".")
    if owner in norms:
        return "norm_scale" if leaf == "weight" else "norm_shift"
    return "bias" if leaf == "bias" else "embedding"
