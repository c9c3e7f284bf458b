"""`plainres lesion`: the lesions of some runs of one study as a table, a figure and a summary on the terminal."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.analysis.lesion import summarise
from plainres.errors import UserError
from plainres.figures.canvas import NothingToDraw
from plainres.figures.save import csv_bytes, save
from plainres.report.terminal import make_console
from plainres.store import clear_partial, write_atomic
from plainres.theory.lesion import lesions
from plainres.theory.together import arm_labels, check_one_study
from plainres.theory.trained import Trained, load_trained

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Echo = Callable[[str], None]


def lesion_report(
    paths: Sequence[str | Path], swap: bool, echo: Echo, console: "Console | None" = None
) -> "pd.DataFrame":
    """Damage each run, print what that costs, and write ``<study>/report/lesion/``.

    Args:
        paths: folders of complete runs of one study and setting.
        swap: exchange pairs of blocks instead of deleting single ones.
        echo: called with a line for each run before its lesions.
        console: where the summary goes.

    Returns:
        The table of delete.csv or swap.csv: one row per run and lesion.

    Raises:
        UserError: a run that cannot be used, runs of several studies or settings, or a folder that cannot be written.
    """
    runs = [load_trained(path) for path in paths]
    check_one_study(runs)
    table = _table(runs, swap, echo)
    name = "swap" if swap else "delete"
    folder = runs[0].study.report_dir / "lesion"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_partial(folder)
        written = save(f"lesion_{name}", table, folder, name)
    except NothingToDraw as nothing:
        write_atomic(folder / f"{name}.csv", csv_bytes(table))
        written = [folder / f"{name}.csv"]
        echo(f"no figure: {nothing}")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); make room or it writable") from error
    _print(table, swap, console or make_console())
    echo(f"wrote {', '.join(str(path) for path in written)}")
    return table


def _table(runs: Sequence[Trained], swap: bool, echo: Echo) -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for run, arm in zip(runs, arm_labels([run.conf for run in runs]), strict=True):
        found = run.intact["train_error"]
        same = (
            "as recorded" if found == run.recorded else f"recorded: {run.recorded:.2%}, on other hardware or versions"
        )
        echo(f"{run.folder.name}: training error {found:.2%}, {same}")
        first = {
            "run": run.folder.name, "connection": arm, "depth": run.conf.depth, "seed": run.conf.seed,
            **{f"intact_{name}": run.intact[name] for name in ("train_error", "val_error")},
        }  # fmt: skip
        rows += [first | lesion for lesion in lesions(run, swap)]
    if not rows:
        raise UserError("no two blocks of these runs have one shape, so none can change places; leave out --swap")
    table = pd.DataFrame(rows).assign(chance_error=runs[0].data.chance_error)
    numbers = ("train_error", "train_loss", "val_error", "val_loss")
    return table.astype(dict.fromkeys(numbers, float) | dict.fromkeys(("block", "other", "distance"), "Int64"))


def _print(table: "pd.DataFrame", swap: bool, console: "Console") -> None:
    from rich import box
    from rich.table import Table

    done, where = ("swaps", "of blocks") if swap else ("deletions", "at block")
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("depth", "connection", "seed", done, "intact, %", "median rise, points", "largest rise", where):
        shown.add_column(name, justify="left" if name == "connection" else "right", no_wrap=name == "connection")
    for row in summarise(table).to_dict("records"):
        left_out = f" ({row['n_left_out']} left out)" if row["n_left_out"] else ""
        percents = [f"{100 * row[name]:.2f}" for name in ("intact_train_error", "median_rise", "largest_rise")]
        worst = row["worst_block"] if row["worst_other"] is None else f"{row['worst_block']} and {row['worst_other']}"
        cells = [row["depth"], row["connection"], row["seed"], f"{row['n']}{left_out}", *percents, worst]
        shown.add_row(*(str(cell) for cell in cells))
    console.print(shown)
