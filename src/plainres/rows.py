"""Rows of a run: JSON lines while it trains, tidy Parquet tables when it has ended. No torch, no Hydra.

JSON lines survive a kill (all but a torn last line); a Parquet writer does not. A checkpoint remembers the
length of both files, and a resumed run cuts them back to it, so that no row is written twice.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from plainres.errors import UserError
from plainres.store import RunFolder

TABLES = ("steps", "layers")

STEPS_SCHEMA = pa.schema(
    [
        ("step", pa.int32()),
        ("kind", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("reason", pa.string()),
    ]
)
LAYERS_SCHEMA = pa.schema(
    [
        ("step", pa.int32()),
        ("scope", pa.string()),
        ("layer_index", pa.int32()),
        ("layer_name", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float32()),
        ("reason", pa.string()),
    ]
)


class RowWriter:
    """Appends lines to steps.jsonl and layers.jsonl of a run."""

    def __init__(self, folder: RunFolder, lengths: dict[str, int] | None = None) -> None:
        """
        Args:
            folder: the run.
            lengths: bytes of each file that the checkpoint covers; None starts empty.

        Raises:
            UserError: rows that the checkpoint covers are gone.
        """
        self._files: dict[str, BinaryIO] = {}
        for table, length in (lengths or {}).items():
            path = folder.path / f"{table}.jsonl"
            found = path.stat().st_size if path.exists() else 0
            if found < length:
                raise UserError(
                    f"{path}: {found} bytes where its checkpoint covers {length}, so rows are lost; "
                    "delete the run's folder to train it again"
                )
        for table in TABLES:
            path = folder.path / f"{table}.jsonl"
            path.touch()
            file = path.open("r+b")
            file.truncate(lengths[table] if lengths else 0)
            file.seek(0, 2)
            self._files[table] = file

    def write(self, table: str, row: dict[str, Any]) -> None:
        """Append one line; numpy arrays are written as lists, non-finite numbers as null."""
        line = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
        self._files[table].write(line)

    def sync(self) -> dict[str, int]:
        """Hand all rows to the operating system; the lengths that a checkpoint should remember."""
        for file in self._files.values():
            file.flush()
        return {table: file.tell() for table, file in self._files.items()}

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a JSON-lines file; a torn last line is left out, a missing file is empty."""
    return parse_lines(path.read_bytes()) if path.exists() else []


def parse_lines(content: bytes) -> list[dict[str, Any]]:
    """The rows in the bytes of a JSON-lines file, up to a line that is torn."""
    rows = []
    for line in content.split(b"\n"):
        if line:
            try:
                rows.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                break
    return rows


def read_last_line(path: Path) -> dict[str, Any] | None:
    """The last whole line of a JSON-lines file that is still being written; None if it has none, or is gone."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            length = _TAIL
            while True:
                file.seek(max(0, size - length))
                lines = file.read().split(b"\n")  # what follows the last newline is torn, or empty
                if len(lines) > 2 or length >= size:
                    break
                length *= 8
        row = orjson.loads(lines[-2]) if len(lines) > 1 else None
    except (OSError, orjson.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


_TAIL = 1 << 16  # bytes read at first: a line of a network of 50 layers is shorter


def steps_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Tidy table of run-scope rows: step, kind (``eval``: after that many updates; ``update``: in that step)."""
    columns: dict[str, list[Any]] = {name: [] for name in STEPS_SCHEMA.names}
    for row in rows:
        for metric, value in row["values"].items():
            columns["step"].append(row["step"])
            columns["kind"].append(row["kind"])
            columns["metric"].append(metric)
            columns["value"].append(value)
            columns["reason"].append(row.get("reasons", {}).get(metric))
    return pa.table(columns, schema=STEPS_SCHEMA)


def layers_table(rows: Iterable[dict[str, Any]], layout: dict[str, list[str]]) -> pa.Table:
    """Tidy table of per-layer rows.

    Args:
        rows: lines of layers.jsonl.
        layout: names of the members of each scope, in order, as run.json keeps them.
    """
    parts = []
    for row in rows:
        for scope, metrics in row["values"].items():
            names = layout[scope]
            for metric, values in metrics.items():
                why = row.get("reasons", {}).get(scope, {}).get(metric, {})
                parts.append(_layer_part(row["step"], scope, names, metric, values, why))
    return pa.concat_tables(parts) if parts else LAYERS_SCHEMA.empty_table()


