"""Cumulative gain of the backward pass over n blocks, beside the scalar chain dⁿ.

A chain of n equal scalar maps with derivative d passes a gradient on by dⁿ: 0.8²⁰ = 0.0115, 0.98²⁰ = 0.668,
1.02²⁰ = 1.486. A network's counterpart is the product of ``block_gain`` (METRICS.md) over the last n blocks: the mean
norm of the gradient after it has passed back through n blocks, divided by what it was at the trunk's end. The
product over all blocks is exactly activation_grad_norm at the first block's input over that at the last one's output.

n counts blocks, not layers. A post-activation block is D(I + J_F), with the activation's derivative D, and not I + J_F.
"""

from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.inside import Inside

if TYPE_CHECKING:
    import pandas as pd

GAIN = "block_gain"
START, END = "start", "end"
KEYS = ["moment", "connection", "depth", "num_blocks"]


def scalar_chain(d: float, num_blocks: "np.ndarray | int") -> np.ndarray:
    """dⁿ for each n of ``num_blocks``."""
    return np.asarray(d ** np.asarray(num_blocks, dtype=float))


def gain_chain(inside: Inside) -> "pd.DataFrame":
    """The chains of one setting, at its start and at its end.

    The start is each run's first probed step. The end is its last one with at least 10 % of the peak learning rate,
    as in the claim ``signal``.

    Returns:
        The table of ``chains``, with a column ``moment`` (``start`` or ``end``).
    """
    import pandas as pd

    parts = {START: inside.at_start(GAIN), END: inside.at_end(GAIN)}
    tables = [chains(rows).assign(moment=moment) for moment, rows in parts.items()]
    found = pd.concat(tables, ignore_index=True)
    return found[[*KEYS, *[name for name in found.columns if name not in KEYS]]]


def chains(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Products of block gains over the last n blocks: geometric mean over the seeds.

    A gain of exactly 0, or one that does not exist because no gradient arrives, ends its run's chain there.

    Args:
        rows: of ``block_gain``, one step a run: run_id, connection, depth, step, layer_index, value.

    Returns:
        One row per connection, depth and num_blocks n = 0 … B: step (the largest of the seeds'), n_seeds (whose chain
        goes so far), n_ended, value (1 for n = 0), low and high (least and greatest seed), and per_block, the d for
        which dⁿ is the value.
    """
    import pandas as pd

    runs = [_chain(run.sort_values("layer_index")) for _, run in rows.groupby("run_id", observed=True)]
    columns = ["connection", "depth", "num_blocks", "step", "log"]
    every = pd.concat(runs) if runs else pd.DataFrame(columns=columns)
    every = every.astype({"connection": str, "depth": int, "num_blocks": int, "step": int, "log": float})
    every["ended"] = every["log"].isna()
    groups = every.groupby(columns[:3])
    named = {
        "step": ("step", "max"), "n_seeds": ("log", "count"), "n_ended": ("ended", "sum"),
        "value": ("log", "mean"), "low": ("log", "min"), "high": ("log", "max"),
    }  # fmt: skip
    table = groups.agg(**named).reset_index()
    table["per_block"] = np.exp(table["value"] / table["num_blocks"].where(table["num_blocks"] > 0))
    table[["value", "low", "high"]] = np.exp(table[["value", "low", "high"]])
    return table


def _chain(run: "pd.DataFrame") -> "pd.DataFrame":
    """One run's logarithm of the product over its last n blocks, n = 0 … B; nan from where its chain ended."""
    import pandas as pd

    gains = np.asarray(run["value"], dtype=float)[::-1]
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.where(gains > 0, gains, np.nan)))])
    first = run.iloc[0]
    same = {name: first[name] for name in ("connection", "depth", "step")}
    return pd.DataFrame({"num_blocks": np.arange(len(logs)), "log": logs} | same)
