"""Branches and shortcuts that users write: ``model.branch=package.module:Class``, ``connection.shortcut=…``.

The class is an nn.Module of (width, **settings) from x to the same shape. It is built on the CPU, with its own initial
values, drawn as a function of seed and block, so that both arms of a pair begin with the same numbers.
"""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from plainres.errors import UserError
from plainres.models.parts import ConnectionPart
from plainres.options import Shortcut
from plainres.own_class import import_named, words_of
from plainres.schema import RunConf
from plainres.seeding import global_draws


class OwnModule(nn.Module):
    """A user's module in a block, and how it is made again, from the text in the settings.

    Attributes:
        field: the setting that names it.
        inner: the user's module.
    """

    field: str

    def __init__(self, text: str, settings: Mapping[str, Any], width: int, index: int) -> None:
        """
        Args:
            text: ``package.module:Class``.
            settings: what the class is given beside the width.
            width: channels or features of the trunk.
            index: of the block.
        """
        super().__init__()
        self.text, self.settings, self.width, self.index = text, dict(settings), width, index
        self.inner = self.fresh(0).to("meta")

    def fresh(self, seed: int) -> nn.Module:
        """A new instance with the values that this block has under this seed.

        Raises:
            UserError: it cannot be imported or built.
        """
        kind = load_class(self.field, self.text)
        with torch.device("cpu"), global_draws(seed, self.field, self.index):
            return build_own(f"{self.field}: block {self.index}", kind, self.settings, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


class OwnBranch(OwnModule):
    """A user's branch in a block."""

    field = "model.branch"


class OwnShortcut(OwnModule, ConnectionPart):
    """A user's path around the branch."""

    field = "connection.shortcut"


def load_class(field: str, text: str, base: type[Any] = nn.Module) -> type[Any]:
    """The class named ``package.module:Class``.

    Raises:
        UserError: it cannot be imported, or is not derived from ``base``.
    """
    kind = import_named(field, text)
    if not (inspect.isclass(kind) and issubclass(kind, base)):
        known = "torch.nn.Module" if base is nn.Module else f"{base.__module__}.{base.__name__}"
        raise UserError(f"{field}={text}: must be a class derived from {known}")
    return cast(type[Any], kind)


def build_own(where: str, kind: type[nn.Module], settings: Mapping[str, Any], width: int) -> nn.Module:
    """An instance of a user's class.

    Raises:
        UserError: its constructor does not take (width, **settings), fails, or leaves sizes open.
    """
    given = ", ".join([str(width), *(f"{k}={v!r}" for k, v in settings.items())])
    try:
        module = kind(width, **settings)
    except Exception as error:  # whatever the user's constructor raises
        raise UserError(
            f"{where}: {kind.__name__}({given}) failed ({words_of(error)}); its constructor takes the width, "
            "and the settings by name"
        ) from error
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise UserError(f"{where}: {kind.__name__} has lazy layers, whose sizes are open; give them their sizes")
    return module


def last_weight(text: str) -> str | None:
    """The name of the weight that a zero-initialised branch would begin with 0, where the user's class names one."""
    name: str | None = getattr(load_class("model.branch", text), "last_weight", None)
    return name


def with_code(conf: RunConf) -> RunConf:
    """The settings with the hash of the files that a user's branch and shortcut are in: another text is another run.

    Raises:
        UserError: one of them cannot be imported.
    """
    model, connection = conf.model, conf.connection
    if model.branch is not None:
        model = replace(model, branch_code=_code_hash(OwnBranch.field, model.branch))
    if not isinstance(connection.shortcut, Shortcut):
        connection = replace(connection, shortcut_code=_code_hash(OwnShortcut.field, connection.shortcut))
    return replace(conf, model=model, connection=connection)


def _code_hash(field: str, text: str) -> str:
    kind = load_class(field, text)
    try:
        source = inspect.getsourcefile(kind)
    except (OSError, TypeError):  # made by exec, or compiled
        source = None
    if source is None:
        raise UserError(f"{field}={text}: is in no Python file, whose text would name the run; write it into one")
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shapes and equal bits: NaN, too, is the same as itself."""
    flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.shape == b.shape and torch.equal(*flat)
