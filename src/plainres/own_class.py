"""Classes that users write, named in the settings as ``package.module:Class``. No torch."""

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from plainres.errors import UserError


def import_named(field: str, text: str) -> Any:
    """What is named ``package.module:Class``, also from the folder that the user stands in.

    Raises:
        UserError: it cannot be imported.
    """
    module_name, _, class_name = text.partition(":")
    if not class_name:
        raise UserError(f"{field}={text}: must be of the form package.module:Class")
    if str(Path.cwd()) not in sys.path:  # a console script does not look there
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's module raises when it is imported
        raise UserError(
            f"{field}={text}: cannot import {module_name} ({words_of(error)}); stand in the folder that holds it, "
            "or install it"
        ) from error
    kind = getattr(module, class_name, None)
    if kind is None:
        found = [n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module.__name__]
        raise UserError(f"{field}={text}: {module_name} has no {class_name}; it has {', '.join(found) or 'no class'}")
    return kind


def words_of(error: BaseException) -> str:
    """Kind and first line of an error of code that is not ours."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def import_path() -> dict[str, str]:
    """The environment variable with which a process of ours finds the modules that this one finds."""
    return {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
