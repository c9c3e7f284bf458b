"""audit.csv: for every matched pair, what the arm's audit found, and what the two stored runs say now.

The audit runs before the partner is trained. The stored runs can still differ (another commit, a restored
folder), so their environments, data and signatures are compared again here.
"""

from typing import TYPE_CHECKING, Any

from plainres.analysis.settings import PLAIN
from plainres.pair import match

if TYPE_CHECKING:
    import pandas as pd

CHECKS = ("parameters", "draws", "order", "operations", "optimizer", "schedule", "budget")
STORED = ("commit", "code_hash", "versions", "device_kind", "threads", "precision")
HARMLESS = ("commit",)  # another commit with the same code_hash runs the same code
Record = dict[str, Any]


def audit_table(runs: "pd.DataFrame", records: dict[str, Record]) -> "pd.DataFrame":
    """One row per pair (plain, other arm) that is equal in all but the connection.

    Args:
        runs: the table of runs; those without an audit (planned) form no pair.
        records: run.json by run_id.
    """
    import pandas as pd

    audited = runs[[bool(records[run_id].get("audit")) for run_id in runs["run_id"]]]
    if audited.empty:
        return pd.DataFrame(columns=_columns())
    audited = audited.assign(group=match(audited, ["connection"]).groups)
    is_plain = audited["connection.name"] == PLAIN  # also one that was built, the partner of those built likewise
    plain = audited[is_plain][["group", "run_id"]]
    pairs = audited[~is_plain].merge(plain, on="group", suffixes=("", "_plain"))
    rows = [
        {key: pair[key] for key in ("setting", "depth", "connection", "seed", "pair_id")}
        | {"plain_run_id": pair["run_id_plain"], "run_id": pair["run_id"]}
        | _compare(records[pair["run_id"]], records[pair["run_id_plain"]])
        for pair in pairs.to_dict("records")
    ]
    return pd.DataFrame(rows, columns=_columns())


def _columns() -> list[str]:
    stored = [f"stored_{name}" for name in (*STORED, "data", "signature")]
    ids = ["setting", "depth", "connection", "seed", "pair_id", "plain_run_id", "run_id"]
    return [*ids, *CHECKS, *stored, "declared", "undeclared", "clean"]


def _compare(arm: Record, plain: Record) -> Record:
    audit = arm["audit"]
    results = {check["check"]: check["result"] for check in audit["checks"]}
    here, there = arm.get("environment") or {}, plain.get("environment") or {}
    stored = {f"stored_{name}": _equal(here.get(name), there.get(name)) for name in STORED}
    data = ((record.get("data") or {}).get("sha256") for record in (arm, plain))
    stored["stored_data"] = _equal(*data)
    stored["stored_signature"] = _equal(audit["partner_signature"], plain["audit"]["signature"])
    undeclared = [name for name, result in results.items() if result == "undeclared"]
    grave = {key: value for key, value in stored.items() if key.removeprefix("stored_") not in HARMLESS}
    return (
        {name: results.get(name, "not checked") for name in CHECKS}
        | stored
        | {"declared": "; ".join(audit["declared"]), "undeclared": "; ".join(undeclared)}
        | {"clean": bool(audit["clean"]) and not undeclared and set(grave.values()) == {"equal"}}
    )


def _equal(this: object, that: object) -> str:
    if this is None or that is None:
        return "missing"
    return "equal" if this == that else "different"


def audit_in_words(table: "pd.DataFrame") -> list[str]:
    """The audit in a few sentences: how many pairs are clean, what is declared, what differs."""
    if table.empty:
        return ["No matched pair: nothing was compared."]
    clean = int(table["clean"].sum())
    lines = [f"{clean} of {len(table)} matched pairs are clean: nothing differs but what the connection declares."]
    for connection, arm in table.groupby("connection"):
        declared = sorted({text for text in arm["declared"] if text})
        lines.append(f"{connection} declares: {'; '.join(declared) if declared else 'nothing'}.")
    for column in (*CHECKS, *[name for name in table.columns if name.startswith("stored_")]):
        bad = table[table[column].isin(["different", "undeclared", "missing", "not checked"])]
        if len(bad):
            kinds = ", ".join(sorted(set(bad[column])))
            what = column.replace("stored_", "stored ")
            lines.append(f"{what}: {kinds} in {len(bad)} of {len(table)} pairs, first {bad['run_id'].iloc[0]}.")
    return lines
