"""Which parameter of a model belongs to which scope."""

from collections.abc import Iterable

import numpy as np
from torch import nn

from plainres.probes.parameters import small_scope


class ParameterList:
    """A model's parameters, each once, with their scopes.

    Scopes: ``layer`` (weight matrices and filters), ``norm_scale``, ``norm_shift``, ``bias``, ``embedding`` (tables,
    class tokens, positions), ``scalar`` (one number a channel or less, outside norms), and ``connection`` for what
    the shortcuts and scales of the sites bring. Order is that of ``named_parameters``, so that of definition.

    Attributes:
        names: of every parameter.
        tensors: the parameters.
        positions: scope -> positions of its members in ``names``.
        layout: scope -> names of its members.
    """

    def __init__(self, model: nn.Module, scales: Iterable[str]) -> None:
        """
        Args:
            model: whose parameters.
            scales: paths of modules that belong to the connection.
        """
        modules = dict(model.named_modules())
        # By name, because timm and transformers have norms of their own that share no base class.
        norms = {name for name, m in modules.items() if "norm" in type(m).__name__.lower()}
        connection = tuple(f"{path}." for path in scales)
        self.names = [name for name, _ in model.named_parameters()]
        self.tensors = [p for _, p in model.named_parameters()]
        members: dict[str, list[int]] = {}
        for i, (name, parameter) in enumerate(model.named_parameters()):
            owner = modules.get(name.rpartition(".")[0])
            scope = "connection" if name.startswith(connection) else _scope(name, parameter, owner, norms)
            members.setdefault(scope, []).append(i)
        self.positions = {scope: np.array(where) for scope, where in members.items()}
        self.layout = {scope: [self.names[i] for i in where] for scope, where in members.items()}
        self.numel = np.array([p.numel() for p in self.tensors], dtype=np.int64)


def _scope(name: str, parameter: nn.Parameter, owner: nn.Module | None, norms: set[str]) -> str:
    leaf = name.rpartition(".")[2]
    # A class token or a table of positions is (1, T, D); a weight of one output is called a weight.
    matrix = parameter.dim() > 1 and (parameter.shape[0] > 1 or "weight" in leaf)
    if matrix and not isinstance(owner, nn.Embedding):
        return "layer"
    scope = small_scope(name, norms)
    return "scalar" if scope == "embedding" and parameter.dim() <= 1 else scope
