"""Checks of values that a type cannot make, each one line with field, value, what is allowed and what to do."""

import math
import re
from typing import Any

from plainres.errors import UserError
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
    ScheduleName,
    Shortcut,
    ZeroInit,
)
from plainres.schema import ConnectionConf, RunConf, flatten


def _require(ok: bool, name: str, value: Any, allowed: str, remedy: str = "") -> None:
    if not ok:
        raise UserError(f"{name}={value}: must be {allowed}{'; ' + remedy if remedy else ''}")


_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def validate(conf: RunConf) -> None:
    """Check the values that a type cannot.

    Raises:
        UserError: naming the field, its value, what is allowed and what to do.
    """
    leaves = {name: value for name, (_, value) in flatten(conf).items()}
    for name in ("model.width", "model.branch_layers", "trainer.steps", "trainer.threads",
                 "trainer.eval_every", "trainer.batchstats_every", "trainer.checkpoint_every"):  # fmt: skip
        _require(leaves[name] >= 1, name, leaves[name], "a whole number of at least 1")
    batch = conf.trainer.batch
    _require(batch >= 2, "trainer.batch", batch, "a whole number of at least 2", "batch norm needs two examples")
    for name in ("seed", "probe.every", "schedule.warmup_steps"):
        _require(leaves[name] >= 0, name, leaves[name], "a whole number of at least 0")
    for name in ("optimizer.lr", "optimizer.eps", "schedule.factor"):
        _require(0 < leaves[name] < math.inf, name, leaves[name], "a finite number above 0")
    decay = conf.optimizer.weight_decay
    _require(0 <= decay < math.inf, "optimizer.weight_decay", decay, "a finite number of at least 0")
    _require(0 <= conf.optimizer.momentum < 1, "optimizer.momentum", conf.optimizer.momentum, "in [0, 1)")
    betas = conf.optimizer.betas
    good_betas = len(betas) == 2 and all(0 <= b < 1 for b in betas)
    _require(good_betas, "optimizer.betas", betas, "two numbers in [0, 1), say [0.9,0.999]")
    clip = conf.optimizer.clip_norm
    _require(clip is None or 0 < clip < math.inf, "optimizer.clip_norm", clip, "null or a finite number above 0")
    _require(
        not conf.optimizer.nesterov or conf.optimizer.momentum > 0,
        "optimizer.nesterov",
        conf.optimizer.nesterov,
        "false while optimizer.momentum=0",
    )
    _validate_schedule(conf)
    _validate_data(conf)
    for name in ("study", "connection.name"):
        _require(
            _SAFE_NAME.fullmatch(leaves[name]) is not None,
            name,
            leaves[name],
            "letters, digits, '.', '_' or '-', beginning with a letter or digit",
            "it names a folder" if name == "study" else "",
        )
    plain, adds_nothing = conf.connection.name == "plain", conf.connection.shortcut is Shortcut.none
    _require(
        plain == adds_nothing,
        "connection.name",
        conf.connection.name,
        "plain exactly when connection.shortcut=none",
        "analysis and audit take the arm from its name; choose connection=residual, or name the connection",
    )
    _validate_model(conf)
    _validate_connection(conf)
    device = conf.trainer.device
    good_device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", device) is not None
    _require(good_device, "trainer.device", device, "auto, cpu, cuda or cuda:N")


def _validate_data(conf: RunConf) -> None:
    data = conf.data
    for name in ("size", "crop", "subset"):
        value = getattr(data, name)
        _require(value is None or value >= 1, f"data.{name}", value, "null or a whole number of at least 1")
    for name, least in {"pad": 0, "seed": 0, "examples": 10, "classes": 2, "teacher_depth": 1}.items():
        value = getattr(data, name)
        _require(value >= least, f"data.{name}", value, f"a whole number of at least {least}")
    _require(0 < data.val_share < 1, "data.val_share", data.val_share, "between 0 and 1")
    _require(0 <= data.label_noise <= 1, "data.label_noise", data.label_noise, "in [0, 1]")
    _require(
        not (data.random_labels and data.label_noise), "data.label_noise", data.label_noise,
        "0 with data.random_labels=true", "there is no label left to disturb",
    )  # fmt: skip
    _require(data.content is None, "data.content", data.content, "null", "it is measured from the files")


def _validate_schedule(conf: RunConf) -> None:
    steps, schedule = conf.trainer.steps, conf.schedule
    _require(
        schedule.warmup_steps < steps,
        "schedule.warmup_steps",
        schedule.warmup_steps,
        f"less than trainer.steps={steps}",
        "otherwise the learning rate never leaves the warm-up; raise trainer.steps or lower the warm-up",
    )
    marks = schedule.milestones
    if schedule.name is ScheduleName.step:
        ordered = bool(marks) and marks == sorted(set(marks)) and all(0 < m < steps for m in marks)
        _require(ordered, "schedule.milestones", marks, f"rising steps between 1 and {steps - 1}")
    else:
        _require(not marks, "schedule.milestones", marks, "empty unless schedule=step")


_TOKENS = (Family.vit, Family.transformer)
_IMAGES = (Family.cnn, Family.cifar_resnet, Family.imagenet_resnet)


