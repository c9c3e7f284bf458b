"""The process that a study is run in belongs to the user: what a run changes in it is put back afterwards."""

import importlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

OWN_CLASS = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")  # package.module:Class in an override


@contextmanager
def process_kept(overrides: Sequence[str]) -> Iterator[None]:
    """Within, a sweep of these overrides may run as if it were the process's only purpose.

    Put back are: environment variables, import path, command line, modules of the current folder, ``__main__``,
    plainres's logger, and torch's settings and generators.
    """
    from plainres.seeding import process_settings_kept

    with ExitStack() as kept:
        for part in (_words(overrides), _environment(), _own_modules(overrides), _no_main(), _logger()):
            kept.enter_context(part)
        kept.enter_context(process_settings_kept())
        yield


@contextmanager
def _logger() -> Iterator[None]:
    """A sweep writes its log by a logger, which another library's logging set-up may have switched off."""
    logger = logging.getLogger("plainres")
    before = logger.level, logger.disabled
    logger.disabled = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.disabled = before[1]


@contextmanager
def _words(overrides: Sequence[str]) -> Iterator[None]:
    """A sweep logs the command that it was started by: that of a notebook's kernel says nothing of it."""
    argv = sys.argv
    sys.argv = ["plainres.run", *overrides]
    try:
        yield
    finally:
        sys.argv = argv


@contextmanager
def _environment() -> Iterator[None]:
    """Workers inherit the number of BLAS threads through it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _own_modules(overrides: Sequence[str]) -> Iterator[None]:
    """A user's class is imported anew by each call.

    Its file may have been written again since (a cell with %%writefile), and workers, which are new processes, read
    the new one: what is checked here must be what they train.
    """
    path, here = list(sys.path), Path.cwd()
    named = {module for text in overrides for module in OWN_CLASS.findall(text)}
    aside = {name: sys.modules.pop(name) for name in named if _lies_in(here, name)}
    known = set(sys.modules)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n not in known and _lies_in(here, n)]:
            del sys.modules[name]
        sys.modules.update(aside)
        sys.path[:] = path


def _lies_in(folder: Path, name: str) -> bool:
    """Whether a module is a user's file that was found from this folder; what lies deeper (an environment) is not."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name.split(".")[0] in ("plainres", "hydra_plugins", "run"):
        return False
    stem = folder.joinpath(*name.split("."))
    return Path(file) in (stem.with_suffix(".py"), stem / "__init__.py")


@contextmanager
def _no_main() -> Iterator[None]:
    """Worker processes of Python's ``spawn`` import the script that started them, and would run it again.

    Ours need nothing of it: while there is no file that ``__main__`` came from, a script without
    ``if __name__ == "__main__":`` works as a notebook does.
    """
    main = sys.modules["__main__"]
    before = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    vars(main).pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(main, name, value)
