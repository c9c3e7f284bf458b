"""Runs that are trained together: the seeds of one cell, ``trainer.replicas`` of them in one process (replicas.py)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from plainres.errors import require
from plainres.job import Outcome, execute
from plainres.pair import RunSpec
from plainres.replicas import Seat, make_group
from plainres.schema import RunConf
from plainres.store import Study
from plainres.tracking.client import LateTracker


def grouped(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Cut runs into jobs: up to ``trainer.replicas`` that differ in their seed only, in the order of the first ones."""
    cells: dict[str, list[RunSpec]] = {}
    for spec in specs:
        cells.setdefault(repr((replace(spec.conf, seed=0), spec.device)), []).append(spec)
    return [
        members[first : first + members[0].conf.trainer.replicas]
        for members in cells.values()
        for first in range(0, len(members), members[0].conf.trainer.replicas)
    ]


def refuse_groups(confs: Sequence[RunConf]) -> None:
    """For a launcher that knows nothing of groups.

    Raises:
        UserError: a run that would have to train with others.
    """
    for conf in confs:
        replicas = conf.trainer.replicas
        remedy = "it trains every run by itself; hydra/launcher=local trains seeds together"
        require(replicas == 1, "trainer.replicas", replicas, "1 with this launcher", remedy)


def execute_group(specs: Sequence[RunSpec], study: Study, should_stop: Callable[[], bool]) -> list[Outcome]:
    """Bring the runs of one job to their ends; ``job.execute`` of each, side by side where there are several.

    Sinks hear of a run when it has ended, of one after the other.
    """
    if len(specs) == 1:
        return [execute(specs[0], study, should_stop)]
    group = make_group(specs[0])
    seats = [Seat(group, LateTracker(s.conf.tracker, study.run_folder(s.name).path)) for s in specs]
    with ThreadPoolExecutor(len(specs)) as threads:
        running = [
            threads.submit(execute, spec, study, should_stop, seat) for spec, seat in zip(specs, seats, strict=True)
        ]
    return [one.result() for one in running]
