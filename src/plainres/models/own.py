"""Branches and shortcuts that users write: ``model.branch=package.module:Class``, ``connection.shortcut=…``.

The class is an nn.Module of (width, **settings) from x to the same shape. It is built on the CPU, with its own initial
values, drawn as a function of seed and block, so that both arms of a pair begin with the same numbers.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plainres.errors import UserError
from plainres.seeding import global_draws


class OwnBranch(nn.Module):
    """A user's branch in a block.

    Attributes:
        inner: the user's module.
    """

    role = "branch"

    def __init__(self, text: str, settings: Mapping[str, Any], width: int, index: int) -> None:
        """
        Args:
            text: ``package.module:Class``.
            settings: what the class is given beside the width.
            width: channels or features of the trunk.
            index: of the block.

        Raises:
            UserError: it cannot be imported or built.
        """
        super().__init__()
        self._text, self._settings, self._width, self._index = text, dict(settings), width, index
        self.inner = self.fresh(0).to("meta")

    def fresh(self, seed: int) -> nn.Module:
        """A new instance with the values that this block has under this seed."""
        kind = load_class(f"model.{self.role}", self._text)
        with torch.device("cpu"), global_draws(seed, "own", self.role, self._index):
            return build_own(kind, self._settings, self._width, self._index)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


def load_class(field: str, text: str) -> type[nn.Module]:
    """The class named ``package.module:Class``, also from the folder that the user stands in.

    Raises:
        UserError: it cannot be imported, or is no nn.Module.
    """
    module_name, _, class_name = text.partition(":")
    if not class_name:
        raise UserError(f"{field}={text}: must be of the form package.module:Class")
    if str(Path.cwd()) not in sys.path:  # a console script does not look there
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises when it is imported
        raise UserError(
            f"{field}={text}: cannot import {module_name} ({_words(error)}); stand in the folder that holds it, "
            "or install it"
        ) from error
    kind = getattr(module, class_name, None)
    if kind is None:
        found = [n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module.__name__]
        raise UserError(f"{field}={text}: {module_name} has no {class_name}; it has {', '.join(found) or 'no class'}")
    if not (inspect.isclass(kind) and issubclass(kind, nn.Module)):
        raise UserError(f"{field}={text}: must be a class derived from torch.nn.Module")
    return kind


def build_own(kind: type[nn.Module], settings: Mapping[str, Any], width: int, index: int) -> nn.Module:
    """An instance of a user's class.

    Raises:
        UserError: its constructor does not take (width, **settings), or fails.
    """
    given = ", ".join([str(width), *(f"{k}={v!r}" for k, v in settings.items())])
    try:
        return kind(width, **settings)
    except Exception as error:  # whatever the user's constructor raises
        raise UserError(
            f"block {index}: {kind.__name__}({given}) failed ({_words(error)}); its constructor takes the width, "
            "and the settings by name"
        ) from error


def code_hash(field: str, text: str) -> str:
    """Hash of the file that a user's class is in: another text is another run.

    Raises:
        UserError: it cannot be imported.
    """
    kind = load_class(field, text)
    source = inspect.getsourcefile(kind)
    assert source is not None
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16]


def _words(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
