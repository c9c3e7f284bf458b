"""The table of diagnosis: what is seen in a run, from which number on, what it may mean and what to try. Data, no code.

Printed beneath the findings in diagnosis.md, in diagnosis.json, and as a table in docs/diagnosis.md (a test holds
them equal). The limits were set with the studies of results/published in view: a run that trains well shows none.
"""

from dataclasses import dataclass
from enum import StrEnum


class Gravity(StrEnum):
    """How much a finding weighs; findings are sorted by it."""

    GRAVE = "grave"
    WARNING = "warning"
    NOTE = "note"


class Window(StrEnum):
    """Which probed steps of a run a rule looks at, and how their values become one number.

    EARLY  the first tenth of the budget: the most extreme value
    LATER  after it, with at least a tenth of the peak learning rate, while the training loss is above a tenth of
           ln C: the median value, of at least ``MIN_PROBES`` steps
    WHOLE  both: the median value
    """

    EARLY = "in the first tenth of the steps: the most extreme value"
    LATER = "after that, while it still learns: the median value"
    WHOLE = "in all steps while it still learns: the median value"


class Measure(StrEnum):
    """One number of a metric's profile over layers (or blocks) at one step.

    The early and the late layers are the first and the last quarter; the ratio of their geometric means is cut at a
    factor of 1,000 either way (``inside_values.early_to_late``).
    """

    EARLY_TO_LATE = "early ÷ late"
    MEDIAN = "median over"
    LARGEST = "largest of"
    GROWTH = "last ÷ first of"


