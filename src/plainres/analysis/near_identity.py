"""Arms that differ in how far from the identity a block starts, and how their training begins."""

from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.load import LoadedStudy
from plainres.analysis.tables import load_steps
from plainres.options import Drop, Gate, Merge, Recipe, Scale, Shortcut, ZeroInit
from plainres.pair import connection_of, identity_fields
from plainres.schema import ConnectionConf, RunConf
from plainres.store import Status

if TYPE_CHECKING:
    import pandas as pd

EARLY = 4  # the first 1/EARLY of the steps
LEARNED = (Scale.learned, Scale.per_channel)


def start_of(connection: ConnectionConf) -> str:
    """``full`` (y = x + F), ``near`` (the same with F smaller or zero at the start), or ``""`` for any other.

    A learned scale of 0 before a branch that is 0 itself is no start near the identity, but a saddle: neither factor
    has a gradient, and the block stays what it is.
    """
    zero = connection.zero_init is not ZeroInit.none
    plainly = (
        connection.shortcut is Shortcut.identity
        and connection.gate is Gate.none
        and connection.drop is Drop.none
        and connection.merge is Merge.add
        and connection.recipe is Recipe.none
    )
    if not plainly or (zero and connection.scale in LEARNED and connection.alpha == 0):
        return ""
    small = connection.scale is Scale.depth or connection.scale in LEARNED
    small |= connection.scale is Scale.fixed and connection.alpha is not None and abs(connection.alpha) < 1
    if zero or small:
        return "near"
    return "full" if connection.scale is Scale.none else ""


def starts(runs: "pd.DataFrame") -> dict[str, str]:
    """Connection label -> ``start_of`` it."""
    first = runs.drop_duplicates("connection")
    names = [name for name in identity_fields(RunConf()) if name.startswith("connection.")]
    rows = zip(first["connection"], first[names].to_dict("records"), strict=True)
    return {str(name): start_of(connection_of({str(k): v for k, v in row.items()})) for name, row in rows}


def early_losses(loaded: LoadedStudy) -> tuple[dict[str, float], list[str]]:
    """Mean training loss seen while training over the first quarter of the steps, as log10, of the runs that need it.

    Those are the runs of settings with an arm at full scale and one near the identity. A run that diverged before
    counts at chance level, ln C.

    Returns:
        run_id -> log10 of the loss; and a line for each table that cannot be read.
    """
    wanted = _ablated(loaded.runs)
    if wanted.empty:
        return {}, []
    rows, problems = load_steps(loaded, wanted, "eval", ["train_loss_running"])
    found = {}
    by_run = dict(tuple(rows.dropna(subset="value").groupby("run_id", observed=True)))
    for row in wanted.to_dict("records"):
        if row["status"] == Status.DIVERGED:
            found[row["run_id"]] = float(np.log10(chance_loss(row["chance_error"])))
        elif row["run_id"] in by_run:
            mean = early_mean(by_run[row["run_id"]].sort_values("step"), row["trainer.steps"] / EARLY)
            found |= {row["run_id"]: float(np.log10(mean))} if mean else {}
    return found, problems


def chance_loss(chance_error: float) -> float:
    """ln C, from the error of a guess, 1 − 1/C."""
    return float(-np.log(1 - chance_error))


def early_mean(rows: "pd.DataFrame", until: float) -> float | None:
    """Mean over the steps up to ``until``; each row holds the mean since the row before it."""
    early = rows[rows["step"] <= until]
    if early.empty:
        return None
    widths = np.diff(early["step"].to_numpy(dtype=float), prepend=0.0)
    return float(np.average(early["value"].to_numpy(dtype=float), weights=widths))


def _ablated(runs: "pd.DataFrame") -> "pd.DataFrame":
    parts = []
    for _, setting in runs.groupby("setting"):
        kinds = starts(setting)
        if {"full", "near"} <= set(kinds.values()):
            parts += [setting[setting["connection"].map(kinds) != ""]]
    import pandas as pd

    return pd.concat(parts) if parts else runs.iloc[:0]
