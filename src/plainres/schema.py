"""Every setting of a run, typed, with its class and its default.

Each field has one class (DESIGN: identity and matching):

- ``identity``: moves a bit of the result, so it is part of the run's hash;
- ``record``: changes what is written down, not what is trained; another value on an existing run is refused;
- ``free``: changes neither (places, sinks, launching).

The dataclasses are plain Python, so that everything but the entry point works without Hydra. A default means
"as before": a new identity field changes no old run id, because only what differs from the default is hashed.
"""

import math
import re
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from plainres.errors import UserError


class FieldClass(StrEnum):
    """What a field's value means for the identity of a run."""

    IDENTITY = "identity"
    RECORD = "record"
    FREE = "free"


class Family(StrEnum):
    """Network families; the depth rule of each is in models/networks.py."""

    mlp = "mlp"
    cnn = "cnn"


class Shortcut(StrEnum):
    """The path around a branch. ``none`` is the plain arm: nothing is added."""

    none = "none"
    identity = "identity"


class OptimizerName(StrEnum):
    """Update rules, both torch's own, stepping on flat storage."""

    sgd = "sgd"
    adamw = "adamw"


class DecayRule(StrEnum):
    """Which parameters weight decay acts on: everything as in He 2015, or weight matrices and filters only."""

    all = "all"
    matrices = "matrices"


class ScheduleName(StrEnum):
    """Learning-rate schedules, counted in steps."""

    constant = "constant"
    cosine = "cosine"
    step = "step"


class TrackerName(StrEnum):
    """Sinks beside the run's own files."""

    none = "none"
    wandb = "wandb"


class TrackerMode(StrEnum):
    """``auto``: WANDB_MODE if set, else online when logged in, else offline. Never prompts."""

    auto = "auto"
    online = "online"
    offline = "offline"


def _field(kind: FieldClass, default: Any) -> Any:
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"class": kind})
    return field(default=default, metadata={"class": kind})


def _identity(default: Any) -> Any:
    return _field(FieldClass.IDENTITY, default)


def _record(default: Any) -> Any:
    return _field(FieldClass.RECORD, default)


def _free(default: Any) -> Any:
    return _field(FieldClass.FREE, default)


@dataclass
class DataConf:
    """Which data set; its split and normalisation are fixed by its name."""

    name: str = _identity("digits")


@dataclass
class ModelConf:
    """The network without its connections. He init (fan-in), batch norm and ReLU after every weighted layer."""

    name: Family = _identity(Family.mlp)
    width: int = _identity(64)
    branch_layers: int = _identity(2)


@dataclass
class ConnectionConf:
    """How a block's branch joins the trunk. ``name`` labels the preset; the other fields are its parts."""

    name: str = _identity("plain")
    shortcut: Shortcut = _identity(Shortcut.none)


@dataclass
class OptimizerConf:
    """Update rule. ``momentum``/``nesterov`` belong to sgd, ``betas``/``eps`` to adamw."""

    name: OptimizerName = _identity(OptimizerName.sgd)
    lr: float = _identity(0.03)
    momentum: float = _identity(0.9)
    nesterov: bool = _identity(False)
    betas: list[float] = _identity([0.9, 0.999])
    eps: float = _identity(1e-8)
    weight_decay: float = _identity(1e-4)
    decay: DecayRule = _identity(DecayRule.all)
    clip_norm: float | None = _identity(None)


@dataclass
class ScheduleConf:
    """Learning rate over steps: linear warm-up, then the named shape. ``milestones``/``factor`` belong to step."""

    name: ScheduleName = _identity(ScheduleName.cosine)
    warmup_steps: int = _identity(20)
    milestones: list[int] = _identity([])
    factor: float = _identity(0.1)


@dataclass
class TrainerConf:
    """Budget, hardware and cadences. ``device`` enters the identity as its kind (cpu, cuda), not its index."""

    steps: int = _identity(600)
    batch: int = _identity(128)
    threads: int = _identity(1)
    device: str = _identity("auto")
    deterministic: bool = _identity(True)
    eval_every: int = _record(75)
    batchstats_every: int = _record(150)
    checkpoint_every: int = _free(100)
    allow_mixed_environment: bool = _free(False)


@dataclass
class ProbeConf:
    """When the inside of the network is measured: every ``every`` steps (0: never), and log-spaced early on."""

    name: str = _free("default")
    every: int = _record(50)


@dataclass
class TrackerConf:
    """Where else rows go. The run's own files are always written and are the truth."""

    name: TrackerName = _free(TrackerName.none)
    mode: TrackerMode = _free(TrackerMode.auto)
    project: str = _free("plainres")


@dataclass
class RunConf:
    """One run: one arm, one depth, one seed."""

    depth: int = _identity(10)
    seed: int = _identity(0)
    connection: ConnectionConf = field(default_factory=ConnectionConf)
    model: ModelConf = field(default_factory=ModelConf)
    data: DataConf = field(default_factory=DataConf)
    optimizer: OptimizerConf = field(default_factory=OptimizerConf)
    schedule: ScheduleConf = field(default_factory=ScheduleConf)
    trainer: TrainerConf = field(default_factory=TrainerConf)
    probe: ProbeConf = field(default_factory=ProbeConf)
    tracker: TrackerConf = field(default_factory=TrackerConf)
    study: str = _free("single")
    results_dir: str = _free("results")
    fail_fast: bool = _free(False)


def flatten(conf: Any, prefix: str = "") -> dict[str, tuple[FieldClass, Any]]:
    """Dotted name -> (class, value) of every leaf field of a config dataclass."""
    leaves: dict[str, tuple[FieldClass, Any]] = {}
    for item in fields(conf):
        name, value = f"{prefix}{item.name}", getattr(conf, item.name)
        if is_dataclass(value):
            leaves |= flatten(value, f"{name}.")
        else:
            leaves[name] = (item.metadata["class"], value)
    return leaves


def plain_value(value: Any) -> Any:
    """An enum as its text, a list as plain JSON values; everything else as it is."""
    if isinstance(value, list):
        return [plain_value(v) for v in value]
    return str(value) if isinstance(value, str) else value


def plain_values(conf: Any) -> dict[str, Any]:
    """A config dataclass as nested dictionaries of JSON values."""
    nested = ((item.name, getattr(conf, item.name)) for item in fields(conf))
    return {name: plain_values(v) if is_dataclass(v) else plain_value(v) for name, v in nested}


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
    for name in ("study", "connection.name", "data.name"):
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
    device = conf.trainer.device
    good_device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", device) is not None
    _require(good_device, "trainer.device", device, "auto, cpu, cuda or cuda:N")


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
