"""Everything that can be refused is refused here, before the first job of a sweep starts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from plainres.audit import audit
from plainres.data import Dataset, load
from plainres.data.batches import Batches
from plainres.data.dataset import with_content
from plainres.errors import UserError
from plainres.flat import FlatParameters
from plainres.job import planned_record
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.own import with_code
from plainres.models.own_check import check_own
from plainres.models.rules import rules_of
from plainres.options import Shortcut
from plainres.pair import RunSpec, make_spec, record_fields
from plainres.precision import require_precision
from plainres.probes.own_check import check_own_probes
from plainres.ranks import require_ranks
from plainres.schema import RunConf, flatten, plain_value
from plainres.store import Status, Study
from plainres.tracking.sink import check_tracker

TRIAL = 4  # examples that a user's probe is tried on


def resolve_device(wanted: str) -> str:
    """``auto`` becomes cuda where there is one.

    Raises:
        UserError: a GPU was asked for that is not there.
    """
    available = torch.cuda.is_available()
    if wanted == "auto":
        return "cuda" if available else "cpu"
    if wanted.startswith("cuda"):
        index = int(wanted.partition(":")[2] or 0)
        if not available or index >= torch.cuda.device_count():
            count = torch.cuda.device_count() if available else 0
            raise UserError(f"trainer.device={wanted}: this machine has {count} CUDA devices; use auto or cpu")
    return wanted


def prepare(confs: Sequence[RunConf], device_of: Callable[[str], str] = resolve_device) -> tuple[Study, list[RunSpec]]:
    """Check every job and write down what is planned.

    Args:
        confs: of the jobs.
        device_of: where a run trains, from its ``trainer.device``.

    Raises:
        UserError: the first job that cannot be run, or a study that cannot be written.
    """
    specs = checked_specs(confs, device_of)
    study = Study.create(confs[0].results_dir, confs[0].study)
    for spec in specs:
        check_record(spec, study)
    for spec in specs:
        folder = study.run_folder(spec.name)
        try:
            folder.plan(planned_record(spec, study))
        except OSError as error:
            raise UserError(
                f"{folder.path}: cannot be written ({error.strerror}); make room, or it writable"
            ) from error
    return study, specs


def checked_specs(confs: Sequence[RunConf], device_of: Callable[[str], str] = resolve_device) -> list[RunSpec]:
    """Every job checked, without writing anything.

    Checks: devices, data, batch, depth and shapes (a forward pass on the meta device), and the audit of each kind of
    pair. Two jobs with equal identity become one.

    Raises:
        UserError: the first job that cannot be run.
    """
    places = {(c.results_dir, c.study) for c in confs}
    if len(places) > 1:
        raise UserError(f"study={','.join(sorted(s for _, s in places))}: the jobs of one sweep share one study")
    for tracker in {str(c.tracker): c.tracker for c in confs}.values():
        check_tracker(tracker)
    found = [with_code(replace(c, data=with_content(c.data))) for c in confs]
    specs = {s.run_id: s for s in (make_spec(c, device_of(c.trainer.device)) for c in found)}
    audited: set[str] = set()
    for spec in specs.values():
        _check(spec, audited)
    return list(specs.values())


def _check(spec: RunSpec, audited: set[str]) -> None:
    conf = spec.conf
    require_ranks(conf.trainer.devices)
    require_precision(conf.trainer.precision, spec.device)
    data = load(conf.data)
    Batches(conf.seed, data.num_train, conf.trainer.batch)
    kind = make_spec(replace(conf, seed=0), spec.device).run_id
    if kind not in audited:
        if conf.model.branch or conf.probe.own or not isinstance(conf.connection.shortcut, Shortcut):
            _check_own(conf, data)
        found = audit(conf, data)
        if not found["clean"]:
            raise UserError(f"{spec.name}: the pair is not matched: {'; '.join(found['undeclared'])}")
        audited.add(kind)


def _check_own(conf: RunConf, data: Dataset) -> None:
    """Try what the user wrote."""
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    check_own(network, data.input_shape, conf.connection.zero_init)
    if not conf.probe.own:
        return
    Draws(network, conf.model, rules_of(conf), conf.seed).materialise("cpu")
    flat = FlatParameters(network, conf.optimizer.decay)
    check_own_probes(conf.probe.own, network.train(), flat, *data.train.clean(slice(0, TRIAL)))


def check_record(spec: RunSpec, study: Study) -> None:
    """An existing run must have been recorded as this one would be.

    Raises:
        UserError: it was recorded otherwise, or cannot be read.
    """
    folder = study.run_folder(spec.name)
    if not folder.exists():
        return
    found = folder.read()
    if found["status"] == Status.PLANNED:
        return
    stored = found["config"]
    for name, value in record_fields(spec.conf).items():
        old = stored
        for part in name.split("."):
            old = old.get(part) if isinstance(old, dict) else None
        if old is not None and old != value:
            raise UserError(
                f"{name}={value}: the run {spec.name} was recorded with {name}={old}; "
                f"use that value, another study=NAME, or delete {folder.path}"
            )


def settings_line(confs: Sequence[RunConf]) -> str:
    """What varies over the jobs of a sweep, for its first line: ``depth=10,20 connection=plain,residual``.

    The parts of a connection, or of a start, are named only where one of that name has several values of them.
    """
    leaves = _leaves(confs)
    return " ".join(
        f"{name.removesuffix('.name')}={','.join(dict.fromkeys(leaf[name] for leaf in leaves))}"
        for name in _varying(leaves)
    )


def varying_words(confs: Sequence[RunConf]) -> list[str]:
    """What tells each of these settings from the others, but for seeds: ``depth=10 connection=plain``."""
    leaves = _leaves(confs)
    names = [name for name in _varying(leaves) if name != "seed"] or ["depth", "connection.name"]
    return [" ".join(f"{name.removesuffix('.name')}={leaf[name]}" for name in names) for leaf in leaves]


def _leaves(confs: Sequence[RunConf]) -> list[dict[str, str]]:
    return [{name: str(plain_value(value)) for name, (_, value) in flatten(c).items()} for c in confs]


def _varying(leaves: Sequence[dict[str, str]]) -> list[str]:
    several = [name for name in leaves[0] if len({leaf[name] for leaf in leaves}) > 1]
    return [name for name in several if not _implied(leaves, name)]


def _implied(leaves: Sequence[dict[str, str]], name: str) -> bool:
    """Whether the name of a connection, or of a start, says the value of this part of it."""
    group = name.partition(".")[0]
    if group not in ("connection", "start") or name == f"{group}.name":
        return False
    named = {(leaf[f"{group}.name"], leaf[name]) for leaf in leaves}
    return len(named) == len({label for label, _ in named})
