"""What the page shows of one setting of a study: small tables, taken while the large ones are in memory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plainres.analysis.over_time import OverTime

if TYPE_CHECKING:
    import pandas as pd

CURVES = {
    "train_error": "training error (clean)",
    "train_error_batchstats": "training error with batch statistics",
    "train_error_running": "training error seen while training",
    "val_error": "validation error",
    "train_loss": "training loss (clean)",
    "train_loss_running": "training loss seen while training",
}


@dataclass(frozen=True)
class Part:
    """One setting.

    Attributes:
        setting: its label.
        curves: ``analysis.curves.curves`` of the metrics in ``CURVES``.
        over_time: layers over steps.
        chain: ``analysis.gain_chain.gain_chain``.
        last_moving: the last probed step of any run with at least a tenth of its peak learning rate; None without.
    """

    setting: str
    curves: "pd.DataFrame"
    over_time: OverTime
    chain: "pd.DataFrame"
    last_moving: int | None