def _validate_model(conf: RunConf) -> None:
    model = conf.model
    _require(model.heads >= 1, "model.heads", model.heads, "a whole number of at least 1")
    _require(model.patch >= 1, "model.patch", model.patch, "a whole number of at least 1")
    _require(0 < model.mlp_ratio < math.inf, "model.mlp_ratio", model.mlp_ratio, "a finite number above 0")
    normless = model.norm is Norm.none and model.placement in (
        Placement.pre_norm,
        Placement.post_norm,
        Placement.sandwich,
    )
    _require(not normless, "model.norm", model.norm, f"batch or layer with placement={model.placement}")
    if model.name in _TOKENS:
        fits = model.placement in (Placement.pre_norm, Placement.post_norm, Placement.sandwich, Placement.none)
        _require(
            fits, "model.placement", model.placement, f"pre_norm, post_norm, sandwich or none for {model.name}",
            "activation placements belong to mlp, cnn and the ResNets",
        )  # fmt: skip
        _require(model.norm is not Norm.batch, "model.norm", model.norm, f"layer or none for {model.name}")
        divides = model.width % model.heads == 0
        _require(divides, "model.heads", model.heads, f"a divisor of model.width={model.width}")
        _require(
            model.init is not Init.delta_orthogonal,
            "model.init",
            model.init,
            "he, xavier or orthogonal without filters",
        )
    elif model.name is Family.mlp:
        _require(model.init is not Init.delta_orthogonal, "model.init", model.init, "he, xavier or orthogonal for mlp")
    if model.name in (Family.cifar_resnet, Family.imagenet_resnet):
        two = model.branch_layers == 2
        _require(two, "model.branch_layers", model.branch_layers, f"2 for {model.name} (basic blocks)")


def _validate_connection(conf: RunConf) -> None:
    c = conf.connection
    if c.shortcut is Shortcut.none:
        default = ConnectionConf(name=c.name)
        for name, (_, value) in flatten(c).items():
            same = value == getattr(default, name)
            _require(same, f"connection.{name}", value, "at its default in the plain arm", "nothing is added there")
        return
    for name in ("shortcut_scale", "gate_bias", "alpha", "alpha_power"):
        value = getattr(c, name)
        _require(value is None or math.isfinite(value), f"connection.{name}", value, "a finite number")
    _require(
        c.alpha is not None or c.scale is Scale.per_channel,
        "connection.alpha",
        None,
        "a number unless scale=per_channel",
    )
    _require(0 <= c.shortcut_dropout < 1, "connection.shortcut_dropout", c.shortcut_dropout, "in [0, 1)")
    _require(0 < c.survival <= 1, "connection.survival", c.survival, "in (0, 1]", "a branch never kept is no network")
    _require(c.alpha_warmup >= 0, "connection.alpha_warmup", c.alpha_warmup, "a whole number of at least 0")
    rises = c.alpha_warmup == 0 or c.scale in (Scale.fixed, Scale.depth)
    _require(rises, "connection.alpha_warmup", c.alpha_warmup, "0 unless scale=fixed or depth")
    shared = not c.shared_scale or (conf.model.name in _TOKENS and c.scale is Scale.learned)
    _require(shared, "connection.shared_scale", c.shared_scale, "false but for scale=learned in vit and transformer")
    _validate_combination(conf)
    _validate_recipe(conf)


def _validate_combination(conf: RunConf) -> None:
    c, model = conf.connection, conf.model
    if c.gate is not Gate.none:
        _require(c.shortcut is Shortcut.identity, "connection.shortcut", c.shortcut, "identity with a gate")
        _require(c.scale is Scale.none, "connection.scale", c.scale, "none with a gate", "the gate is the scale")
    if c.merge is Merge.concat:
        plainly = c.gate is Gate.none and c.scale is Scale.none and c.drop is Drop.none
        _require(
            plainly, "connection.merge", c.merge, "add with a gate, a scale or a drop", "concat is a control of its own"
        )
    if c.zero_init is ZeroInit.norm_scale:
        ends = model.norm is not Norm.none and model.placement in (Placement.post_activation, Placement.sandwich)
        _require(
            ends, "connection.zero_init", c.zero_init, "last_weight where no norm ends the branch",
            "use placement=post_activation or sandwich with a norm",
        )  # fmt: skip


def _validate_recipe(conf: RunConf) -> None:
    c, model = conf.connection, conf.model
    if c.recipe is Recipe.none:
        return
    free = c.scale is Scale.none and c.gate is Gate.none and c.shortcut is Shortcut.identity and c.merge is Merge.add
    _require(
        free, "connection.recipe", c.recipe, "none with another scale, gate, shortcut or merge", "it brings its own"
    )
    if c.recipe is Recipe.fixup:
        _require(model.norm is Norm.none, "model.norm", model.norm, "none with fixup", "Fixup replaces the norm")
        layered = model.name not in _TOKENS
        _require(layered, "model.name", model.name, "mlp, cnn or a ResNet with fixup")
        m = model.branch_layers
        _require(m >= 2, "model.branch_layers", m, "at least 2 with fixup", "its exponent is −1/(2m − 2)")
        fits = model.placement is Placement.post_activation
        _require(fits, "model.placement", model.placement, "post_activation with fixup")
    needed = {Recipe.deepnorm: Placement.post_norm, Recipe.layernorm_scaling: Placement.pre_norm}.get(c.recipe)
    if needed is not None:
        _require(model.norm is Norm.layer, "model.norm", model.norm, f"layer with {c.recipe}")
        _require(model.placement is needed, "model.placement", model.placement, f"{needed} with {c.recipe}")
