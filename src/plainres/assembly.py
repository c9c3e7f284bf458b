"""A run's parts put together on its device, from its checkpoint where there is one."""

from collections.abc import Callable

from plainres import checkpoint, environment
from plainres.checkpoint import Position
from plainres.clock import now
from plainres.construction import start_from_source
from plainres.data import Dataset
from plainres.data.augment import Augmentation
from plainres.data.batches import Batches
from plainres.divergence import DeferredGuard, ImmediateGuard
from plainres.engine import Compiled, engine_of
from plainres.errors import UserError
from plainres.flat import FlatParameters
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.own import load_class
from plainres.models.passage import Recomputed
from plainres.models.rules import rules_of, undecayed
from plainres.optim import build_optimizer, make_recordable
from plainres.pair import RunSpec
from plainres.probes.cadence import batchstats_steps, evaluation_steps, probe_steps
from plainres.probes.own import OwnProbe
from plainres.probes.probe import Probe
from plainres.replicas import Seat
from plainres.rows import RowWriter
from plainres.schema import RunConf
from plainres.store import RunFolder
from plainres.train import Parts, Plan, Training


def assemble(
    spec: RunSpec,
    folder: RunFolder,
    data: Dataset,
    place: dict[str, str],
    on_checkpoint: Callable[[dict[str, int]], None],
    should_stop: Callable[[], bool],
    source: RunFolder | None = None,
    seat: Seat | None = None,
) -> Training:
    """Build the run's parts on its device, from its checkpoint where there is a usable one.

    Args:
        spec, folder, data: the run.
        place: where it trains (``environment.place``).
        on_checkpoint: told of every checkpoint, with the lengths of the row files that it covers.
        should_stop: asked at every step.
        source: the finished run that a constructed one starts from; needed only without a checkpoint.
        seat: of a replica, in its group.
    """
    conf, device = spec.conf, spec.device
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    rules = rules_of(conf)
    Draws(network, conf.model, rules, conf.seed).materialise(device)
    data = data.to(device, conf.data.residence)
    content = checkpoint.read(folder.checkpoint)
    if content is None and source is not None:
        folder.update(construction=start_from_source(spec, network, data.train, source, place))
    flat = FlatParameters(network, conf.optimizer.decay, undecayed(network), rules.lr_factor)
    if seat is not None:
        seat.take(network, flat)
    on_gpu = device.startswith("cuda")
    if conf.trainer.checkpoint_blocks:
        network.passage = Recomputed(list(network.blocks), conf.trainer.checkpoint_blocks)
    engine = engine_of(spec)
    if engine.compiled:
        network.passage = Compiled(list(network.blocks), bool(conf.probe.own))
    optimizer = build_optimizer(conf.optimizer, flat, fused=on_gpu)
    position = Position()
    if content is not None:
        _check_resume(spec, folder, content["place"], place)
        position = checkpoint.restore(content, network, flat, optimizer)
    if engine.graphed:
        make_recordable(optimizer, device)
    own = [load_class("probe.own", text, OwnProbe)(network) for text in conf.probe.own]
    parts = Parts(
        spec=spec,
        network=network,
        flat=flat,
        optimizer=optimizer,
        guard=DeferredGuard(optimizer, device) if on_gpu else ImmediateGuard(),
        data=data,
        batches=Batches(conf.seed, data.num_train, conf.trainer.batch),
        augment=Augmentation(conf.data, data.train, conf.seed),
        probe=Probe(network, flat, own, conf.probe.jacobian),
        plan=make_plan(conf),
        writer=RowWriter(folder, position.lengths),
        folder=folder,
        place=place,
        on_checkpoint=on_checkpoint,
        together=seat,
    )
    network.train()
    return Training(parts, position, should_stop, engine.graphed)


def make_plan(conf: RunConf) -> Plan:
    """The steps of a run at which it is measured."""
    trainer = conf.trainer
    evaluations = evaluation_steps(trainer.eval_every, trainer.steps, trainer.eval_early)
    return Plan(
        probe_steps(conf.probe.every, trainer.steps),
        evaluations,
        batchstats_steps(trainer.batchstats_every, trainer.steps, evaluations),
    )


def _check_resume(spec: RunSpec, folder: RunFolder, there: dict[str, str], here: dict[str, str]) -> None:
    """Bits are promised only in the same place; going on elsewhere has to be asked for and is recorded."""
    differing = environment.differences(here, there)
    if not differing:
        return
    if not spec.conf.trainer.allow_mixed_environment:
        raise UserError(
            f"{folder.name}: its checkpoint was made elsewhere ({'; '.join(differing)}), so resuming would not be "
            "bit-identical; delete the run's folder, or go on with trainer.allow_mixed_environment=true"
        )
    history = folder.read().get("environment_history", [])
    folder.update(environment_history=[*history, {"at": now(), "changed": differing}])
