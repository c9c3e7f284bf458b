"""The rows of chosen runs as tidy tables, each with its run's columns. Lazy: nothing is read until asked for."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from plainres.analysis.load import LoadedStudy

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

RUN_COLUMNS = ["run_id", "setting", "connection", "depth", "seed", "status"]


def load_steps(
    loaded: LoadedStudy, runs: "pd.DataFrame", kind: str, metrics: Collection[str]
) -> tuple["pd.DataFrame", list[str]]:
    """Run-scope rows.

    Args:
        loaded: the study.
        runs: the wanted rows of ``loaded.runs``.
        kind: ``eval`` or ``update``.
        metrics: the wanted metrics.

    Returns:
        Columns step, kind, metric, value, reason and ``RUN_COLUMNS``; and a line for each unreadable table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = (pc.field("kind") == kind) & pc.field("metric").isin(pa.array(sorted(metrics), pa.string()))
    return _load(loaded, runs, "steps", dict.fromkeys(runs["run_id"], wanted))


def load_layers(
    loaded: LoadedStudy,
    runs: "pd.DataFrame",
    metrics: Collection[tuple[str, str]],
    steps: Mapping[str, Collection[int]],
) -> tuple["pd.DataFrame", list[str]]:
    """Per-layer rows.

    Args:
        loaded: the study.
        runs: the wanted rows of ``loaded.runs``.
        metrics: pairs of scope and metric.
        steps: the wanted steps of each run, by run_id; a deep run probed at every step is large.

    Returns:
        Columns step, scope, layer_index, layer_name, metric, value, reason and ``RUN_COLUMNS``; and a line
        for each unreadable table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(sorted({metric for _, metric in metrics}), pa.string())
    scopes = pa.array(sorted({scope for scope, _ in metrics}), pa.string())
    wanted = pc.field("metric").isin(names) & pc.field("scope").isin(scopes)
    filters = {
        run_id: wanted & pc.field("step").isin(pa.array(sorted(steps.get(run_id, ())), pa.int32()))
        for run_id in runs["run_id"]
    }
    table, problems = _load(loaded, runs, "layers", filters)
    pairs = table["scope"].astype(str) + "/" + table["metric"].astype(str)
    return table[pairs.isin([f"{scope}/{metric}" for scope, metric in metrics])], problems


def load_evaluations(loaded: LoadedStudy, runs: "pd.DataFrame") -> tuple["pd.DataFrame", list[str]]:
    """``load_steps`` of every metric that was evaluated, with plain text columns."""
    import pyarrow.compute as pc

    rows, problems = _load(loaded, runs, "steps", dict.fromkeys(runs["run_id"], pc.field("kind") == "eval"))
    return _as_text(rows), problems


def load_metric(loaded: LoadedStudy, runs: "pd.DataFrame", metric: str) -> tuple["pd.DataFrame", list[str]]:
    """``load_layers`` of one metric in whatever scopes it has, at every probed step, with plain text columns."""
    import pyarrow.compute as pc

    rows, problems = _load(loaded, runs, "layers", dict.fromkeys(runs["run_id"], pc.field("metric") == metric))
    return _as_text(rows), problems


def layer_metrics(loaded: LoadedStudy, runs: "pd.DataFrame") -> list[str]:
    """Names of the metrics that some of these runs measured in their layers or blocks."""
    import pyarrow.compute as pc

    first = pc.field("layer_index") == 0
    rows, _ = _load(loaded, runs, "layers", dict.fromkeys(runs["run_id"], first))
    return sorted(map(str, rows["metric"].unique()))


def _as_text(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Categories save memory, and surprise whoever groups or pivots by them."""
    kinds = {name: str for name in rows.columns if str(rows[name].dtype) == "category" and name != "reason"}
    return rows.astype(kinds | ({"reason": object} if "reason" in rows else {}))


def _load(
    loaded: LoadedStudy, runs: "pd.DataFrame", name: str, filters: Mapping[str, "pa.compute.Expression"]
) -> tuple["pd.DataFrame", list[str]]:
    import pandas as pd
    import pyarrow as pa

    from plainres.rows import LAYERS_SCHEMA, STEPS_SCHEMA, read_table

    schema = STEPS_SCHEMA if name == "steps" else LAYERS_SCHEMA
    parts, owners, problems = [], [], []
    for i, run in enumerate(runs.to_dict("records")):
        folder = loaded.study.run_folder(run["folder"])
        try:
            table = read_table(folder, name, loaded.records[run["run_id"]].get("layout") or {})
            # Other people's columns go; one of ours that is not there is a KeyError.
            parts.append(table.select(schema.names).cast(schema).filter(filters[run["run_id"]]))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            problems.append(
                f"runs/{run['folder']}: {name} table cannot be read ({type(error).__name__}); left out of the figures; "
                "delete the folder and run it again"
            )
            continue
        owners.append((i, parts[-1].num_rows))
        lost = _without_reason(parts[-1])
        if lost:
            problems.append(
                f"runs/{run['folder']}: {lost} values of the {name} table are missing without a reason; "
                "delete the folder and run it again"
            )
    rows = (pa.concat_tables(parts) if parts else schema.empty_table()).to_pandas(
        categories=[c for c in ("kind", "scope", "layer_name", "metric", "reason") if c in schema.names]
    )
    owner = pd.Series([i for i, n in owners for _ in range(n)], dtype=int)
    keys = runs[RUN_COLUMNS].reset_index(drop=True).astype({"setting": "category", "connection": "category"})
    return pd.concat([keys.loc[owner].reset_index(drop=True), rows], axis=1), problems


def _without_reason(table: "pa.Table") -> int:
    """How many values are null or nan though no reason is given: what does not exist has one in our own tables."""
    import pyarrow.compute as pc

    gone = pc.and_(pc.is_null(table["value"], nan_is_null=True), pc.is_null(table["reason"]))
    return int(pc.sum(gone).as_py() or 0)
