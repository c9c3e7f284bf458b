"""Checks of a start from a trained shallower network: whether blocks that change nothing can be inserted at all."""

import math

from plainres.errors import require
from plainres.options import Activation, Drop, Family, Gate, Merge, Norm, Placement, Recipe, Scale, Shortcut, ZeroInit
from plainres.schema import RunConf

# What a model must be so that a plain block can be the identity; analysis asks the same of a stored run.
BUILDABLE: dict[str, tuple[object, ...]] = {
    "model.name": (Family.mlp, Family.cnn),
    "model.placement": (Placement.post_activation,),
    "model.norm": (Norm.batch, Norm.none),
    "model.activation": (Activation.relu,),
    "model.branch": (None,),
}
_WHY = {
    "model.name": "other families change width or are no chain of layers",
    "model.placement": "blocks of other placements pass on negative values, which a ReLU cuts",
    "model.norm": "layer norm scales each example by a factor of its own, which no weights undo",
    "model.activation": "no other activation passes positive values unchanged and ends at 0",
    "model.branch": "what weights make your branch the identity is not known",
}


def validate_start(conf: RunConf) -> None:
    """Check the start.

    Raises:
        UserError: naming the field, its value, what is allowed and what to do.
    """
    start, m = conf.start, conf.model.branch_layers
    require(0 <= start.noise < math.inf, "start.noise", start.noise, "a finite number of at least 0")
    if start.depth is None:
        require(start.noise == 0, "start.noise", start.noise, "0 without start.depth", "it perturbs inserted blocks")
        return
    for name, allowed in BUILDABLE.items():
        value = getattr(conf.model, name.removeprefix("model."))
        words = " or ".join("null" if v is None else str(v) for v in allowed)
        require(value in allowed, name, value, f"{words} with start.depth", _WHY[name])
    _validate_depths(start.depth, conf.depth, m)
    _validate_connection(conf)


def _validate_depths(source: int, depth: int, branch_layers: int) -> None:
    """Both depths are those of networks of whole blocks, and the source has fewer."""
    m = branch_layers
    least = m + 2
    known = source >= least and (source - least) % m == 0
    why = "the source is a network of whole blocks, with fewer than the one that is built from it"
    require(known, "start.depth", source, f"one of {least}, {least + m}, …", why)
    larger = depth > source and (depth - source) % m == 0
    smaller = ", or a smaller start.depth=" if source > least else ""
    why = f"whole blocks are inserted: give such a depth={smaller}, or start=scratch"
    require(larger, "depth", depth, f"one of {source + m}, {source + 2 * m}, … with start.depth={source}", why)


def _validate_connection(conf: RunConf) -> None:
    """A block with a zero branch must be the identity, and the source's blocks must not depend on the depth."""
    c = conf.connection
    if c.shortcut is Shortcut.none:
        return
    simple = {
        "shortcut": (c.shortcut, Shortcut.identity),
        "gate": (c.gate, Gate.none),
        "scale": (c.scale, Scale.none),
        "drop": (c.drop, Drop.none),
        "merge": (c.merge, Merge.add),
        "recipe": (c.recipe, Recipe.none),
    }
    for name, (value, allowed) in simple.items():
        why = "take connection=plain, residual or zero_init"
        require(value is allowed, f"connection.{name}", value, f"{allowed} with start.depth", why)
    stuck = c.zero_init is ZeroInit.last_weight and conf.model.norm is not Norm.none
    why = "the scale of the last norm is set to 0, and with a weight of 0 before it neither would ever move"
    require(not stuck, "connection.zero_init", c.zero_init, "none or norm_scale with start.depth and a norm", why)
