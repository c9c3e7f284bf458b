"""``plainres.evidence``: the verdict on a study and its claims, to print, index and filter. Never imports PyTorch."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainres.analysis.rules import ClaimStatus
from plainres.api.study import Study, load
from plainres.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("setting", "connection", "status", "effect", "low", "high", "unit", "margin", "n", "sentence", "command")


def evidence(study: str | Path | Study, beside: Sequence[str | Path | Study] = ()) -> "Evidence":
    """What a study decides.

    Args:
        study: a study, or its folder.
        beside: further ones whose runs test claims about it (budget, learning rate, initial scales, construction).

    Raises:
        UserError: one of them is no study.
    """
    return load(study).evidence(beside)


@dataclass(frozen=True)
class Claim:
    """One claim, as in evidence.json.

    Attributes:
        id: ``degradation``, ``cured``, …: the rules of docs/evidence.md.
        setting, connection: what it is about; connection "" for a claim about the plain arm alone.
        status: ``supported``, ``contradicted``, ``undecided`` or ``not_tested``.
        statement: the claim in words.
        sentence: what the runs say, in words.
        effect, low, high: of the comparison that stands for it, in ``unit``; None where there is none.
        margin: in the same unit.
        n: number of pairs.
        command: what would decide it; "" if it is decided.
        comparisons: everything that was compared for it.
    """

    id: str
    setting: str
    connection: str
    status: ClaimStatus
    statement: str
    sentence: str
    effect: float | None
    low: float | None
    high: float | None
    unit: str | None
    margin: float | None
    n: int
    command: str
    comparisons: "pd.DataFrame"

    def __repr__(self) -> str:
        about = f" ({self.connection})" if self.connection else ""
        return f"{self.id}{about}: {self.status}. {self.sentence}"


class Evidence:
    """The content of an evidence.json.

    Attributes:
        document: the whole of it, as docs/evidence.md describes it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def verdict(self) -> str:
        """What was shown, and what was not, in two sentences."""
        return " ".join(self.document["verdict"]["sentences"])

    @cached_property
    def verdicts(self) -> "pd.DataFrame":
        """One row per setting and connection: ``id`` (a row of docs/evidence.md's table), ``shown``, ``not_shown``."""
        import pandas as pd

        return pd.DataFrame(
            self.document["verdict"]["parts"], columns=["setting", "connection", "id", "shown", "not_shown"]
        )

    @cached_property
    def claims(self) -> "pd.DataFrame":
        """One row a claim, named by its id: what it is about, status, effect with interval, n, result in words."""
        import pandas as pd

        rows = [{name: claim[name] for name in ("id", *COLUMNS)} for claim in self.document["claims"]]
        table = pd.DataFrame(rows, columns=["id", *COLUMNS]).set_index("id")
        numbers = ["effect", "low", "high", "margin"]
        return table.assign(connection=table["connection"].fillna("")).astype(dict.fromkeys(numbers, float))

    @property
    def limits(self) -> list[str]:
        """What a reader must not conclude, and what is missing."""
        return list(self.document["limits"])

    def __getitem__(self, id: str) -> Claim:
        """``evidence["cured"]``: the claim of this id, where the study holds one connection and one setting."""
        return self.claim(id)

    def claim(self, id: str, connection: str | None = None, setting: str | None = None) -> Claim:
        """One claim.

        Args:
            id: of a rule, such as ``degradation``.
            connection, setting: needed where there are several.

        Raises:
            UserError: there is none, or there are several.
        """
        asked = {"id": id, "connection": connection, "setting": setting}
        found = self.document["claims"]
        for key, value in asked.items():
            known = list(dict.fromkeys(claim[key] or "" for claim in found))
            if value is not None:
                found = [claim for claim in found if (claim[key] or "") == value]
            if not found:
                raise UserError(f"{key}={value}: must be one of {', '.join(known) or 'none: the study holds no runs'}")
        if len(found) > 1:
            several = {
                key: list(dict.fromkeys(claim[key] or "" for claim in found)) for key in ("connection", "setting")
            }
            give = "; ".join(f"{key} is one of {', '.join(names)}" for key, names in several.items() if len(names) > 1)
            raise UserError(f"{id}: {len(found)} claims have this id; give claim({id!r}, ...): {give}")
        return _claim(found[0])

    def __repr__(self) -> str:
        claims = self.document["claims"]
        names = [" ".join(filter(None, (c["id"], c["connection"], _setting(c)))) for c in claims]
        width = max(map(len, names), default=0)
        return "\n".join(
            [self.verdict, *(f"  {n:<{width}}  {c['status']}" for n, c in zip(names, claims, strict=True))]
        )

    def _repr_html_(self) -> str:
        """For a notebook: the verdict over a table of the claims."""
        shown = self.claims.reset_index()[
            ["id", "setting", "connection", "status", "effect", "low", "high", "unit", "n"]
        ]
        return f"<p>{html.escape(self.verdict)}</p>{shown.round(2).to_html(index=False, na_rep='')}"


def _setting(claim: dict[str, Any]) -> str:
    from plainres.analysis.settings import ONLY_SETTING

    return "" if claim["setting"] == ONLY_SETTING else f"({claim['setting']})"


def _claim(found: dict[str, Any]) -> Claim:
    import pandas as pd

    kept = {name: found[name] for name in ("id", "statement", *COLUMNS)}
    kept |= {"status": ClaimStatus(found["status"]), "connection": found["connection"] or ""}
    return Claim(**kept, comparisons=pd.DataFrame(found["comparisons"]))
