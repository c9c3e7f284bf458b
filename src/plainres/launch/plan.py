"""`plainres plan`: what a command would run, what of it has been done, and how long the rest takes. Trains nothing."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from plainres.data import load
from plainres.grid import Grid
from plainres.job import out_of_memory
from plainres.launch.groups import grouped, refuse_groups
from plainres.launch.lease import visible_gpus
from plainres.launch.pool import pool_size
from plainres.launch.prepare import check_record, checked_specs, resolve_device, varying_words
from plainres.launch.settings import LocalConf, SlurmConf
from plainres.launch.timing import Speed, measure
from plainres.models.families import build
from plainres.pair import RunSpec, make_spec
from plainres.schema import RunConf
from plainres.signature import forward_flops
from plainres.store import FINISHED, Status, Study

TASK_SECONDS = 10.0  # of a task on a cluster before its run begins: Python and its libraries from a network disk
NOT_THE_NETWORKS = ("seed", "trainer.steps", "optimizer.", "schedule.", "start.")  # cost no time per update


@dataclass(frozen=True)
class Kind:
    """The runs that differ in their seeds only.

    Attributes:
        label: what tells them from the other kinds, such as ``depth=10 connection=plain``.
        runs, to_do: how many, and how many of them have not ended.
        num_parameters: of the network.
        step_flops: floating-point operations of one update: three forward passes' of a batch.
        seconds: of one run, estimated; None where it could not be timed.
    """

    label: str
    runs: int
    to_do: int
    num_parameters: int
    step_flops: int
    seconds: float | None


@dataclass(frozen=True)
class Plan:
    """What a command would do.

    Attributes:
        study: the folder, which need not exist.
        kinds: in order of the grid.
        statuses: how many runs there are of each; planned where nothing has been written.
        at_a_time: parallel runs of the launcher.
        how: the launcher in words.
        untimed: why no seconds are given; empty when they are.
        work_seconds: sum over the runs to do.
        wall_seconds: until the last of them ends, when as many as may run side by side do.
    """

    study: Path
    kinds: list[Kind]
    statuses: dict[Status, int]
    at_a_time: int
    how: str
    untimed: str
    work_seconds: float | None
    wall_seconds: float | None


def make_plan(grid: Grid, say: Callable[[str], None]) -> Plan:
    """Check every job of a command as a sweep would, and estimate; writes nothing.

    Args:
        grid: the jobs and their launcher.
        say: told what takes a moment.

    Raises:
        UserError: a job that cannot be run.
    """
    launcher = grid.launcher
    say(f"checking {len(grid.confs)} job{'s' if len(grid.confs) > 1 else ''}")
    if not isinstance(launcher, LocalConf):
        refuse_groups(grid.confs)
    specs = checked_specs(grid.confs, launcher.device if isinstance(launcher, SlurmConf) else resolve_device)
    place = Path(grid.confs[0].results_dir).expanduser().absolute() / grid.confs[0].study
    states = _states(place, specs)
    kinds = _kinds(specs)
    to_do = {name: [s for s in members if states[s.name] not in FINISHED] for name, members in kinds.items()}
    untimed, seconds = _time(to_do, say)
    labels = varying_words([members[0].conf for members in kinds.values()])
    rows = [
        Kind(label, len(members), len(to_do[name]), *_size(members[0].conf), seconds.get(name))
        for label, (name, members) in zip(labels, kinds.items(), strict=True)
    ]
    at_a_time, how, each = _launching(launcher, specs)
    # Seeds that train together are taken to need as long as one after the other; they need less.
    costs = [
        None if row.seconds is None else row.seconds * len(group)
        for row, name in zip(rows, kinds, strict=True)
        for group in grouped(to_do[name])
    ]
    known = [cost for cost in costs if cost is not None]
    complete = len(known) == len(costs)
    return Plan(
        place,
        rows,
        {status: list(states.values()).count(status) for status in Status if status in states.values()},
        at_a_time,
        how,
        untimed,
        sum(known) if complete else None,
        makespan([cost + each for cost in known], at_a_time) if complete else None,
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Seconds until the last job ends, when the longest waiting one goes to the first free worker."""
    free = [0.0] * workers
    for cost in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


def _states(place: Path, specs: list[RunSpec]) -> dict[str, Status]:
    """Where every run stands; the folder is only read."""
    study = Study.open(place) if place.exists() else None
    states = {}
    for spec in specs:
        folder = study.run_folder(spec.name) if study else None
        if folder is not None and study is not None and folder.exists():
            check_record(spec, study)
            states[spec.name] = folder.status()
        else:
            states[spec.name] = Status.PLANNED
    return states


def _kinds(specs: list[RunSpec]) -> dict[str, list[RunSpec]]:
    """Runs by their identity without the seed."""
    found: dict[str, list[RunSpec]] = {}
    for spec in specs:
        found.setdefault(make_spec(replace(spec.conf, seed=0), spec.device).run_id, []).append(spec)
    return found


def _size(conf: RunConf) -> tuple[int, int]:
    """Parameters, and floating-point operations of an update."""
    data = load(conf.data)
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    return sum(p.numel() for p in network.parameters()), 3 * forward_flops(conf, data) * conf.trainer.batch


def _time(to_do: dict[str, list[RunSpec]], say: Callable[[str], None]) -> tuple[str, dict[str, float]]:
    """Why nothing was timed, and the seconds of a run by kind; a network is timed once for all budgets and rates."""
    waiting = {name: members[0] for name, members in to_do.items() if members}
    if any(s.device.startswith("cuda") for s in waiting.values()) and not torch.cuda.is_available():
        return "no CUDA device here to time them on", {}
    costs = {name: _cost(spec) for name, spec in waiting.items()}
    say(f"timing {len(set(costs.values()))} networks on this machine")
    speeds: dict[str, Speed] = {}
    for name, spec in waiting.items():
        if costs[name] not in speeds:
            try:
                speeds[costs[name]] = measure(spec)
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                return f"{spec.name} does not fit into memory here", {}
    return "", {name: speeds[costs[name]].of_run(spec) for name, spec in waiting.items()}


def _cost(spec: RunSpec) -> str:
    """Equal for runs whose updates and passes take equally long."""
    parts = {k: v for k, v in spec.identity.items() if k == "optimizer.name" or not k.startswith(NOT_THE_NETWORKS)}
    return repr((parts, spec.conf.probe, spec.device))


def _launching(launcher: LocalConf | SlurmConf | None, specs: list[RunSpec]) -> tuple[int, str, float]:
    """Runs at a time, the launcher in words, and seconds that each run takes beside its own."""
    if isinstance(launcher, SlurmConf):
        return launcher.parallel, "hydra/launcher=slurm, from when the queue lets them begin", TASK_SECONDS
    if isinstance(launcher, LocalConf):
        trainer = specs[0].conf.trainer
        gpus = visible_gpus(specs[0].device, torch.cuda.device_count())
        return pool_size(launcher, trainer.threads, len(gpus)), "hydra/launcher=local", 0.0
    return 1, "one run after the other", 0.0
