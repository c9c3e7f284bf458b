"""A study's folders as one table with a row per run. Broken folders are named, and the rest is still done."""

from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from plainres.analysis.commands import PLACES
from plainres.analysis.settings import add_labels
from plainres.errors import UserError
from plainres.pair import identity_fields, record_fields
from plainres.schema import RunConf
from plainres.store import RunFolder, Study

if TYPE_CHECKING:
    import pandas as pd

FINAL = (
    "step", "train_error", "train_loss", "train_error_batchstats", "train_error_running", "val_error", "val_loss"
)  # fmt: skip
CONSTRUCTION = (
    "source", "num_inserted_blocks", "max_output", "max_output_difference", "train_error", "source_train_error",
    "max_output_difference_batchstats", "train_error_batchstats", "source_train_error_batchstats",
    "perturbed_train_error",
)  # fmt: skip
OUTCOME = "construction_outcome"  # filled in by ``construction.with_outcomes``, which reads more than run.json
SECONDS = ("train", "evaluation", "probes", "store", "tracker", "total")
PARTS = (  # objects, or null
    "config", "final", "last_finite", "diverged", "error", "construction", "seconds", "environment", "data", "audit"
)  # fmt: skip
ENVIRONMENT = ("commit", "dirty_hash", "code_hash", "device_kind", "device_name", "threads", "precision")


@dataclass(frozen=True)
class LoadedStudy:
    """A study as read.

    Attributes:
        study: the folder.
        runs: one row per readable run, sorted by setting, depth, connection, seed. Errors are fractions, times
            seconds. Columns: ids and state; ``setting``, ``depth``, ``connection``, ``seed``, ``model``;
            ``final_*``; ``diverged_*``; ``construction_*``; ``seconds_*``; environment; every identity field by its
            dotted name.
        records: run.json of every readable run, by run_id, for what does not fit a column (audit, versions).
        problems: one line for each folder that could not be read.
    """

    study: Study
    runs: "pd.DataFrame"
    records: dict[str, dict[str, Any]]
    problems: list[str]


def load_study(path: str | Path) -> LoadedStudy:
    """Read every run.json of a study.

    Raises:
        UserError: ``path`` is no study.
    """
    import pandas as pd

    study = Study.open(path)
    rows: list[dict[str, Any]] = []
    records: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for folder in study.runs():
        try:
            record = readable(folder)
            if record["run_id"] in records:
                problems.append(f"runs/{folder.name}: a copy of run {record['run_id']}; left out")
                continue
            rows.append(run_row(folder, record))
            records[record["run_id"]] = record
        except UserError as error:
            problems.append(str(error))
    table = pd.DataFrame(rows, columns=_columns())
    table[setting_names()] = pd.DataFrame(rows, columns=setting_names(), dtype=object)  # 32 beside null stays 32
    table = table.astype({"run_id": str, "name": str, "status": str, "depth": int, "seed": int})
    # copy: in one piece again, because pandas warns of columns that are added to a hundred loose ones.
    order = ["setting", "depth", "connection", "seed", "run_id"]
    table = add_labels(table.copy()).sort_values(order, ignore_index=True).copy()
    return LoadedStudy(study, table, records, problems)


def readable(folder: RunFolder) -> dict[str, Any]:
    """run.json of a folder, with the ids, identity and status that every reader needs.

    Raises:
        UserError: one line saying what is wrong with the folder.
    """
    if not folder.exists():
        raise UserError(f"runs/{folder.name}: no run.json (empty or half-deleted); delete the folder and run again")
    record = folder.read()
    try:
        found = record | {"status": str(folder.status())}
        complete = all(isinstance(found[key], str) for key in ("run_id", "pair_id", "name"))
        complete &= all(isinstance(found["identity"][key], int) for key in ("depth", "seed"))
    except (KeyError, TypeError, ValueError):
        complete = False
    if not complete:
        raise UserError(f"runs/{folder.name}: run.json lacks ids, identity or a known status; delete it and run again")
    parts = {name: found.get(name) for name in PARTS if not isinstance(found.get(name), dict | None)}
    identity = {name: value for name, value in found["identity"].items() if not _is_allowed(name, value)}
    if wrong := parts | identity:
        name, value = next(iter(wrong.items()))
        why = "upgrade plainres if a newer one wrote it, else delete the folder and run it again"
        raise UserError(f"runs/{folder.name}: run.json has {name}={value!r}; {why}")
    return found


