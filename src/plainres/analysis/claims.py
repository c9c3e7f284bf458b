"""A claim, what combines its comparisons, and the words in which it is told."""

from collections.abc import Sequence
from dataclasses import dataclass

from plainres.analysis.compare import Comparison
from plainres.analysis.rules import ITEMS, POINTS, ClaimStatus, Direction
from plainres.analysis.stats import MAX_N, Flag

T_INTERVAL = "two-sided paired t interval over seeds, Bonferroni-corrected for the comparisons of this claim"


@dataclass(frozen=True)
class Claim:
    """What the runs say about one claim.

    Attributes:
        id: key of ``rules.RULES``.
        setting: the setting it is about.
        connection: the connection it is about; "" for a claim about the plain arm alone.
        status: by the rule.
        sentence: the result in words.
        comparisons: everything that was compared for it.
        shown: the comparison that decides, whose effect stands for the claim; None where nothing was compared.
        test: how the interval was made, or why there is none.
        run_ids: the runs it rests on.
        command: what would test or decide it; "" if it is decided.
        sensitivity: what it would be without the runs that diverged; "" if none did.
        caveat: what a reader must know beside the status, which is repeated among the limits; "" if there is nothing.
    """

    id: str
    setting: str
    connection: str
    status: ClaimStatus
    sentence: str
    comparisons: tuple[Comparison, ...] = ()
    shown: Comparison | None = None
    test: str = T_INTERVAL
    run_ids: tuple[str, ...] = ()
    command: str = ""
    sensitivity: str = ""
    caveat: str = ""


def all_of(comparisons: Sequence[Comparison]) -> ClaimStatus:
    """Supported if all are, contradicted if one is, else undecided."""
    found = {c.status for c in comparisons}
    if ClaimStatus.CONTRADICTED in found:
        return ClaimStatus.CONTRADICTED
    return ClaimStatus.SUPPORTED if found == {ClaimStatus.SUPPORTED} else ClaimStatus.UNDECIDED


def any_of(comparisons: Sequence[Comparison]) -> ClaimStatus:
    """Supported if one is, contradicted if all are, else undecided."""
    found = {c.status for c in comparisons}
    if ClaimStatus.SUPPORTED in found:
        return ClaimStatus.SUPPORTED
    return ClaimStatus.CONTRADICTED if found == {ClaimStatus.CONTRADICTED} else ClaimStatus.UNDECIDED


def deciding(status: ClaimStatus, comparisons: Sequence[Comparison]) -> Comparison | None:
    """Of the comparisons that have the claim's status, the one nearest to its margin (the weakest link)."""
    alike = [c for c in comparisons if c.status is status]
    return min(alike, key=_distance) if alike else None


def _distance(c: Comparison) -> float:
    """From the interval to the margin, as a share of the margin; comparisons without an interval come first."""
    if c.low is None or c.high is None:
        return -1.0
    if c.direction is Direction.WITHIN:
        return abs(c.margin - max(abs(c.low), abs(c.high))) / c.margin
    return min(abs(c.low - c.margin), abs(c.high - c.margin)) / c.margin


def claim(
    id_: str,
    setting: str,
    connection: str,
    status: ClaimStatus,
    sentence: str,
    comparisons: Sequence[Comparison],
    shown: Comparison | None = None,
    command: str = "",
    caveat: str = "",
) -> Claim:
    """A claim that rests on comparisons; an undecided one says in its sentence what stands in the way."""
    shown = shown or deciding(status, comparisons)
    if status is ClaimStatus.UNDECIDED:
        sentence = f"{sentence} {undecided_words(comparisons)}".strip()
    sentence = f"{sentence} {caveat}".strip()
    ids = sorted({run_id for c in comparisons for run_id in c.run_ids})
    kept = command if status in (ClaimStatus.UNDECIDED, ClaimStatus.NOT_TESTED) else ""
    return Claim(
        id_, setting, connection, status, sentence, tuple(comparisons), shown, run_ids=tuple(ids), command=kept,
        caveat=caveat,
    )  # fmt: skip


def not_tested(id_: str, setting: str, connection: str, sentence: str, command: str) -> Claim:
    """A claim for which the study has no rows."""
    test = "none: the study holds no runs that could test it"
    return Claim(id_, setting, connection, ClaimStatus.NOT_TESTED, sentence, test=test, command=command)


def undecided_words(comparisons: Sequence[Comparison]) -> str:
    """Which comparisons are open, why, and how many seeds would decide them."""
    open_ = [c for c in comparisons if c.status is ClaimStatus.UNDECIDED]
    if not open_:
        return ""
    shown = "; ".join(f"{c.label} ({effect_words(c)}: {c.why})" for c in open_[:3])
    more = f" and {len(open_) - 3} more" if len(open_) > 3 else ""
    return f"Open: {shown}{more}. {needed_words(open_)}"


def needed_words(open_: Sequence[Comparison]) -> str:
    """How many seeds would decide all of these comparisons."""
    known = [c.n_needed for c in open_ if c.n_needed is not None]
    if len(known) < len(open_):
        return f"Even {MAX_N:,} seeds would not decide it, were mean and spread to stay: the effect is near the margin."
    if all(c.n < 2 for c in open_):
        return f"At least {max(known)} seeds are needed."
    return f"{max(known)} seeds would decide it, were mean and spread to stay as they are."


def seeds_needed(comparisons: Sequence[Comparison]) -> int | None:
    """The n that would decide every open comparison; None if there is none open, or no such n."""
    needed = [c.n_needed for c in comparisons if c.status is ClaimStatus.UNDECIDED]
    known = [n for n in needed if n is not None]
    return max(known) if known and len(known) == len(needed) else None


def effect_words(c: Comparison) -> str:
    """``+63.97 points [+44.14, +83.79]``; a factor beside decades."""
    if c.effect is None:
        return "no value"
    unit = "points" if c.unit == POINTS else c.unit
    text = f"{c.effect:+.2f} {unit}"
    if c.low is None or c.high is None:
        return f"{text} (one seed)"
    star = " (all seeds equal)" if c.flag is Flag.NO_SPREAD else ""
    return f"{text} [{c.low:+.2f}, {c.high:+.2f}]{star}"


def short_effect(c: Comparison | None) -> str:
    """``effect_words`` for a table's cell."""
    if c is None or c.effect is None:
        return "–"
    if c.unit == ITEMS:
        return f"{round(c.effect * c.n)} of {c.n} pairs"
    return effect_words(c).replace(" (all seeds equal)", "*")
