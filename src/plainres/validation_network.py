"""Checks of a network's settings: what a family, a placement and a connection can have together."""

import math

from plainres.errors import require
from plainres.options import (
    Drop,
    Family,
    Gate,
    Init,
    Merge,
    Norm,
    Placement,
    Recipe,
    Scale,
    Shortcut,
    ZeroInit,
)
from plainres.schema import ConnectionConf, RunConf, flatten

_TOKENS = (Family.vit, Family.transformer)
_STAGED = (Family.cifar_resnet, Family.imagenet_resnet)


def validate_model(conf: RunConf) -> None:
    """Check the model's settings.

    Raises:
        UserError: naming the field, its value, what is allowed and what to do.
    """
    model = conf.model
    require(model.heads >= 1, "model.heads", model.heads, "a whole number of at least 1")
    require(model.patch >= 1, "model.patch", model.patch, "a whole number of at least 1")
    require(0 < model.mlp_ratio < math.inf, "model.mlp_ratio", model.mlp_ratio, "a finite number above 0")
    normless = model.norm is Norm.none and model.placement in (
        Placement.pre_norm,
        Placement.post_norm,
        Placement.sandwich,
    )
    require(not normless, "model.norm", model.norm, f"batch or layer with placement={model.placement}")
    if model.name in _TOKENS:
        fits = model.placement in (Placement.pre_norm, Placement.post_norm, Placement.sandwich, Placement.none)
        require(
            fits, "model.placement", model.placement, f"pre_norm, post_norm, sandwich or none for {model.name}",
            "activation placements belong to mlp, cnn and the ResNets",
        )  # fmt: skip
        require(model.norm is not Norm.batch, "model.norm", model.norm, f"layer or none for {model.name}")
        divides = model.width % model.heads == 0
        require(divides, "model.heads", model.heads, f"a divisor of model.width={model.width}")
        require(
            model.init is not Init.delta_orthogonal,
            "model.init",
            model.init,
            "he, xavier or orthogonal without filters",
        )
    elif model.name is Family.mlp:
        require(model.init is not Init.delta_orthogonal, "model.init", model.init, "he, xavier or orthogonal for mlp")
    if model.name in _STAGED:
        two = model.branch_layers == 2
        require(two, "model.branch_layers", model.branch_layers, f"2 for {model.name} (basic blocks)")


def _validate_own_branch(conf: RunConf) -> None:
    """What a user's own branch cannot have; the class itself is tried when it is imported."""
    model, c = conf.model, conf.connection
    require(model.branch_code is None, "model.branch_code", model.branch_code, "null", "it is measured from the file")
    if model.branch is None:
        given = model.branch_settings
        require(not given, "model.branch_settings", given, "empty without model.branch", "name your branch's class")
        return
    text = model.branch
    require(":" in text, "model.branch", text, "null or package.module:Class")
    require(model.name not in _STAGED, "model.branch", text, f"null for {model.name}", "it changes width by stages")
    layered = "ours has biases between its layers; take connection=residual"
    require(c.recipe is not Recipe.fixup, "model.branch", text, "null with connection.recipe=fixup", layered)
    ends = c.zero_init is not ZeroInit.norm_scale or model.placement is Placement.sandwich
    require(ends, "connection.zero_init", c.zero_init, "last_weight or none with model.branch", "its norms are yours")


def _validate_shortcut(c: ConnectionConf) -> None:
    code = c.shortcut_code
    require(code is None, "connection.shortcut_code", code, "null", "it is measured from the file")
    if isinstance(c.shortcut, Shortcut):
        given = c.shortcut_settings
        require(not given, "connection.shortcut_settings", given, "empty without a shortcut of your own")
    else:
        allowed = f"one of {', '.join(Shortcut)}, or package.module:Class"
        require(":" in c.shortcut, "connection.shortcut", c.shortcut, allowed)


