"""The command that adds what a study lacks. A run that is there already is skipped when it is given again."""

import json
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from plainres.analysis.settings import PLAIN
from plainres.pair import identity_fields, record_fields
from plainres.schema import RunConf
from plainres.store import FINISHED

if TYPE_CHECKING:
    import pandas as pd

MEASURED = ("data.content", "model.branch_code", "connection.shortcut_code")  # hashes of files: filled in, not given
PLACES = ("data.root", "data.cache_dir")  # free settings without which the same command does not find its files
LISTED_SEEDS = 12  # more consecutive ones are written as a range
Cell = tuple[int, str, int]  # depth, connection, seed


def missing_cells(runs: "pd.DataFrame") -> list[Cell]:
    """Cells of the grid depths × connections × seeds of one setting that have no finished run.

    A setting without a plain arm lacks the whole of it.
    """
    connections = sorted({PLAIN, *runs["connection"]}, key=lambda name: (name != PLAIN, name))
    grid = product(sorted(runs["depth"].unique()), connections, sorted(runs["seed"].unique()))
    finished = runs[runs["status"].isin([str(s) for s in FINISHED])]
    found = set(zip(finished["depth"], finished["connection"], finished["seed"], strict=True))
    return [(int(depth), name, int(seed)) for depth, name, seed in grid if (depth, name, seed) not in found]


def run_command(
    study: str,
    runs: "pd.DataFrame",
    depths: Sequence[int] = (),
    connections: Sequence[str] = (),
    seeds: Sequence[int] = (),
    extra: str = "",
) -> str:
    """``python -m run -m depth=10,50 connection=plain,residual seed=0,1 optimizer.lr=0.1 study=NAME``.

    Args:
        study: its name.
        runs: rows of one setting; whatever differs from the defaults in it is said.
        depths, connections, seeds: what to run; those of ``runs`` where empty.
        extra: further settings.
    """
    names = list(connections) or sorted(set(runs["connection"]), key=lambda name: (name != PLAIN, name))
    grid = {
        "depth": [str(d) for d in depths or sorted(int(d) for d in runs["depth"].unique())],
        "connection": list(dict.fromkeys(name.partition("(")[0] for name in names)),
        "seed": [str(s) for s in seeds or _seeds(runs)],
    }
    parts = [f"{key}={','.join(values)}" for key, values in grid.items()]
    first, last = int(grid["seed"][0]), int(grid["seed"][-1])
    if len(grid["seed"]) == last - first + 1 > LISTED_SEEDS:
        parts[2] = f"'seed=range({first},{last + 1})'"
    said = extra.partition("=")[0]
    kept = [text for text in _settings(runs, names) if not text.startswith(f"{said}=")]
    parts += [*kept, *([extra] if extra else []), f"study={study}"]
    many = "-m " if "," in extra or any(len(values) > 1 for values in grid.values()) else ""
    return f"python -m run {many}{' '.join(parts)}"


def beside(study: str, other: str) -> str:
    """A sentence: how the runs of another study enter the report of this one."""
    return f" Its runs enter with `plainres report results/{study} --with results/{other}`."


def enough_seeds(runs: "pd.DataFrame", count: int) -> list[int]:
    """The seeds of these runs, and the next ones up to ``count`` in all."""
    known = _seeds(runs)
    return [*known, *range(known[-1] + 1, known[-1] + 1 + count - len(known))]


def _seeds(runs: "pd.DataFrame") -> list[int]:
    return sorted(int(s) for s in runs["seed"].unique())


def _settings(runs: "pd.DataFrame", connections: Sequence[str]) -> list[str]:
    """Overrides for whatever differs from the schema's defaults; groups (``model=cnn``) before their fields."""
    first: dict[Any, Any] = runs.iloc[0].to_dict()
    altered = [name for name in connections if "(" in name]
    if altered:  # a connection with a part of its own: its fields are those of its runs
        first |= {
            key: value
            for key, value in runs[runs["connection"] == altered[0]].iloc[0].to_dict().items()
            if str(key).startswith("connection.")
        }
    defaults = identity_fields(RunConf()) | record_fields(RunConf()) | dict.fromkeys(PLACES)
    groups, fields = [], []
    for name, default in defaults.items():
        value = first[name]
        own = name in ("depth", "seed", "connection.name") or name in MEASURED
        own |= name.startswith("connection.") and not altered
        if own or value == default or (name == "trainer.device" and value == "cpu"):
            continue
        group, _, leaf = name.rpartition(".")
        if leaf == "name":
            groups.append(f"{group}={value}")
        else:
            fields.append(f"{name}={_text(value)}")
    return [*groups, *fields]


def _text(value: object) -> str:
    """A value as Hydra reads it; what the shell would read is quoted."""
    text = _plain_text(value)
    return f"'{text}'" if any(c in text for c in "[]{}()*? ") else text


def _plain_text(value: object) -> str:
    if isinstance(value, dict):  # Hydra's keys have no quotes
        return "{" + ",".join(f"{key}:{_plain_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_plain_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value, default=str)
