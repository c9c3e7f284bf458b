"""Readable labels of what varies in a study: the setting (all but depth, connection, seed) and the connection."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plainres.pair import identity_fields
from plainres.schema import RunConf

if TYPE_CHECKING:
    import pandas as pd

UNDER_STUDY = ("depth", "connection", "start", "seed")
ONLY_SETTING = "all"
PLAIN = "plain"
EXTRAS = tuple(f"connection.{part}" for part in ("gate", "scale", "drop", "zero_init", "recipe"))
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)")
_BUILT = re.compile(r"(.+?)\((?:(.*), )?start=(\d+)(?:, noise=([^,)]+))?\)")


@dataclass(frozen=True)
class Built:
    """What the label of a network that was built from a trained shallower one says.

    Attributes:
        arm: label of the connection that it was built with, as for networks trained from scratch.
        depth: of the source.
        noise: ``start.noise``.
    """

    arm: str
    depth: int
    noise: float

    @property
    def words(self) -> str:
        """For a legend."""
        noise = f", noise {self.noise:g}" if self.noise else ""
        return f"{self.arm}, built from depth {self.depth}{noise}"


def built_of(label: str) -> Built | None:
    """What ``plain(start=10, noise=0.1)`` says; None for a network that was trained from scratch."""
    found = _BUILT.fullmatch(label)
    if found is None:
        return None
    name, parts, depth, noise = found.groups()
    return Built(f"{name}({parts})" if parts else name, int(depth), float(noise or 0))


def legend_words(label: str) -> str:
    """``plain, built from depth 10``; the label itself for a network that was trained from scratch."""
    built = built_of(label)
    return built.words if built else label


def setting_order(labels: Iterable[object]) -> list[str]:
    """The different labels, with the numbers in them in order of size: steps=600 before steps=1200."""

    def key(label: str) -> list[tuple[float, str]]:
        return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(_NUMBER.split(label))]

    return sorted(set(map(str, labels)), key=key)


def is_built(runs: "pd.DataFrame") -> "pd.Series[bool]":
    """Which runs were built from a trained shallower network."""
    return runs["start.depth"].notna()


def add_labels(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Add ``setting`` (``lr=0.1, steps=300``: only what varies; ``all`` if nothing does) and ``connection``.

    Two connections under one name (a part overridden on the command line) are told apart: ``residual(…=…)``; a part
    that one of them does not have (``none``) is not named. So are networks built from a trained shallower one, which
    are no connection of their own: ``plain(start=10, noise=0.1)``.
    """
    names = list(identity_fields(RunConf()))
    held = [n for n in names if n.split(".")[0] not in UNDER_STUDY]
    labelled = runs.assign(setting=_labels(runs, held).replace("", ONLY_SETTING), connection="")
    for name, arm in runs.groupby("connection.name", sort=True):
        parts = [n for n in names if n.startswith("connection.") and n != "connection.name"]
        suffix = _join(_labels(arm, parts), _start_labels(arm))
        labelled.loc[arm.index, "connection"] = str(name) + suffix.where(suffix == "", "(" + suffix + ")")
    return labelled.astype({"setting": str, "connection": str})


def _start_labels(runs: "pd.DataFrame") -> "pd.Series[str]":
    """``start=10, noise=0.1`` of the runs that were built; empty for those from scratch."""
    import pandas as pd

    texts = [
        "" if depth is None or depth != depth else f"start={int(depth)}" + (f", noise={noise:g}" if noise else "")
        for depth, noise in zip(runs["start.depth"], runs["start.noise"], strict=True)
    ]
    return pd.Series(texts, index=runs.index, dtype=str)


def _join(first: "pd.Series[str]", second: "pd.Series[str]") -> "pd.Series[str]":
    both = (first != "") & (second != "")
    return first + second.where(~both, ", " + second)


def _labels(runs: "pd.DataFrame", fields: Sequence[str]) -> "pd.Series[str]":
    """For each run, the values of those fields that differ within ``runs``; of ``EXTRAS`` only those that are there."""
    import pandas as pd

    texts = {name: runs[name].map(_text) for name in fields}
    varying = [name for name in fields if texts[name].nunique() > 1]
    # A file's hash says nothing to a reader; it counts where it alone tells runs apart.
    named = {f"{name}_code" for name in varying}
    varying = [name for name in varying if name not in named]
    shorts = [_short(name) for name in varying]
    label = pd.Series("", index=runs.index, dtype=str)
    for name, short in zip(varying, shorts, strict=True):
        shown = short if shorts.count(short) == 1 else name
        part = label.where(label == "", ", ") + f"{shown}=" + texts[name]
        label = label + (part.where(texts[name] != "none", "") if name in EXTRAS else part)
    return label


def _short(name: str) -> str:
    """``optimizer.lr`` -> ``lr``; ``model.name`` -> ``model``."""
    group, _, leaf = name.rpartition(".")
    return group if leaf == "name" else leaf


def _text(value: object) -> str:
    if value is None or value != value:  # a column that has numbers or text as well keeps None as NaN
        return "null"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def arm_order(connections: Iterable[str]) -> list[str]:
    """Each connection once: plain first, the others by name; networks that were built follow their own kind."""

    def key(name: str) -> tuple[bool, str, int, float]:
        built = built_of(name) or Built(name, 0, 0.0)
        return built.arm != PLAIN, built.arm, built.depth, built.noise

    return sorted(set(connections), key=key)
