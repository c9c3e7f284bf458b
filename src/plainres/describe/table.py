"""The description of a network on the terminal: a table of its parts, then totals, rules and the audit."""

from typing import TYPE_CHECKING

from plainres.data import load
from plainres.describe.network import Description, describe
from plainres.report.terminal import make_console
from plainres.schema import RunConf

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHORTCUT = 13  # characters, "conv1x1 16→32": a longer shortcut wraps, so that the formulas beside it need not


def print_description(conf: RunConf, console: "Console | None" = None) -> None:
    """Describe a run without training it.

    Raises:
        UserError: the network cannot be built.
    """
    found = describe(conf, load(conf.data))
    console = console or make_console()
    console.print(f"{found.title}\n{found.kind}", markup=False, soft_wrap=True)
    console.print(_parts(found))
    for line in _lines(found):
        console.print(line, markup=False, soft_wrap=True)
    if found.audit["checks"]:
        console.print()
        console.print(_checks(found))


def _parts(found: Description) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("block", "shape", "shortcut"):
        table.add_column(name, no_wrap=name != "shortcut", max_width=SHORTCUT if name == "shortcut" else None)
    for name in ("model", "connection"):
        table.add_column(f"parameters\n{name}", justify="right", no_wrap=True)
    table.add_column("operations", ratio=1, overflow="fold")
    for row in found.rows:
        numbers = [f"{row.model_parameters:,}", f"{row.connection_parameters:,}"]
        texts = [row.where, row.shapes, row.shortcut, *numbers, "\n".join(row.operations)]
        table.add_row(*(Text(text) for text in texts))
    return table


def _lines(found: Description) -> list[str]:
    model, added = found.parameters
    per = f" ({100 * added / model:.1f} % more than the partner)" if added else ""
    rows = [
        *(("" if i else "where", note) for i, note in enumerate(found.notes)),
        ("parameters", f"{model + added:,} = {model:,} of the model + {added:,} of the connection{per}"),
        ("depth", found.depth_rule),
        ("L", f"{found.branches} branches joined to the trunk" if found.differing else "nothing is joined (plain)"),
        ("declares", "; ".join(found.declared) or "nothing beside its operations"),
    ]
    if found.differing:
        rows.append(("against plain", ", ".join(found.differing)))
    return ["", *(f"{name:<14}{text}" for name, text in rows)]


def _checks(found: Description) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    verdict = "clean" if found.audit["clean"] else "NOT matched: such a run is refused"
    title = f"audit against {found.audit['partner']}, all else equal: {verdict}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("what differs", ratio=1)
    for check in found.audit["checks"]:
        table.add_row(Text(check["check"]), Text(check["result"]), Text(check["why"]))
    return table