@dataclass(frozen=True)
class Profile:
    """Where a rule's number comes from, for those that look at layers or blocks."""

    scope: str
    metric: str
    measure: Measure
    window: Window


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        gravity: how much it weighs.
        seen: what is seen, as the beginning of a sentence.
        quantity: what is compared with the limit, in words.
        above: whether the finding is there above the limit, else below it.
        limit: in ``unit``; None where there is nothing to compare.
        unit: of number and limit; empty for a ratio.
        means: what it may mean.
        advice: what to try.
        profile: for a rule on layers or blocks.
        when: what else has to hold; for a rule on whole runs, at which steps (for the others the window says it).
        needs: another metric of that scope that the run has to have.
        untrained_only: whether the final training loss has to be above half of ln C as well.
    """

    gravity: Gravity
    seen: str
    quantity: str
    above: bool
    limit: float | None
    unit: str
    means: str
    advice: str
    profile: Profile | None = None
    when: str = ""
    needs: str = ""
    untrained_only: bool = False


EARLY_SHARE = 0.1  # of the budget
LEARNS_ABOVE = 0.1  # of ln C: below, a net has learned its data, and small gradients and updates are no fault
UNTRAINED_ABOVE = 0.5  # of ln C
PLATEAU_SHARE = 0.5  # of the budget that a plateau has to last, up to the end
MIN_PROBES = 3

_GRADIENT = "activation_grad_norm_input"

RULES = {
    "diverged": Rule(
        Gravity.GRAVE,
        "The run diverged: its loss, gradient or weights are not finite",
        "first step that is not finite",
        True, None, "",
        "updates or activations grow without bound",
        "a smaller optimizer.lr, more schedule.warmup_steps, optimizer.clip_norm=1, a norm in the branch "
        "(model.norm=batch) or a scale on it (connection=depth_scaled)",
        when="any",
    ),
    "chance": Rule(
        Gravity.GRAVE,
        "The training loss stays at chance level or above",
        "lowest train_loss_running",
        True, 0.97, "× ln C",
        "the network does no better than one that gives every class the same probability, whose loss is ln C; read it "
        "with the findings on gradients, updates and dead layers of the same runs",
        "fewer layers, a shortcut (connection=residual), a smaller optimizer.lr with more schedule.warmup_steps",
        when="from some evaluation to the end, over at least half of the budget",
    ),
    "running_statistics": Rule(
        Gravity.GRAVE,
        "Evaluation mode is worse than batch statistics with the same final weights",
        "train_error − train_error_batchstats",
        True, 5.0, "percentage points",
        "the running averages of batch norm do not fit the weights: part of the error is theirs, not the optimiser's",
        "read train_error_batchstats beside train_error; a smaller learning rate at the end, a larger trainer.batch, "
        "model.norm=layer",
        when="the final weights",
    ),
    "update_burst": Rule(
        Gravity.WARNING,
        "An early update is larger than the weights that it changes",
        "largest update_ratio of all layers that have one at the first probe",
        True, 1.0, "",
        "the first steps overwrite the initial draw, and what the network becomes is no longer what was initialised",
        "optimizer.clip_norm=1, more schedule.warmup_steps, a smaller optimizer.lr",
        Profile("layer", "update_ratio", Measure.LARGEST, Window.EARLY),
    ),
    "exploding_start": Rule(
        Gravity.WARNING,
        "Gradients explode toward the input at the start",
        f"{_GRADIENT} of early ÷ late blocks",
        True, 100.0, "",
        "each block multiplies the gradient on its way back; batch norm with ReLU and no shortcut does this at the "
        "initial draw",
        "a shortcut or a scale on the branch (connection=residual or depth_scaled), model.init=orthogonal with "
        "model.activation=tanh, "
        "optimizer.clip_norm=1",
        Profile("block", _GRADIENT, Measure.EARLY_TO_LATE, Window.EARLY),
    ),
    "exploding": Rule(
        Gravity.WARNING,
        "Gradients explode toward the input for most of training",
        f"{_GRADIENT} of early ÷ late blocks",
        True, 20.0, "",
        "early layers get far larger gradients than late ones; one learning rate cannot suit both",
        "a norm in the branch or after the addition, a scale on the branch (connection=depth_scaled), "
        "optimizer=adamw",
        Profile("block", _GRADIENT, Measure.EARLY_TO_LATE, Window.LATER),
    ),
    "vanishing": Rule(
        Gravity.WARNING,
        "Gradients vanish toward the input for most of training",
        f"{_GRADIENT} of early ÷ late blocks",
        False, 0.05, "",
        "early layers get almost no training signal; the late ones train on what random layers leave of the input",
        "a shortcut (connection=residual, or zero_init and skipinit, which start at the identity); look at the first "
        "steps: a burst of updates often comes before",
        Profile("block", _GRADIENT, Measure.EARLY_TO_LATE, Window.LATER),
    ),
    "update_large": Rule(
        Gravity.WARNING,
        "Updates are large beside the weights for most of training",
        "median update_ratio over layers",
        True, 0.03, "",
        "about 1e-3 is usual: at 30 times that a layer is rewritten within some tens of steps",
        "a smaller optimizer.lr, optimizer.clip_norm=1",
        Profile("layer", "update_ratio", Measure.MEDIAN, Window.LATER),
    ),
    "update_small": Rule(
        Gravity.WARNING,
        "Updates are tiny beside the weights for most of training, though the loss is not low",
        "median update_ratio over layers",
        False, 3e-5, "",
        "about 1e-3 is usual: at a thirtieth of that most layers stay where they are. Gradients may be small, or "
        "weights have grown so large (behind a norm) that the learning rate no longer moves them",
        "look at grad_norm and weight_norm; a larger optimizer.lr, if no burst of updates came before",
        Profile("layer", "update_ratio", Measure.MEDIAN, Window.LATER),
    ),
    "dead": Rule(
        Gravity.WARNING,
        "A layer is dead: almost all of its units are 0 on the whole batch",
        "largest dead_fraction of all layers",
        True, 0.9, "",
        "a dead unit passes no signal on and no gradient back",
        "model.activation=gelu, a smaller optimizer.lr in the first steps, a norm before the activation",
        Profile("layer", "dead_fraction", Measure.LARGEST, Window.LATER),
    ),
    "branch_large": Rule(
        Gravity.WARNING,
        "The branch outweighs the trunk early on",
        "largest branch_ratio r = ‖F‖/‖h‖ of all blocks",
        True, 5.0, "",
        "the initial draw or the learning rate of the branch is too aggressive: what the shortcut carries is drowned",
        "the last layer's draw (connection=zero_init), a scale on the branch (connection=depth_scaled or skipinit), "
        "more schedule.warmup_steps",
        Profile("block", "branch_ratio", Measure.LARGEST, Window.EARLY),
    ),
    "trunk_growth": Rule(
        Gravity.WARNING,
        "The trunk's norm grows along depth",
        "output_norm of the last ÷ first block",
        True, 20.0, "",
        "the variance of the branches adds up along the trunk; late branches then hardly count",
        "where the norm stands (model.placement), a scale that falls with depth (connection=depth_scaled or depth_mup)",
        Profile("block", "output_norm", Measure.GROWTH, Window.WHOLE),
        when="where branches are added to the trunk",
        needs="branch_ratio",
    ),
    "branch_starved": Rule(
        Gravity.WARNING,
        "The branch is scaled down, and the training loss is still high at the end",
        "median |scale_value| over blocks",
        False, 0.2, "",
        "the scale is too small: the branch gets little of the signal and of the gradient, and the budget is too short "
        "to make up for it",
        "a larger connection.alpha, a learned scale (connection=skipinit), more trainer.steps",
        Profile("block", "scale_value", Measure.MEDIAN, Window.LATER),
        when="where the final training loss is above half of ln C",
        untrained_only=True,
    ),
    "branch_quiet": Rule(
        Gravity.NOTE,
        "The branch adds almost nothing to the trunk for most of training",
        "median branch_ratio r = ‖F‖/‖h‖ over blocks",
        False, 0.01, "",
        "not by itself good or bad: most blocks are near the identity. With healthy gradients, updates near 1e-3 and a "
        "falling error they are only small; without, they are not used",
        "read it with activation_grad_norm, update_ratio and train_error of the same runs",
        Profile("block", "branch_ratio", Measure.MEDIAN, Window.LATER),
    ),
}  # fmt: skip


def limit_of(rule_id: str) -> float:
    """The limit of a rule that has one."""
    limit = RULES[rule_id].limit
    assert limit is not None, rule_id
    return limit
