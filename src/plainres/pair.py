"""Identity of a run, its pair, and the matching of runs in a table. No torch, no Hydra.

``run_id`` is the SHA-256 of all identity fields that differ from the schema's defaults, as canonical JSON.
``pair_id`` is the same without the connection: a label of the match "equal in all but the connection".
Analysis matches rows with ``match``, never with ``pair_id`` alone.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from plainres.options import FieldClass, Merge, Recipe, Shortcut, shortcut_of
from plainres.schema import ConnectionConf, RunConf, StartConf, flatten, plain_value

if TYPE_CHECKING:
    import pandas as pd

ID_LENGTH = 12


def identity_fields(conf: RunConf) -> dict[str, Any]:
    """Every identity field of a resolved config (``trainer.device`` already a kind), by dotted name."""
    return _fields_of(conf, FieldClass.IDENTITY)


def record_fields(conf: RunConf) -> dict[str, Any]:
    """Every record field, by dotted name."""
    return _fields_of(conf, FieldClass.RECORD)


def _fields_of(conf: RunConf, kind: FieldClass) -> dict[str, Any]:
    return {name: plain_value(value) for name, (cls, value) in flatten(conf).items() if cls is kind}


def hash_identity(identity: dict[str, Any]) -> str:
    """First 12 hex digits of the SHA-256 of the identity fields that differ from the schema's defaults."""
    defaults = identity_fields(RunConf(trainer=replace(RunConf().trainer, device="cpu")))
    # 1 and 1.0 are one number, but two texts.
    typed = {n: float(v) if isinstance(defaults[n], float) and v is not None else v for n, v in identity.items()}
    changed = {name: value for name, value in typed.items() if value != defaults[name]}
    text = json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


@dataclass(frozen=True)
class RunSpec:
    """A resolved run. ``conf`` is treated as read-only from here on; ``device`` is where it will train."""

    conf: RunConf
    device: str
    identity: dict[str, Any]
    run_id: str
    pair_id: str
    name: str


def make_spec(conf: RunConf, device: str) -> RunSpec:
    """Freeze a validated config.

    Args:
        conf: the settings; ``trainer.device`` may still be ``auto``.
        device: the resolved device, such as ``cpu`` or ``cuda:1``; its kind enters the identity.
    """
    resolved = replace(conf, trainer=replace(conf.trainer, device=device.partition(":")[0]))
    identity = identity_fields(resolved)
    run_id = hash_identity(identity)
    pair_id = hash_identity({k: v for k, v in identity.items() if not k.startswith("connection.")})
    built = "" if conf.start.depth is None else f"-from{conf.start.depth:03d}"
    label = f"{conf.model.name}-{conf.connection.name}-d{conf.depth:03d}{built}-s{conf.seed}"
    return RunSpec(resolved, device, identity, run_id, pair_id, f"{label}-{run_id}")


def partner_of(conf: RunConf) -> RunConf | None:
    """The config of the arm that this one is compared with (plain, all else equal); None for plain itself."""
    if conf.connection.name == "plain":
        return None
    return replace(conf, connection=ConnectionConf())


def source_of(conf: RunConf) -> RunConf | None:
    """The config of the trained network that this one is built from; None for one that starts from scratch."""
    if conf.start.depth is None:
        return None
    return replace(conf, depth=conf.start.depth, start=StartConf())


def connection_differences(connection: ConnectionConf) -> list[str]:
    """``shortcut=identity``, …: every part in which a connection differs from plain, its name left out."""
    plain = {name: value for name, (_, value) in flatten(ConnectionConf()).items()}
    mine = {name: plain_value(value) for name, (_, value) in flatten(connection).items() if name != "name"}
    return [f"{name}={'null' if value is None else value}" for name, value in mine.items() if value != plain[name]]


def connection_of(identity: dict[str, Any]) -> ConnectionConf:
    """The connection of a stored run; fields that are younger than the run have their defaults."""
    found: dict[str, Any] = {}
    for name, (_, default) in flatten(ConnectionConf()).items():
        value = identity.get(f"connection.{name}", plain_value(default))
        if name == "shortcut":
            found[name] = shortcut_of(value)
        else:
            found[name] = type(default)(value) if isinstance(default, StrEnum) else value
    return ConnectionConf(**found)


def kind_of(connection: ConnectionConf) -> str:
    """What a comparison with plain compares, in words; DESIGN asks that recipes and controls are labelled so."""
    if connection.shortcut is Shortcut.none:
        return "plain: nothing is added"
    if connection.merge is Merge.concat:
        return "control: not a residual connection"
    if connection.recipe is not Recipe.none:
        return f"recipe {connection.recipe}: a connection with rules of its own"
    return "connection: a branch joined to the trunk"


@dataclass(frozen=True)
class Matched:
    """Result of ``match``.

    Attributes:
        groups: label of the match for each row of the table, aligned with its index.
        unmatched: the rows that share their group with no other row.
    """

    groups: "pd.Series[int]"
    unmatched: "pd.DataFrame"


def match(table: "pd.DataFrame", free: Sequence[str]) -> Matched:
    """Group runs that are equal in every identity field but those under study.

    Args:
        table: one row a run, with one column per identity field (dotted names, as in runs.csv).
        free: identity fields, or prefixes such as ``connection``, that may differ inside a group.

    Raises:
        KeyError: the table lacks an identity field, or ``free`` names none.
    """
    names = list(identity_fields(RunConf()))
    unknown = [f for f in free if not any(n == f or n.startswith(f"{f}.") for n in names)]
    if unknown:
        raise KeyError(f"no identity field is named {', '.join(unknown)}")
    held = [n for n in names if not any(n == f or n.startswith(f"{f}.") for f in free)]
    missing = [n for n in held if n not in table.columns]
    if missing:
        raise KeyError(f"table lacks identity columns: {', '.join(missing)}")
    texts = table[held].map(lambda v: json.dumps(v, default=str)).astype(str)
    keys = texts[held[0]].str.cat(texts[held[1:]], sep="|")
    groups = keys.groupby(keys, sort=True).ngroup()
    alone = groups.map(groups.value_counts()) == 1
    return Matched(groups, table[alone])