def _layer_part(
    step: int, scope: str, names: list[str], metric: str, values: list[float | None], why: dict[str, str]
) -> pa.Table:
    n = len(names)
    reasons = [why.get(str(i)) for i in range(n)] if why else pa.nulls(n, pa.string())
    return pa.table(
        [
            pa.array(np.full(n, step, np.int32)),
            pa.array([scope]).take(np.zeros(n, int)),
            pa.array(np.arange(n, dtype=np.int32)),
            pa.array(names, pa.string()),
            pa.array([metric]).take(np.zeros(n, int)),
            pa.array(values, pa.float32()),
            pa.array(reasons, pa.string()) if why else reasons,
        ],
        schema=LAYERS_SCHEMA,
    )


def compact(folder: RunFolder, layout: dict[str, list[str]]) -> None:
    """Write steps.parquet and layers.parquet from the JSON lines; the lines stay until ``drop_lines``."""
    tables = {
        "steps": steps_table(read_lines(folder.path / "steps.jsonl")),
        "layers": layers_table(read_lines(folder.path / "layers.jsonl"), layout),
    }
    for name, table in tables.items():
        partial = folder.path / f".{name}.partial"
        pq.write_table(table, partial, compression="zstd", row_group_size=1 << 20)
        partial.replace(folder.path / f"{name}.parquet")


def drop_lines(folder: RunFolder) -> None:
    """Delete the JSON lines of a run whose tables are written and whose status says so."""
    for table in TABLES:
        (folder.path / f"{table}.jsonl").unlink(missing_ok=True)


def read_table(folder: RunFolder, table: str, layout: dict[str, list[str]]) -> pa.Table:
    """The tidy table of a run in any state: lines while they exist, else Parquet, else empty.

    Raises:
        OSError, pyarrow.ArrowException: a Parquet file that cannot be read.
    """
    lines = folder.path / f"{table}.jsonl"
    if lines.exists():
        rows = read_lines(lines)
        return steps_table(rows) if table == "steps" else layers_table(rows, layout)
    path = folder.path / f"{table}.parquet"
    if path.exists():
        return pq.read_table(path)
    return (STEPS_SCHEMA if table == "steps" else LAYERS_SCHEMA).empty_table()


def read_rows(folder: RunFolder, layout: dict[str, list[str]]) -> dict[str, list[dict[str, Any]]]:
    """All rows of a run in any state, as lines; of layers.parquet as float32, which is what its lines hold too.

    Raises:
        OSError, pyarrow.ArrowException: as ``read_table``.
    """
    steps: dict[tuple[int, str], dict[str, Any]] = {}
    for row in read_table(folder, "steps", layout).to_pylist():
        line = steps.setdefault((row["step"], row["kind"]), {"step": row["step"], "kind": row["kind"], "values": {}})
        line["values"][row["metric"]] = row["value"]
        if row["reason"] is not None:
            line.setdefault("reasons", {})[row["metric"]] = row["reason"]
    layers: dict[int, dict[str, Any]] = {}
    for row in read_table(folder, "layers", layout).to_pylist():
        scope, metric = row["scope"], row["metric"]
        line = layers.setdefault(row["step"], {"step": row["step"], "values": {}})
        line["values"].setdefault(scope, {}).setdefault(metric, []).append(row["value"])
        if row["reason"] is not None:
            why = line.setdefault("reasons", {}).setdefault(scope, {}).setdefault(metric, {})
            why[str(row["layer_index"])] = row["reason"]
    return {"steps": list(steps.values()), "layers": list(layers.values())}


def evaluation_row(step: int, values: dict[str, float]) -> dict[str, Any]:
    """The line of steps.jsonl for an evaluation; what is not finite or does not exist yet is null with a reason."""
    row: dict[str, float | None] = dict(values)
    reasons = {}
    for name, value in values.items():
        if not math.isfinite(value):
            row[name] = None
            reasons[name] = f"not finite ({value})"
    for name in ("train_error_running", "train_loss_running"):
        if name not in row:
            row[name] = None
            reasons[name] = "no update since the last row"
    return {"step": step, "kind": "eval", "values": row, "reasons": reasons}
