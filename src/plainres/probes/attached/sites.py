"""A site: one addition ``h + F`` inside somebody else's model, told by the paths of modules around it.

A place in a model is written as text: ``layer1.0.bn2`` is what that module puts out, ``layer1.0:input`` what it
receives, ``layer1.0.relu#1:input`` what it receives at its second call (#0 is the first) in one forward pass. Of
several tensors the first is meant.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from plainres.errors import UserError


@dataclass(frozen=True)
class Site:
    """One addition, as places in a model.

    Attributes:
        branch: F, what is added (after LayerScale, DropPath and the like).
        shortcut: h, what it is added to.
        total: where h + F arrives unchanged. With it, the first measured step checks that it is h + F.
        output: y, the block's output, after what follows the addition; ``total`` where it is not given. With
            neither, y is taken to be h + F, and its gradient is null.
        input: x, the block's input; where it is not given, what the shortcut's module receives.
        name: the row's layer_name; the branch's path where it is empty.
        scales: modules on the branch or the shortcut whose parameters belong to the connection (LayerScale, a
            projection), not to the layers.
    """

    branch: str
    shortcut: str
    total: str | None = None
    output: str | None = None
    input: str | None = None
    name: str = ""
    scales: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The site's name in rows and messages."""
        return self.name or self.branch


class Place(NamedTuple):
    """A tensor on its way: what a module receives or puts out.

    Attributes:
        call: which call of the module in a forward pass; None where it must be called once.
    """

    path: str
    received: bool
    call: int | None

    def __str__(self) -> str:
        call = "" if self.call is None else f"#{self.call}"
        return f"{self.path}{call}{':input' if self.received else ''}"


class Places(NamedTuple):
    """A site's places, all filled in; total and output may be missing."""

    x: Place
    h: Place
    f: Place
    total: Place | None
    y: Place | None


_PLACE = re.compile(r"(?P<path>[^#:]*)(#(?P<call>\d+))?(?P<input>:input)?")


def find_place(model: nn.Module, text: str, site: Site) -> Place:
    """Raises: UserError for text that names no module of the model."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UserError(f"site {site.label}: {text!r} is not a place; write PATH, PATH:input or PATH#CALL:input")
    path = match["path"]
    if path not in dict(model.named_modules(remove_duplicate=False)):
        names = [n for n, _ in model.named_modules() if n]
        near = [n for n in names if n.rpartition(".")[2] == path.rpartition(".")[2]] or names
        raise UserError(f"site {site.label}: the model has no module {path!r}; it has, for example, {near[:3]}")
    return Place(path, match["input"] is not None, None if match["call"] is None else int(match["call"]))


def find_places(model: nn.Module, site: Site) -> Places:
    """A site's places in a model.

    Raises:
        UserError: a path that names no module.
    """
    h = find_place(model, site.shortcut, site)
    x = Place(h.path, True, h.call) if site.input is None else find_place(model, site.input, site)
    f = find_place(model, site.branch, site)
    total = None if site.total is None else find_place(model, site.total, site)
    y = total if site.output is None else find_place(model, site.output, site)
    return Places(x, h, f, total, y)


def as_sites(blocks: list[Site | tuple[str, str]]) -> list[Site]:
    """What a user gave as blocks.

    Raises:
        UserError: an entry of another kind, or two of one name.
    """
    if not isinstance(blocks, list) or not blocks:
        raise UserError(f"blocks={blocks!r}: give a list of (branch, shortcut) paths, or of Site, with one or more")
    sites = []
    for entry in blocks:
        if isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            entry = Site(*entry)
        if not isinstance(entry, Site):
            raise UserError(f"blocks: {entry!r} is neither a pair of paths (branch, shortcut) nor a Site")
        sites.append(entry)
    labels = [site.label for site in sites]
    twice = next((name for name in labels if labels.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"blocks: two sites are called {twice!r}; give each a name of its own, Site(..., name=...)")
    return sites
