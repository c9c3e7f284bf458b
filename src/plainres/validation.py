"""Checks of values that a type cannot make, each one line with field, value, what is allowed and what to do."""

import math
import re

from plainres.errors import require
from plainres.options import Compile, Drop, Precision, ScheduleName, Shortcut
from plainres.schema import RunConf, flatten
from plainres.validation_network import validate_connection, validate_model
from plainres.validation_replicas import validate_replicas
from plainres.validation_start import validate_start

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def validate(conf: RunConf) -> None:
    """Check the values that a type cannot.

    Raises:
        UserError: naming the field, its value, what is allowed and what to do.
    """
    leaves = {name: value for name, (_, value) in flatten(conf).items()}
    for name in ("model.width", "model.branch_layers", "trainer.steps", "trainer.threads", "trainer.devices",
                 "trainer.accumulate",
                 "trainer.eval_every", "trainer.batchstats_every", "trainer.checkpoint_every"):  # fmt: skip
        require(leaves[name] >= 1, name, leaves[name], "a whole number of at least 1")
    batch = conf.trainer.batch
    require(batch >= 2, "trainer.batch", batch, "a whole number of at least 2", "batch norm needs two examples")
    parts = conf.trainer.accumulate
    fits = batch % parts == 0 and batch >= 2 * parts
    divisor = f"a divisor of trainer.batch={batch} that leaves at least two examples in a part"
    require(fits, "trainer.accumulate", parts, divisor)
    for name in ("seed", "trainer.checkpoint_blocks", "probe.every", "probe.jacobian", "schedule.warmup_steps"):
        require(leaves[name] >= 0, name, leaves[name], "a whole number of at least 0")
    for name in ("optimizer.lr", "optimizer.eps", "schedule.factor"):
        require(0 < leaves[name] < math.inf, name, leaves[name], "a finite number above 0")
    decay = conf.optimizer.weight_decay
    require(0 <= decay < math.inf, "optimizer.weight_decay", decay, "a finite number of at least 0")
    require(0 <= conf.optimizer.momentum < 1, "optimizer.momentum", conf.optimizer.momentum, "in [0, 1)")
    betas = conf.optimizer.betas
    good_betas = len(betas) == 2 and all(0 <= b < 1 for b in betas)
    require(good_betas, "optimizer.betas", betas, "two numbers in [0, 1), say [0.9,0.999]")
    clip = conf.optimizer.clip_norm
    require(clip is None or 0 < clip < math.inf, "optimizer.clip_norm", clip, "null or a finite number above 0")
    require(
        not conf.optimizer.nesterov or conf.optimizer.momentum > 0,
        "optimizer.nesterov",
        conf.optimizer.nesterov,
        "false while optimizer.momentum=0",
    )
    _validate_schedule(conf)
    _validate_data(conf)
    for name in ("study", "connection.name"):
        require(
            _SAFE_NAME.fullmatch(leaves[name]) is not None,
            name,
            leaves[name],
            "letters, digits, '.', '_' or '-', beginning with a letter or digit",
            "it names a folder" if name == "study" else "",
        )
    plain, adds_nothing = conf.connection.name == "plain", conf.connection.shortcut is Shortcut.none
    require(
        plain == adds_nothing,
        "connection.name",
        conf.connection.name,
        "plain exactly when connection.shortcut=none",
        "analysis and audit take the arm from its name; choose connection=residual, or name the connection",
    )
    validate_model(conf)
    validate_connection(conf)
    validate_start(conf)
    _validate_engine(conf)
    validate_replicas(conf)
    device = conf.trainer.device
    good_device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", device) is not None
    require(good_device, "trainer.device", device, "auto, cpu, cuda or cuda:N")


def _validate_engine(conf: RunConf) -> None:
    """What is compiled or recorded once cannot change from step to step; both arms are asked the same."""
    trainer, connection = conf.trainer, conf.connection
    changing = {
        "connection.drop": connection.drop is not Drop.none,
        "connection.shortcut": connection.shortcut is Shortcut.dropout or not isinstance(connection.shortcut, Shortcut),
        "connection.alpha_warmup": connection.alpha_warmup > 0,
        "model.branch": conf.model.branch is not None,
        "trainer.checkpoint_blocks": trainer.checkpoint_blocks > 0,
    }
    at_odds = [name for name, asked in changing.items() if asked]
    why = f"{' and '.join(at_odds)} cannot be compiled or recorded; leave one of them out"
    require(trainer.compile is Compile.off or not at_odds, "trainer.compile", trainer.compile, "off here", why)
    require(not trainer.cuda_graph or not at_odds, "trainer.cuda_graph", trainer.cuda_graph, "false here", why)
    scaled = trainer.precision is Precision.fp16
    require(
        not (trainer.cuda_graph and scaled), "trainer.cuda_graph", trainer.cuda_graph,
        "false with trainer.precision=fp16", "fp16 looks at every gradient on the host; use bf16",
    )  # fmt: skip


def _validate_data(conf: RunConf) -> None:
    data = conf.data
    for name in ("size", "crop", "subset"):
        value = getattr(data, name)
        require(value is None or value >= 1, f"data.{name}", value, "null or a whole number of at least 1")
    for name, least in {"pad": 0, "seed": 0, "examples": 10, "classes": 2, "teacher_depth": 1}.items():
        value = getattr(data, name)
        require(value >= least, f"data.{name}", value, f"a whole number of at least {least}")
    require(0 < data.val_share < 1, "data.val_share", data.val_share, "between 0 and 1")
    require(0 <= data.label_noise <= 1, "data.label_noise", data.label_noise, "in [0, 1]")
    require(
        not (data.random_labels and data.label_noise), "data.label_noise", data.label_noise,
        "0 with data.random_labels=true", "there is no label left to disturb",
    )  # fmt: skip
    require(data.content is None, "data.content", data.content, "null", "it is measured from the files")


def _validate_schedule(conf: RunConf) -> None:
    steps, schedule = conf.trainer.steps, conf.schedule
    require(
        schedule.warmup_steps < steps,
        "schedule.warmup_steps",
        schedule.warmup_steps,
        f"less than trainer.steps={steps}",
        "otherwise the learning rate never leaves the warm-up; raise trainer.steps or lower the warm-up",
    )
    marks = schedule.milestones
    if schedule.name is ScheduleName.step:
        ordered = bool(marks) and marks == sorted(set(marks)) and all(0 < m < steps for m in marks)
        require(ordered, "schedule.milestones", marks, f"rising steps between 1 and {steps - 1}")
    else:
        require(not marks, "schedule.milestones", marks, "empty unless schedule=step")
