"""The runs that the claims about a study may draw on: its own, and those of the studies that are read beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plainres.analysis.cells import Cells
from plainres.analysis.results import grouped
from plainres.analysis.settings import add_labels, is_built
from plainres.pair import identity_fields
from plainres.schema import RunConf
from plainres.store import Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Pool:
    """Runs of one or several studies, each run once.

    Attributes:
        runs: rows as in ``LoadedStudy.runs``. ``setting`` labels what varies over all of them; ``connection`` is the
            study's own label wherever the study has that connection.
        early_loss: run_id -> log10 of the mean training loss early on (``near_identity.early_losses``), if known.
    """

    runs: "pd.DataFrame"
    early_loss: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        own: "pd.DataFrame",
        others: Sequence["pd.DataFrame"] = (),
        early_loss: Mapping[str, float] | None = None,
    ) -> "Pool":
        """The runs of a study, and of others; a run that several of them hold is taken from the first."""
        import pandas as pd

        if not others:
            return cls(own, early_loss or {})
        both = pd.concat([own, *others], ignore_index=True).drop_duplicates("run_id", ignore_index=True)
        labelled = add_labels(both)
        known = dict(zip(_connection_keys(own), own["connection"], strict=True))
        keys = _connection_keys(labelled)
        names = [known.get(key, name) for key, name in zip(keys, labelled["connection"], strict=True)]
        return cls(labelled.assign(connection=pd.Series(names, index=labelled.index, dtype=str)), early_loss or {})

    def without_diverged(self) -> "Pool":
        """The same without the runs that diverged."""
        return replace(self, runs=self.runs[self.runs["status"] != Status.DIVERGED])

    def alike(self, cells: Cells, free: Sequence[str]) -> list[Cells]:
        """The settings that are equal to that of ``cells`` in every identity field but those in ``free``, its own too.

        ``free`` must name depth, connection and seed as well, which no setting holds.
        """
        own = self.runs.loc[self.runs["run_id"].isin(cells.runs["run_id"]), "setting"]
        if own.empty:
            return []
        scratch = self.runs[~is_built(self.runs)]
        first = grouped(scratch.drop_duplicates("setting"), list(free))[["setting", "group"]]
        group = first.loc[first["setting"] == own.iloc[0], "group"].iloc[0]
        return [Cells.of(self.runs, str(name)) for name in first.loc[first["group"] == group, "setting"]]


def _connection_keys(runs: "pd.DataFrame") -> list[str]:
    """The parts of each run's connection, and what it started from, as one text."""
    names = [name for name in identity_fields(RunConf()) if name.startswith(("connection.", "start."))]
    return [repr(row) for row in runs[names].astype(object).where(runs[names].notna(), None).to_numpy().tolist()]
