"""Every setting of a run, typed, with its class and its default.

Each field has one class (DESIGN: identity and matching):

- ``identity``: moves a bit of the result, so it is part of the run's hash;
- ``record``: changes what is written down, not what is trained; another value on an existing run is refused;
- ``free``: changes neither (places, sinks, launching).

The dataclasses are plain Python, so that everything but the entry point works without Hydra. A default means
"as before": a new identity field changes no old run id, because only what differs from the default is hashed.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from plainres.options import (
    Activation,
    Augment,
    Boundary,
    Compile,
    DataName,
    DecayRule,
    Drop,
    DropScaling,
    DropUnit,
    Family,
    FieldClass,
    Gate,
    Init,
    Merge,
    Norm,
    OptimizerName,
    Placement,
    Precision,
    Recipe,
    Residence,
    Scale,
    ScheduleName,
    Shortcut,
    Stages,
    TrackerMode,
    TrackerName,
    ZeroInit,
)


def _field(kind: FieldClass, default: Any) -> Any:
    if isinstance(default, (list, dict)):
        return field(default_factory=default.copy, metadata={"class": kind})
    return field(default=default, metadata={"class": kind})


def _identity(default: Any) -> Any:
    return _field(FieldClass.IDENTITY, default)


def _record(default: Any) -> Any:
    return _field(FieldClass.RECORD, default)


def _free(default: Any) -> Any:
    return _field(FieldClass.FREE, default)


@dataclass
class DataConf:
    """What is trained on, the same for both arms of a pair.

    Attributes:
        root: where its files are: a folder, for image_folder also a zip; null downloads what can be downloaded.
        cache_dir: where decoded images and downloads are kept; null for the user's cache folder.
        content: hash of the decoded files, filled in where no published checksum vouches for them.
        size: side of a square image: image folders are resized and centre-cropped to it (null: all have one size
            already); of synthetic data, 8 when null.
        val_share: part of each class that validates, where an image folder has no split of its own.
        subset: train on so many examples, the same share of every class; null for all.
        label_noise: share of the training labels replaced by another class.
        random_labels: replace every training label by a draw of its own.
        seed: of subset, noise, random labels and synthetic data; not of the run.
        augment: see Augment; ``pad`` zeros are put around the normalised image, ``crop`` is the side that is cut out
            (null: the image's own). Clean passes see the centre.
        examples, classes, teacher_depth: of synthetic data: how many to train on, and the network that labels them.
        residence: where pixels live; moves no bit.
    """

    name: DataName = _identity(DataName.digits)
    root: str | None = _free(None)
    cache_dir: str | None = _free(None)
    content: str | None = _identity(None)
    size: int | None = _identity(None)
    val_share: float = _identity(0.2)
    subset: int | None = _identity(None)
    label_noise: float = _identity(0.0)
    random_labels: bool = _identity(False)
    seed: int = _identity(0)
    augment: Augment = _identity(Augment.none)
    pad: int = _identity(4)
    crop: int | None = _identity(None)
    examples: int = _identity(2000)
    classes: int = _identity(10)
    teacher_depth: int = _identity(4)
    residence: Residence = _free(Residence.auto)


@dataclass
class ModelConf:
    """The network without its connections; both arms of a pair share all of it.

    Attributes:
        branch: ``package.module:Class`` of a user's own branch, built from the width and ``branch_settings``; null for
            the family's. ``branch_layers`` says how many weighted layers deep it is.
        branch_code: hash of the file it is in, filled in.
    """

    name: Family = _identity(Family.mlp)
    width: int = _identity(64)
    branch_layers: int = _identity(2)
    placement: Placement = _identity(Placement.post_activation)
    norm: Norm = _identity(Norm.batch)
    activation: Activation = _identity(Activation.relu)
    init: Init = _identity(Init.he)
    stages: Stages = _identity(Stages.thirds)
    boundary: Boundary = _identity(Boundary.zero_pad)
    heads: int = _identity(4)
    patch: int = _identity(2)
    mlp_ratio: float = _identity(4.0)
    branch: str | None = _identity(None)
    branch_settings: dict[str, Any] = _identity({})
    branch_code: str | None = _identity(None)


@dataclass
class ConnectionConf:
    """How a block's branch joins the trunk. ``name`` labels the preset; the other fields are its parts.

    y = post(merge(h(x), drop(scale(F(x))))). Depth rules use L, the number of branches joined to the trunk.

    Attributes:
        shortcut: the path h around the branch, or ``package.module:Class`` of a user's own, built from the width and
            ``shortcut_settings``; ``shortcut_code`` is the hash of its file, filled in. ``shortcut_scale`` belongs to
            ``scaled``, ``shortcut_dropout`` (the chance to drop a unit) to ``dropout``.
        gate: g(x) on both paths, or one; ``gate_bias`` is where its bias starts.
        scale: what multiplies F: ``alpha`` (fixed), ``alpha``·L^−``alpha_power`` (depth), a learned scalar or
            per-channel vector that starts at ``alpha`` (null for per_channel: CaiT's start by depth).
        alpha_warmup: steps over which a fixed or depth scale rises linearly from 0.
        shared_scale: one learned scalar for all branches of a Transformer layer.
        drop: stochastic depth; ``survival`` is the chance to keep the (last) branch.
        zero_init: what of the branch starts at 0.
        recipe: rules of init, scale or learning rate that come with it.
    """

    name: str = _identity("plain")
    shortcut: Shortcut | str = _identity(Shortcut.none)
    shortcut_settings: dict[str, Any] = _identity({})
    shortcut_code: str | None = _identity(None)
    shortcut_scale: float = _identity(1.0)
    shortcut_dropout: float = _identity(0.5)
    gate: Gate = _identity(Gate.none)
    gate_bias: float = _identity(-3.0)
    scale: Scale = _identity(Scale.none)
    alpha: float | None = _identity(1.0)
    alpha_power: float = _identity(0.5)
    alpha_warmup: int = _identity(0)
    shared_scale: bool = _identity(False)
    drop: Drop = _identity(Drop.none)
    survival: float = _identity(0.5)
    drop_unit: DropUnit = _identity(DropUnit.sample)
    drop_scaling: DropScaling = _identity(DropScaling.train)
    merge: Merge = _identity(Merge.add)
    zero_init: ZeroInit = _identity(ZeroInit.none)
    recipe: Recipe = _identity(Recipe.none)


@dataclass
class StartConf:
    """Which weights training starts from; the default is the initial draws.

    Attributes:
        depth: of a trained shallower network of the same settings, the source: its blocks come first, and blocks that
            change nothing are inserted between them and the head; null starts from scratch. See docs/construction.md.
        noise: standard deviation of a normal perturbation of what makes an inserted block change nothing, in units of
            1/√fan_in for weights (of 1 for the norm scales of a residual arm).
    """

    name: str = _free("scratch")
    depth: int | None = _identity(None)
    noise: float = _identity(0.0)


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
    """Budget, hardware and cadences. ``device`` enters the identity as its kind (cpu, cuda), not its index; ``devices``
    is how many of them share a batch, as torchrun says.

    Attributes:
        precision: see Precision; of updates and evaluations, see docs/speed.md.
        accumulate: parts of a batch that are passed one after the other; it divides ``batch``. Their gradients add up
            to the batch's; batch norm takes the statistics of a part.
        checkpoint_blocks: keep the input of every so many blocks and compute what lies between again in the backward
            pass; 0 keeps everything.
        compile: see Compile.
        cuda_graph: launch an unprobed update as one CUDA graph.
        replicas: runs of one cell, seeds, whose unprobed updates are computed as one network's.
    """

    steps: int = _identity(600)
    batch: int = _identity(128)
    threads: int = _identity(1)
    devices: int = _identity(1)
    device: str = _identity("auto")
    deterministic: bool = _identity(True)
    precision: Precision = _identity(Precision.float32)
    accumulate: int = _identity(1)
    checkpoint_blocks: int = _identity(0)
    compile: Compile = _identity(Compile.off)
    cuda_graph: bool = _identity(False)
    replicas: int = _identity(1)
    eval_every: int = _record(75)
    eval_early: bool = _record(True)
    batchstats_every: int = _record(150)
    checkpoint_every: int = _free(100)
    allow_mixed_environment: bool = _free(False)

    @property
    def micro_batch(self) -> int:
        """Examples that pass through the network together."""
        return self.batch // self.accumulate


@dataclass
class ProbeConf:
    """When the inside of the network is measured: every ``every`` steps (0: never), and log-spaced early on.

    Attributes:
        own: users' probes beside ours, each ``package.module:Class``.
        jacobian: examples of the step's batch whose Jacobians' singular values are measured; 0: none, as it is slow.
    """

    name: str = _free("default")
    every: int = _record(50)
    own: list[str] = _record([])
    jacobian: int = _record(0)


@dataclass
class TrackerConf:
    """Where else rows go. The run's own files are always written and are the truth.

    Attributes:
        mode: see TrackerMode. ``mode`` and ``project`` belong to wandb.
        own: users' sinks beside it, each ``package.module:Class``; see docs/tracking.md.
    """

    name: TrackerName = _free(TrackerName.wandb)
    mode: TrackerMode = _free(TrackerMode.auto)
    project: str = _free("plainres")
    own: list[str] = _free([])


@dataclass
class RunConf:
    """One run: one arm, one depth, one seed."""

    depth: int = _identity(10)
    seed: int = _identity(0)
    connection: ConnectionConf = field(default_factory=ConnectionConf)
    model: ModelConf = field(default_factory=ModelConf)
    data: DataConf = field(default_factory=DataConf)
    start: StartConf = field(default_factory=StartConf)
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
    if isinstance(value, dict):
        return {k: plain_value(v) for k, v in value.items()}
    return str(value) if isinstance(value, str) else value


def plain_values(conf: Any) -> dict[str, Any]:
    """A config dataclass as nested dictionaries of JSON values."""
    nested = ((item.name, getattr(conf, item.name)) for item in fields(conf))
    return {name: plain_values(v) if is_dataclass(v) else plain_value(v) for name, v in nested}
