"""Readable labels of what varies in a study: the setting (all but depth, connection, seed) and the connection."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plainres.pair import identity_fields
from plainres.schema import RunConf

if TYPE_CHECKING:
    import pandas as pd

UNDER_STUDY = ("depth", "connection", "seed")
ONLY_SETTING = "all"
PLAIN = "plain"
EXTRAS = tuple(f"connection.{part}" for part in ("gate", "scale", "drop", "zero_init", "recipe"))


def add_labels(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Add ``setting`` (``lr=0.1, steps=300``: only what varies; ``all`` if nothing does) and ``connection``.

    Two connections under one name (a part overridden on the command line) are told apart: ``residual(…=…)``; a part
    that one of them does not have (``none``) is not named.
    """
    names = list(identity_fields(RunConf()))
    held = [n for n in names if n.split(".")[0] not in UNDER_STUDY]
    labelled = runs.assign(setting=_labels(runs, held).replace("", ONLY_SETTING), connection="")
    for name, arm in runs.groupby("connection.name", sort=True):
        parts = [n for n in names if n.startswith("connection.") and n != "connection.name"]
        suffix = _labels(arm, parts)
        labelled.loc[arm.index, "connection"] = str(name) + suffix.where(suffix == "", "(" + suffix + ")")
    return labelled.astype({"setting": str, "connection": str})


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


def arm_order(connections: Sequence[str]) -> list[str]:
    """Each connection once: plain first, the others by name."""
    return sorted(set(connections), key=lambda name: (name != PLAIN, name))
