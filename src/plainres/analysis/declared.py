"""What each connection declares, to be said beside its results: its kind, extra parameters, rules of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.options import Merge, Recipe, Shortcut, ZeroInit
from plainres.pair import connection_differences, connection_of, kind_of

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]


@dataclass(frozen=True)
class Declaration:
    """What a reader must know of one arm.

    Attributes:
        mark: the shortest form, for a table's cell: ``recipe``, ``not residual``, ``+16,640 parameters``; or empty.
        words: the whole of it, one sentence; empty where only an addition differs.
    """

    mark: str
    words: str


def declarations(runs: "pd.DataFrame", records: dict[str, Record]) -> dict[str, Declaration]:
    """For each connection that declares something; numbers are those of its deepest audited run.

    Args:
        runs: rows of one setting.
        records: run.json by run_id.
    """
    found = {}
    for name, arm in runs.groupby("connection"):
        audited = arm[[bool(records[key].get("audit")) for key in arm["run_id"]]]
        if len(audited):
            deepest = audited.sort_values("depth").iloc[-1]
            declaration = _declaration(records[deepest["run_id"]], int(deepest["depth"]))
            if declaration.words:
                found[str(name)] = declaration
    return found


def declared_lines(declared: dict[str, Declaration]) -> Iterator[str]:
    """``highway, gated: 99,840 parameters more than plain``: what each declares, equal ones together."""
    for words in dict.fromkeys(declaration.words for declaration in declared.values()):
        yield f"{', '.join(name for name, found in declared.items() if found.words == words)}: {words}"


def _declaration(record: Record, depth: int) -> Declaration:
    connection = connection_of(record["identity"])
    if connection.shortcut is Shortcut.none:
        return Declaration("", "")
    declared = [check for check in record["audit"]["checks"] if check["result"] == "declared"]
    rules = [check["why"] for check in declared if check["check"] == "connection_rules"]
    more = sum(c["this"] - c["partner"] for c in declared if c["check"] == "connection_parameters")
    marks, words = [], []
    if connection.merge is Merge.concat:
        marks.append("not residual")
        words.append(kind_of(connection))
    if connection.recipe is not Recipe.none:
        marks.append("recipe")
        words.append(f"recipe, differs from plain in {', '.join(connection_differences(connection))}")
    if more:
        marks.append(f"+{more:,} parameters")
        words.append(f"{more:,} parameters more than plain")
    if rules:
        marks += ["zero init"] if connection.zero_init is not ZeroInit.none else []
        words.append("; ".join(rules))
    at = f" (at depth {depth})" if more or rules else ""
    return Declaration(", ".join(marks), "; ".join(words) + at if words else "")