@lru_cache(maxsize=1)
def identity_types() -> dict[str, tuple[type, ...]]:
    """What JSON holds for each identity field: the types that its value may have."""
    return _types(RunConf, "", set(identity_names()))


def _types(conf: type, prefix: str, wanted: set[str]) -> dict[str, tuple[type, ...]]:
    found: dict[str, tuple[type, ...]] = {}
    for name, hint in get_type_hints(conf).items():
        if is_dataclass(hint):
            found |= _types(cast(type, hint), f"{prefix}{name}.", wanted)
        elif prefix + name in wanted:
            kinds = [get_origin(h) or h for h in (get_args(hint) if isinstance(hint, UnionType) else [hint])]
            found[prefix + name] = tuple(kinds)
    return found


def _is_allowed(name: str, value: object) -> bool:
    """Whether an identity field may have this value; of a field that is younger than this code, nothing is known."""
    allowed, kind = identity_types().get(name, (type(value),)), type(value)
    choices = {str(choice) for enum in allowed if issubclass(enum, StrEnum) for choice in enum}
    return kind in allowed or (kind is int and float in allowed) or (kind is str and value in choices)


def identity_names() -> list[str]:
    """Every identity field, by dotted name."""
    return list(identity_fields(RunConf()))


def setting_names() -> list[str]:
    """Identity fields, and what else a command needs to make the same run: what is recorded, and where files are."""
    return [*identity_names(), *record_fields(RunConf()), *PLACES]


def _columns() -> list[str]:
    own = ["run_id", "pair_id", "name", "folder", "status", "depth", "seed", "model", "num_parameters", "forward_flops"]
    own += [f"final_{name}" for name in FINAL] + ["last_finite_step", "last_finite_train_error"]
    own += ["diverged_step", "diverged_where", "diverged_layer", "error", "traceback"]
    own += [*[f"construction_{name}" for name in CONSTRUCTION], OUTCOME]
    own += [f"seconds_{name}" for name in SECONDS] + ["peak_memory_mib", *ENVIRONMENT]
    own += ["num_train", "num_val", "chance_error", "started", "finished"]
    return own + [name for name in setting_names() if name not in own]


def run_row(folder: RunFolder, record: dict[str, Any]) -> dict[str, Any]:
    """A run's row of the table, but for ``setting``, which depends on the study's other runs."""
    # A field younger than the run has its default there: "a default means as before" (DESIGN, habit 4).
    identity: dict[str, Any] = identity_fields(RunConf()) | record["identity"]
    config = _part(record, "config")
    other = record_fields(RunConf()) | dict.fromkeys(PLACES)
    recorded = {name: _nested(config, name, default) for name, default in other.items()}
    error = _part(record, "error")
    diverged, last = _part(record, "diverged"), _part(record, "last_finite")
    return (
        identity
        | recorded
        | {key: record.get(key) for key in ("run_id", "pair_id", "name", "status", "num_parameters", "forward_flops")}
        | {key: record.get(key) for key in ("peak_memory_mib", "started", "finished")}
        | {"folder": folder.name, "model": identity["model.name"]}
        | {f"final_{name}": _part(record, "final").get(name) for name in FINAL}
        | {f"diverged_{name}": diverged.get(name) for name in ("step", "where", "layer")}
        | {f"construction_{name}": _part(record, "construction").get(name) for name in CONSTRUCTION}
        | {"last_finite_step": last.get("step"), "last_finite_train_error": last.get("train_error")}
        | {"error": error.get("message"), "traceback": error.get("traceback")}
        | {f"seconds_{name}": _part(record, "seconds").get(name) for name in SECONDS}
        | {name: _part(record, "environment").get(name) for name in ENVIRONMENT}
        | {name: _part(record, "data").get(name) for name in ("num_train", "num_val", "chance_error")}
    )


def _nested(config: dict[str, Any], name: str, default: Any) -> Any:
    """A setting of run.json's ``config`` by its dotted name; the default where the run is older than it."""
    group, _, leaf = name.rpartition(".")
    return _part(config, group).get(leaf, default)


def _part(record: dict[str, Any], key: str) -> dict[str, Any]:
    """A nested object of run.json; empty where the run has none (planned, not diverged, ...)."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}
