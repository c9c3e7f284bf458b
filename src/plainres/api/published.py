"""A published report, such as those in results/published: the tables that a study was reduced to, without its rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from plainres.api.study import Study
from plainres.errors import UserError
from plainres.pair import identity_fields
from plainres.schema import RunConf

if TYPE_CHECKING:
    import pandas as pd

    from plainres.api.evidence import Evidence


class PublishedStudy(Study):
    """Runs, verdict table, evidence and own comparisons as they were published; no curves, no layers, no new report."""

    def __init__(self, path: Path) -> None:
        import pandas as pd

        self.path = path
        self.runs = pd.read_csv(path / "runs.csv", keep_default_na=False, na_values=[""])
        for name, default in identity_fields(RunConf()).items():
            if name not in self.runs:  # a setting younger than these runs, which had its default
                self.runs[name] = json.dumps(default) if isinstance(default, list | dict) else default
        self.problems = []

    def curves(self) -> NoReturn:
        self._lacks("training curves")

    def layers(self, metric: str) -> NoReturn:
        self._lacks(f"layer tables, so no {metric}")

    def degradation(self) -> "pd.DataFrame":
        import pandas as pd

        table = pd.read_csv(self.path / "degradation.csv", keep_default_na=False, na_values=[""])
        return table.astype({"degradation_from_depth": "Int64"})

    def evidence(self, beside: Sequence[str | Path | Study] = ()) -> "Evidence":
        from plainres.api.evidence import Evidence

        if beside:
            self._lacks("run folders, so no other study can be read beside it")
        return Evidence(json.loads((self.path / "evidence.json").read_text()))

    def report(self, beside: Sequence[str | Path | Study] = ()) -> NoReturn:
        self._lacks("run folders to report on")

    def _on_disk(self) -> NoReturn:
        self._lacks("run folders, so it cannot be read beside another study")

    def _lacks(self, what: str) -> NoReturn:
        raise UserError(f"{self.path}: is a published report and holds no {what}; run its study again and load that")
