"""Errors after lesions, over the seeds of each connection and depth."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "val")
ARM = ["depth", "connection"]


def summarise(table: "pd.DataFrame") -> "pd.DataFrame":
    """What the lesions of each run add up to.

    Args:
        table: one row per run and lesion: run, connection, depth, seed, block, other (missing for a deletion),
            intact_train_error, train_error (fractions; nan where the lesion cannot be done), …

    Returns:
        One row per run, by depth, connection and seed: intact_train_error, n lesions, n_left_out, and of the error
        after a lesion minus the intact one: median_rise, largest_rise; worst_block, the block of the largest, and
        worst_other, the one that it was exchanged with (None if it was deleted).
    """
    import pandas as pd

    rows = []
    for (depth, connection, seed), run in table.groupby([*ARM, "seed"]):
        rise = (run["train_error"] - run["intact_train_error"]).dropna()
        known = len(rise) > 0
        worst = run.loc[rise.idxmax(), ["block", "other"]] if known else None
        rows.append(
            {
                "depth": depth, "connection": connection, "seed": seed,
                "intact_train_error": run["intact_train_error"].iloc[0],
                "n": len(rise), "n_left_out": len(run) - len(rise),
                "median_rise": rise.median() if known else float("nan"),
                "largest_rise": rise.max() if known else float("nan"),
                "worst_block": None if worst is None else int(worst["block"]),
                "worst_other": None if worst is None or pd.isna(worst["other"]) else int(worst["other"]),
            }
        )  # fmt: skip
    # Objects: whole numbers beside None stay whole.
    return pd.DataFrame(rows).astype({"worst_block": object, "worst_other": object})


def over_seeds(table: "pd.DataFrame", place: str) -> "pd.DataFrame":
    """Mean, least and greatest error after a lesion at each ``block`` or ``distance`` (``place``).

    Returns:
        One row per depth, connection, split (train, val) and place: n, mean, low, high (fractions), intact (the mean of
        the whole networks').
    """
    import pandas as pd

    parts = []
    for split in SPLITS:
        named = {
            "n": (f"{split}_error", "count"), "mean": (f"{split}_error", "mean"), "low": (f"{split}_error", "min"),
            "high": (f"{split}_error", "max"), "intact": (f"intact_{split}_error", "mean"),
        }  # fmt: skip
        parts.append(table.groupby([*ARM, place]).agg(**named).reset_index().assign(split=split))
    return pd.concat(parts, ignore_index=True)
