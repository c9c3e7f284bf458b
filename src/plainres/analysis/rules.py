"""The table of rules: what each claim says, what it measures, and from where on it holds. Data, no code.

Printed with each claim in evidence.json and as a table in docs/evidence.md (a test holds them equal).
"""

from dataclasses import dataclass
from enum import StrEnum


class ClaimStatus(StrEnum):
    """What the runs say about a claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    NOT_TESTED = "not_tested"


class Direction(StrEnum):
    """Which intervals support a statement. In each case a whole interval decides, and else the runs do not.

    ABOVE    superiority: supported above the margin, contradicted at or below it
    NO_RISE  absence of a rise: supported at or below the margin, contradicted above it. Inside ± margin it is an
             equivalence; an interval that goes on below −margin allows a fall as well, which is no rise either
    WITHIN   equivalence: supported inside ± margin, contradicted outside on one side
    COUNT    every item counted must pass; nothing is estimated
    """

    ABOVE = "above"
    NO_RISE = "no_rise"
    WITHIN = "within"
    COUNT = "count"


POINTS = "percentage points"
DECADES = "decades"  # of a ratio: log10, so that 1 decade is a factor of 10
ITEMS = "share"

FAMILY_ERROR_RATE = 0.05  # of all comparisons of one claim together
# Percentage points above its source: a constructed network has left the solution; it is back at it, or still there.
AWAY_MARGIN, BACK_MARGIN = 10.0, 1.0
MIN_N = 3  # fewer seeds decide nothing
FLOOR_MARGIN = 1.0  # decades of training loss, for depths at which all errors sit on the floor of 0


@dataclass(frozen=True)
class Part:
    """One kind of comparison.

    Attributes:
        effect: what is measured for each seed, in words.
        unit: of effect and margin.
        margin: in that unit.
        direction: which side of the margin supports the claim.
        floor: whether log10 training loss takes the place of the error where errors sit on the floor of 0.
    """

    effect: str
    unit: str
    margin: float
    direction: Direction
    floor: bool = False


@dataclass(frozen=True)
class Rule:
    """One claim.

    Attributes:
        title: the claim in a few words, for tables.
        statement: the claim in words.
        parts: its comparisons by name; all parts must be supported (degradation: at one depth at least).
        rests_on: the rows of a study that decide it.
        command: what tests it, for the default networks; a claim names the one for its own study.
    """

    title: str
    statement: str
    parts: dict[str, Part]
    rests_on: str
    command: str = "python -m run +sweep=depth"


RULES: dict[str, Rule] = {
    "comparable": Rule(
        "The pairs are matched",
        "The networks that are compared differ in nothing but the connection and what it declares, had equal budgets, "
        "and every planned run ended (complete or diverged).",
        {"pairs": Part("matched pairs without an undeclared difference", ITEMS, 1.0, Direction.COUNT)},
        "audit of each pair, status of each run",
    ),
    "degradation": Rule(
        "Plain networks train worse with depth",
        "In the plain arm training error rises with depth.",
        {"rise": Part("training error at this depth − at the shallowest", POINTS, 1.0, Direction.ABOVE, floor=True)},
        "final train_error (train_loss) of plain runs, paired by seed",
    ),
    "not_overfitting": Rule(
        "It is training error, not overfitting",
        "What rises with depth is the training error itself, more than the gap between validation and training error.",
        {"rise": Part("rise of training error − rise of (validation − training error)", POINTS, 1.0, Direction.ABOVE)},
        "final train_error and val_error of plain runs, paired by seed",
    ),
    "cured": Rule(
        "The connection cures it",
        "Where plain networks degrade, those with the connection have a lower training error, and theirs does not "
        "itself rise with depth.",
        {
            "gap": Part("training error of plain − of the connection", POINTS, 1.0, Direction.ABOVE, floor=True),
            "rise": Part(
                "the connection's training error at this depth − at the shallowest",
                POINTS,
                1.0,
                Direction.NO_RISE,
                floor=True,
            ),
        },
        "final train_error (train_loss) of both arms, paired by seed",
    ),
    "not_statistics": Rule(
        "No artefact of batch statistics",
        "Rise and gap are there as well with the statistics of a batch in the norm layers and in the error seen while "
        "training: they are no fault of batch norm's running averages.",
        {
            "rise": Part("rise of plain's error in that series", POINTS, 1.0, Direction.ABOVE),
            "gap": Part("error of plain − of the connection in that series", POINTS, 1.0, Direction.ABOVE),
        },
        "final train_error_batchstats and train_error_running",
    ),
    "not_budget": Rule(
        "Not only slower training",
        "The gap is not only slower training: it is there at a larger budget too.",
        {"gap": Part("error of plain − of the connection, longer runs", POINTS, 1.0, Direction.ABOVE, floor=True)},
        "final train_error (train_loss) of runs with at least 2 × the steps, each with a schedule of its own",
        "python -m run +sweep=budget",
    ),
    "not_tuning": Rule(
        "Not one learning rate's",
        "The gap is not one learning rate's: it is there at each arm's own best learning rate too.",
        {
            "gap": Part(
                "training error of plain − of the connection, each at its best",
                POINTS,
                1.0,
                Direction.ABOVE,
                floor=True,
            )
        },
        "runs at several learning rates: seeds from 100 on choose by final train_loss, the others are compared",
        "python -m run +sweep=learning_rate",
    ),
    "signal": Rule(
        "Early layers get their signal back",
        "In the deepest networks early layers get a usable training signal again: with the connection its ratio of "
        "early to late layers stays nearer to that of the shallowest networks than in the plain arm.",
        {
            "drift": Part(
                "|log10 of the ratio, deepest ÷ shallowest|, of plain − of the connection",
                DECADES,
                0.301,
                Direction.ABOVE,
            )
        },
        "activation_grad_norm, grad_norm, update_ratio, block_gain at the last probed step with at least 10 % of the "
        "peak learning rate",
    ),
    "scales": Rule(
        "Branch and trunk stay comparable",
        "Branch and trunk stay of comparable size and nothing overflows: neither path swamps the other.",
        {
            "largest ratio": Part("log10 of the largest branch ratio over blocks", DECADES, 2.0, Direction.WITHIN),
            "smallest ratio": Part("log10 of the smallest branch ratio over blocks", DECADES, 2.0, Direction.WITHIN),
            "growth along depth": Part("log10 of the trunk's norm, last ÷ first block", DECADES, 2.0, Direction.WITHIN),
            "growth in time": Part("log10 of the last block's norm, end ÷ start", DECADES, 2.0, Direction.WITHIN),
        },
        "branch_ratio and output_norm at the last probed step with at least 10 % of the peak learning rate, "
        "status of the runs",
    ),
    "near_identity": Rule(
        "Starting near the identity helps",
        "Starting near the identity helps: initial scales of the branch move early stability and training loss in the "
        "same direction.",
        {
            "early": Part(
                "log10 training loss seen in the first quarter of the steps, branch at full scale − near zero",
                DECADES,
                0.301,
                Direction.ABOVE,
            ),
            "end": Part(
                "log10 final training loss, branch at full scale − near zero", DECADES, 0.301, Direction.ABOVE
            ),
        },
        "runs with several initial scales of the branch, at depths where the one at full scale is off the floor of 0",
        "python -m run +sweep=init_ablation",
    ),
    "solution_exists": Rule(
        "The deep plain solution exists",
        "The deep plain network can represent what the shallow one has learned.",
        {"error": Part("training error of the constructed network − of its source", POINTS, 0.1, Direction.WITHIN)},
        "deep plain networks built from trained shallow ones by inserting identity blocks",
        "python -m run +sweep=construction",
    ),
}  # fmt: skip
