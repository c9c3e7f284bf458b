"""The claim not_tuning: the gap with each arm at its own best learning rate.

Some seeds choose, the others are compared: the best of five rates looks better than it is on the seeds that chose it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, effect_words, not_tested
from plainres.analysis.commands import beside, run_command
from plainres.analysis.degradation import onset_of
from plainres.analysis.evidence_errors import Make, made, without_onset
from plainres.analysis.pool import Pool
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN

if TYPE_CHECKING:
    import pandas as pd

RATE = "optimizer.lr"
FREE = ["depth", "connection", "seed", RATE]
TUNING_FROM = 100  # seeds from here on choose, those below are compared
GRID = (0.3, 0.1, 0.03, 0.01, 0.003)
SEEDS = (0, 1, 2, 100, 101, 102)
START = {
    ClaimStatus.SUPPORTED: "A learning rate of its own for each arm does not close the gap",
    ClaimStatus.CONTRADICTED: "At each arm's best learning rate the gap is closed",
    ClaimStatus.UNDECIDED: "Not clear whether the gap is there at each arm's best learning rate",
}


@dataclass(frozen=True)
class Best:
    """The learning rate at which one arm has the least mean training loss on the choosing seeds.

    Attributes:
        rate: the learning rate.
        edge: it is the least or the greatest of those tried, so that the true best may lie beyond.
    """

    rate: float
    edge: bool


@dataclass(frozen=True, eq=False)
class Tuning:
    """All finished runs of one setting at any learning rate."""

    used: "pd.DataFrame"

    @classmethod
    def of(cls, cells: Cells, pool: Pool) -> "Tuning":
        """The runs that differ from these cells in nothing but the learning rate."""
        import pandas as pd

        alike = pool.alike(cells, FREE)
        return cls(pd.concat([one.used for one in alike], ignore_index=True) if alike else cells.used)

    @cached_property
    def rates(self) -> list[float]:
        """Every learning rate tried, smallest first."""
        return sorted(float(rate) for rate in self.used[RATE].unique())

    def cell(self, connection: str, depth: int) -> "pd.DataFrame":
        """The runs of one arm at one depth, all rates and seeds."""
        return self.used[(self.used["connection"] == connection) & (self.used["depth"] == depth)]

    def best(self, connection: str, depth: int) -> Best | None:
        """None where no two rates have the same choosing seeds, or everything diverged."""
        tried = self.cell(connection, depth)
        tried = tried[tried["seed"] >= TUNING_FROM]
        seeds = {float(str(rate)): frozenset(part["seed"]) for rate, part in tried.groupby(RATE)}
        every = frozenset().union(*seeds.values())
        whole = [rate for rate, found in seeds.items() if found == every]
        if len(whole) < 2:
            return None
        # A diverged run has no loss: a rate at which one diverges is not chosen.
        loss = {rate: _mean_loss(tried[tried[RATE] == rate]) for rate in whole}
        rate = min(loss, key=lambda rate: (loss[rate], rate))
        return None if np.isinf(loss[rate]) else Best(rate, rate in (min(whole), max(whole)))

    def at_best(self, cells: Cells, connection: str, depths: Sequence[int]) -> Cells:
        """The runs to compare: both arms at each depth, each at its own best rate."""
        import pandas as pd

        parts = [cells.used.iloc[:0]]
        for depth in depths:
            for arm in (PLAIN, connection):
                best = self.best(arm, depth)
                runs = self.cell(arm, depth)
                mine = runs[(runs["seed"] < TUNING_FROM) & (runs[RATE] == best.rate)] if best else runs.iloc[:0]
                parts.append(mine)
        # One name for all rates, so that runs at different ones are partners.
        return Cells(cells.setting, cells.runs, pd.concat(parts).assign(**{RATE: "best"}))


def _mean_loss(runs: "pd.DataFrame") -> float:
    return float("inf") if runs["diverged"].any() else float(np.mean(10 ** runs["log_loss"].astype(float)))


def not_tuning(study: str, cells: Cells, connection: str, pool: Pool) -> Claim:
    """Gaps at and beyond the onset, each arm at the best of its learning rates."""
    onset = onset_of(cells.plain_rises)
    tuning = Tuning.of(cells, pool)
    if onset is None and len(tuning.rates) > 1:
        return without_onset("not_tuning", study, cells, connection)
    depths = [d for d in cells.depths(PLAIN) if onset is not None and d >= onset]
    best = {d: (tuning.best(PLAIN, d), tuning.best(connection, d)) for d in depths}
    chosen = [d for d in depths if all(best[d])]
    command = _command(study, cells, connection)
    if not chosen:
        where = "" if onset is None else f" from depth {onset} on"
        words = f"Not tested: no runs of both arms{where} at several learning rates, with seeds of their own to choose."
        words += beside(study, f"{study}_learning_rate")
        return not_tested("not_tuning", cells.setting, connection, words, command)
    at_best = tuning.at_best(cells, connection, chosen)
    comparisons = made([_gap(at_best, connection, depth, best[depth]) for depth in chosen])
    status = all_of(comparisons)
    said = "; ".join(f"{c.label}: {effect_words(c)}" for c in comparisons)
    caveat = _caveat(connection, tuning, best)
    words = f"{START[status]}; {said}."
    return claim("not_tuning", cells.setting, connection, status, words, comparisons, None, command, caveat)


def _gap(at_best: Cells, connection: str, depth: int, best: tuple[Best | None, Best | None]) -> Make:
    part = RULES["not_tuning"].parts["gap"]
    rates = " and ".join(f"{one.rate:g}" for one in best if one)
    return lambda level: at_best.gap("gap", part, connection, depth, level, f", learning rates {rates}")


def _caveat(connection: str, tuning: Tuning, best: dict[int, tuple[Best | None, Best | None]]) -> str:
    """Where a better rate may lie beyond those tried, and the depths that have no choice of rates."""
    edges = [
        f"{arm} at depth {depth} ({one.rate:g})"
        for depth, both in best.items()
        for arm, one in zip((PLAIN, connection), both, strict=True)
        if one and one.edge
    ]
    text = ""
    if edges:
        text = f"At the edge of the rates tried ({', '.join(f'{r:g}' for r in tuning.rates)}), so that a better one "
        text += f"may lie beyond: {', '.join(edges)}."
    untuned = [str(depth) for depth, both in best.items() if not all(both)]
    return f"{text} Without a choice of rates: depth {', '.join(untuned)}.".strip() if untuned else text


def _command(study: str, cells: Cells, connection: str) -> str:
    rates = ",".join(f"{rate:g}" for rate in GRID)
    names = [PLAIN, connection]
    return run_command(f"{study}_learning_rate", cells.runs, (), names, SEEDS, f"{RATE}={rates}")
