"""The runs that a comparison may use: finished ones, with their errors (chance level if diverged) and partners."""

from typing import TYPE_CHECKING

import numpy as np

from plainres.pair import match
from plainres.store import FINISHED, Status

if TYPE_CHECKING:
    import pandas as pd

METRICS = {"train_error": "num_train", "val_error": "num_val"}  # the error, and the N it is counted on
SERIES = ("train_error_batchstats", "train_error_running")  # may be missing: they are not needed for the verdict table
LEAST_LOSS = 1e-12  # of a mean cross-entropy, so that an exact 0 has a logarithm


def usable(runs: "pd.DataFrame") -> "pd.DataFrame":
    """The finished runs, with ``diverged``, their errors (chance level if diverged) and ``log_loss``.

    ``log_loss`` is log10 of the final training loss; nan for diverged runs.
    """
    return split_usable(runs)[0]


def split_usable(runs: "pd.DataFrame") -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """``usable``, and the other runs with the reason (``reasons``)."""
    import pandas as pd

    diverged = runs["status"] == Status.DIVERGED
    names = (*METRICS, *SERIES)
    errors = {m: runs[f"final_{m}"].where(~diverged, runs["chance_error"]).astype(float) for m in names}
    loss = np.log10(runs["final_train_loss"].astype(float).where(~diverged).clip(lower=LEAST_LOSS))
    # concat, not assign: pandas warns of adding columns one by one to a table of so many
    runs = pd.concat([runs, pd.DataFrame({"diverged": diverged, "log_loss": loss, **errors})], axis=1)
    finished = runs["status"].isin([str(s) for s in FINISHED])
    has_value = runs[[*METRICS, *METRICS.values()]].notna().all(axis=1)
    why = runs["status"].map(lambda status: f"{status}: has no result at the budget")
    why = why.where(~finished, "run.json holds no final error, chance level or number of examples")
    used = finished & has_value
    return runs[used], reasons(runs[~used], why[~used])


def reasons(runs: "pd.DataFrame", why: "pd.Series[str] | str") -> "pd.DataFrame":
    """Runs by name, with why they are left out."""
    return runs[["name", "setting", "depth", "connection", "seed", "status"]].assign(why=why)


def grouped(runs: "pd.DataFrame", free: list[str]) -> "pd.DataFrame":
    """``runs`` with ``group``: equal for runs that differ in nothing but the fields in ``free``."""
    import pandas as pd

    groups = match(runs, free).groups if len(runs) else pd.Series(dtype=int)
    return pd.concat([runs, groups.rename("group")], axis=1)