def validate_connection(conf: RunConf) -> None:
    """Check the connection's settings, alone and with the model's.

    Raises:
        UserError: naming the field, its value, what is allowed and what to do.
    """
    c = conf.connection
    _validate_own_branch(conf)
    _validate_shortcut(c)
    if c.shortcut is Shortcut.none:
        default = ConnectionConf(name=c.name)
        for name, (_, value) in flatten(c).items():
            same = value == getattr(default, name)
            require(same, f"connection.{name}", value, "at its default in the plain arm", "nothing is added there")
        return
    for name in ("shortcut_scale", "gate_bias", "alpha", "alpha_power"):
        value = getattr(c, name)
        require(value is None or math.isfinite(value), f"connection.{name}", value, "a finite number")
    require(
        c.alpha is not None or c.scale is Scale.per_channel,
        "connection.alpha",
        None,
        "a number unless scale=per_channel",
    )
    require(0 <= c.shortcut_dropout < 1, "connection.shortcut_dropout", c.shortcut_dropout, "in [0, 1)")
    require(0 < c.survival <= 1, "connection.survival", c.survival, "in (0, 1]", "a branch never kept is no network")
    require(c.alpha_warmup >= 0, "connection.alpha_warmup", c.alpha_warmup, "a whole number of at least 0")
    rises = c.alpha_warmup == 0 or c.scale in (Scale.fixed, Scale.depth)
    require(rises, "connection.alpha_warmup", c.alpha_warmup, "0 unless scale=fixed or depth")
    shared = not c.shared_scale or (conf.model.name in _TOKENS and c.scale is Scale.learned)
    require(shared, "connection.shared_scale", c.shared_scale, "false but for scale=learned in vit and transformer")
    _validate_combination(conf)
    _validate_recipe(conf)


def _validate_combination(conf: RunConf) -> None:
    c, model = conf.connection, conf.model
    if c.gate is not Gate.none:
        require(c.shortcut is Shortcut.identity, "connection.shortcut", c.shortcut, "identity with a gate")
        require(c.scale is Scale.none, "connection.scale", c.scale, "none with a gate", "the gate is the scale")
    if c.merge is Merge.concat:
        plainly = c.gate is Gate.none and c.scale is Scale.none and c.drop is Drop.none
        require(
            plainly, "connection.merge", c.merge, "add with a gate, a scale or a drop", "concat is a control of its own"
        )
    if c.zero_init is ZeroInit.norm_scale:
        ends = model.norm is not Norm.none and model.placement in (Placement.post_activation, Placement.sandwich)
        require(
            ends, "connection.zero_init", c.zero_init, "last_weight where no norm ends the branch",
            "use placement=post_activation or sandwich with a norm",
        )  # fmt: skip


def _validate_recipe(conf: RunConf) -> None:
    c, model = conf.connection, conf.model
    if c.recipe is Recipe.none:
        return
    free = c.scale is Scale.none and c.gate is Gate.none and c.shortcut is Shortcut.identity and c.merge is Merge.add
    require(
        free, "connection.recipe", c.recipe, "none with another scale, gate, shortcut or merge", "it brings its own"
    )
    if c.recipe is Recipe.fixup:
        require(model.norm is Norm.none, "model.norm", model.norm, "none with fixup", "Fixup replaces the norm")
        layered = model.name not in _TOKENS
        require(layered, "model.name", model.name, "mlp, cnn or a ResNet with fixup")
        m = model.branch_layers
        require(m >= 2, "model.branch_layers", m, "at least 2 with fixup", "its exponent is −1/(2m − 2)")
        fits = model.placement is Placement.post_activation
        require(fits, "model.placement", model.placement, "post_activation with fixup")
    needed = {Recipe.deepnorm: Placement.post_norm, Recipe.layernorm_scaling: Placement.pre_norm}.get(c.recipe)
    if needed is not None:
        require(model.norm is Norm.layer, "model.norm", model.norm, f"layer with {c.recipe}")
        require(model.placement is needed, "model.placement", model.placement, f"{needed} with {c.recipe}")
