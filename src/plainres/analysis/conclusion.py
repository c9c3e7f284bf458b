"""The verdict: a fixed function of the claims (``VERDICTS``, the table in docs/evidence.md), in two sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, short_effect
from plainres.analysis.declared import Declaration
from plainres.analysis.evidence_errors import without_room
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.schema import TrainerConf

if TYPE_CHECKING:
    import pandas as pd

S, C, U, N = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNDECIDED, ClaimStatus.NOT_TESTED
ANY = tuple(ClaimStatus)


@dataclass(frozen=True)
class VerdictRule:
    """One row of the table; the first row that fits is the verdict."""

    id: str
    comparable: tuple[ClaimStatus, ...]
    degradation: tuple[ClaimStatus, ...]
    cured: tuple[ClaimStatus, ...]
    words: str


VERDICTS = (
    VerdictRule("not_comparable", (C,), ANY, ANY, "the two networks differ in more than the connection: no conclusion"),
    VerdictRule("no_degradation", (S, U), (C,), ANY, "plain networks do not train worse with depth"),
    VerdictRule("cured", (S, U), (S,), (S,), "plain networks train worse with depth, and the connection cures it"),
    VerdictRule("not_cured", (S, U), (S,), (C,), "plain networks train worse with depth, also with the connection"),
    VerdictRule(
        "degradation", (S, U), (S,), (U, N), "plain networks train worse with depth; whether this is cured is open"
    ),
    VerdictRule("undecided", (S, U), (U, N), ANY, "whether plain networks train worse with depth is open"),
)  # fmt: skip
QUESTIONS = {
    "not_statistics": "whether it is an artefact of batch norm's running statistics",
    "not_budget": "whether more training steps close the gap",
    "not_tuning": "whether another learning rate closes it",
    "signal": "whether early layers get their training signal back",
    "near_identity": "whether starting near the identity is the reason",
    "solution_exists": "whether the deep plain network could represent the solution",
}


@dataclass(frozen=True)
class Conclusion:
    """The verdict on one connection in one setting.

    Attributes:
        setting, connection: what it is about; connection "" where there is plain alone.
        id: a row of ``VERDICTS``.
        shown: what was shown, in one sentence.
        not_shown: what was not, in one sentence.
    """

    setting: str
    connection: str
    id: str
    shown: str
    not_shown: str


def verdict_of(comparable: ClaimStatus, degradation: ClaimStatus, cured: ClaimStatus) -> VerdictRule:
    """The first row of ``VERDICTS`` that fits."""
    return next(
        row
        for row in VERDICTS
        if comparable in row.comparable and degradation in row.degradation and cured in row.cured
    )


def conclude(cells: Cells, connection: str, claims: Sequence[Claim], declared: Declaration | None) -> Conclusion:
    """The verdict of one connection, from its claims and those about plain."""
    by_id = {c.id: c for c in claims}
    status = {name: by_id[name].status if name in by_id else N for name in RULES}
    row = verdict_of(status["comparable"], status["degradation"], status["cured"])
    label = f"{connection} ({declared.mark})" if declared and declared.mark else connection
    depths = sorted(int(d) for d in cells.runs["depth"].unique())
    provisional = " (provisional: runs are missing or unfinished)" if status["comparable"] is U else ""
    shown = f"In this setting ({where(cells.runs)}) {_what(row.id, label, depths, by_id, cells)}{provisional}."
    reserved = [name for name in QUESTIONS if status[name] is S and by_id[name].caveat]
    return Conclusion(cells.setting, connection, row.id, shown, _not_shown(row.id, label, status, reserved))


def _what(id_: str, label: str, depths: list[int], by_id: dict[str, Claim], cells: Cells) -> str:
    degradation, cured = by_id["degradation"], by_id.get("cured")
    span = f"depths {depths[0]} to {depths[-1]}" if len(depths) > 1 else f"depth {depths[0]} only"
    if id_ == "not_comparable":
        return f"no conclusion, because the networks are not matched ({by_id['comparable'].sentence.rstrip('.')})"
    if id_ == "no_degradation":
        return f"plain networks do not train worse with depth ({span})"
    if id_ == "undecided" and without_room(cells):
        return f"plain networks are at chance level at depth {depths[0]} already, where no rise could show ({span})"
    if id_ == "undecided":
        return f"the runs do not decide whether plain networks train worse with depth ({span})"
    assert degradation.shown is not None
    rise = f"plain networks of depth {degradation.shown.depth} train worse than those of depth {depths[0]}"
    rise += f" (training error {short_effect(degradation.shown)})"
    if id_ == "degradation" or cured is None:
        return f"{rise}; whether {f'the connection {label}' if label else 'some connection'} cures that is open"
    if id_ == "cured":
        return f"{rise}, while with the connection {label} training error does not rise up to depth {depths[-1]}"
    # Less of it is not none of it: where the gap is shown all the same, both are said.
    gaps = [c for c in cured.comparisons if c.part == "gap" and c.status is S]
    if gaps and cured.shown is not None:
        why = f"{cured.shown.label}: {short_effect(cured.shown)}"
        lowers = f"{gaps[-1].label}: {short_effect(gaps[-1])}"
        return f"{rise}; the connection {label} lessens that ({lowers}) and does not cure it ({why})"
    return f"{rise}, and the connection {label} does not cure that"


def _not_shown(id_: str, label: str, status: dict[str, ClaimStatus], reserved: Sequence[str] = ()) -> str:
    if id_ == "no_degradation":
        return "This holds for these depths with this init, activation and norm together; another choice may degrade."
    if id_ not in ("cured", "not_cured", "degradation"):
        return "Nothing is shown yet, neither for nor against."
    text = "This is about fitting the training data and says nothing about generalisation"
    if id_ == "cured":
        text = f"This shows that {label} makes these networks easier to optimise, and nothing about generalisation"
    open_ = [words for name, words in QUESTIONS.items() if status[name] in (U, N)]
    against = [name for name in QUESTIONS if status[name] is C]
    text += f"; still open is {_listed(open_)}" if open_ else ""
    text += f"; contradicted is {_listed(against)} (see that claim)" if against else ""
    text += f"; supported with a reservation (see the limits) is {_listed(reserved)}" if reserved else ""
    return f"{text}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def where(runs: "pd.DataFrame") -> str:
    """Model, data, optimizer and budget of one setting, in words."""
    row: dict[Any, Any] = runs.iloc[0].to_dict()
    norm = "no norm" if row["model.norm"] == "none" else f"{row['model.norm']} norm"
    choices = f"{row['model.init']} init, {row['model.activation']}, {norm}"
    own = f" with branch {row['model.branch']} and its own init; around it" if row["model.branch"] else " with"
    model = f"{row['model.name']} of width {row['model.width']}{own} {choices}"
    optimizer = f"{row['optimizer.name']} at learning rate {row['optimizer.lr']:g}"
    batch = f"{row['trainer.steps']} steps of {row['trainer.batch']} examples{_how(row)}"
    return f"{model}; {_data_words(runs, row)}; {optimizer}, {batch}, {_counted(runs['seed'].nunique(), 'seed')}"


def _how(row: dict[Any, Any]) -> str:
    """What is not as usual in the way updates are computed, in brackets; runs of an older plainres have none of it."""
    usual = TrainerConf()
    names = ("precision", "accumulate", "replicas", "compile")
    found = {name: row.get(f"trainer.{name}", getattr(usual, name)) for name in names}
    told = [f"{name} {value}" for name, value in found.items() if value != getattr(usual, name)]
    return f" ({', '.join(told)})" if told else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _data_words(runs: "pd.DataFrame", row: dict[Any, Any]) -> str:
    """The data set, how much of it, and what was done to its labels."""
    counts = runs["num_train"].dropna()
    words = f"data {row['data.name']}" + (f" with {int(counts.iloc[0]):,} training examples" if len(counts) else "")
    if row["data.random_labels"]:
        return f"{words}, all labels random"
    noise = row["data.label_noise"]
    return f"{words}, {100 * noise:g} % of the labels wrong" if noise else words
