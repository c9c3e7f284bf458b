"""Jobs in parallel on this machine, each in a worker process that is kept warm for the next one.

Pebble's pool replaces a worker that dies and fails only the job it held. Workers ignore Ctrl-C; the parent asks
them to stop through one shared byte, which no killed process can leave locked.
"""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import torch
from pebble import ProcessExpired, ProcessPool

from plainres.data import load
from plainres.data.dataset import IN_MEMORY
from plainres.errors import Interrupted, UserError
from plainres.job import Outcome
from plainres.launch.groups import execute_group, grouped
from plainres.launch.lease import lease, slots_folder, visible_gpus
from plainres.launch.settings import LocalConf
from plainres.launch.stopping import StopRequest, stop_on_signals
from plainres.launch.view import make_view
from plainres.pair import RunSpec
from plainres.schema import DataConf
from plainres.store import FINISHED, RunFolder, Status, Study

if TYPE_CHECKING:
    from plainres.launch.sweep import Sweep

POLL_SECONDS = 0.1
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_stop: Any = None
_parent = 0
_gpus: dict[str, str] = {}
_jobs_per_gpu = 1


def _start_worker(stop: Any, parent: int, gpus: dict[str, str], jobs_per_gpu: int) -> None:
    global _stop, _parent, _gpus, _jobs_per_gpu
    _stop, _parent, _gpus, _jobs_per_gpu = stop, parent, gpus, jobs_per_gpu


def _warm(data: DataConf) -> None:
    """Load what a job needs; its modules came with this one. Images are decoded by the parent, then mapped."""
    if data.name in IN_MEMORY:
        with suppress(UserError):  # said by the parent
            load(data)


def _should_stop() -> bool:
    """Asked to, or orphaned: a sweep that was killed must not go on behind its user's back, holding its runs."""
    return bool(_stop.value) or os.getppid() != _parent


def _work(specs: list[RunSpec], study: Study) -> list[Outcome]:
    # SIGTERM for the whole group of processes (a service or a container that ends): a checkpoint, then the end.
    with stop_on_signals((signal.SIGTERM,), patient=True) as asked:

        def should_stop() -> bool:
            return asked() or _should_stop()

        if not _gpus:
            return execute_group(specs, study, should_stop)
        try:
            with lease(_gpus, _jobs_per_gpu, slots_folder(), should_stop) as device:
                return execute_group([replace(spec, device=device) for spec in specs], study, should_stop)
        except Interrupted:  # before there was a device for it
            return [Outcome(spec.name, Status.PLANNED, True, "", 0.0) for spec in specs]


def pool_size(settings: LocalConf, threads: int, num_gpus: int) -> int:
    """Parallel jobs: as many as asked for, else as the GPUs hold, else cores / threads.

    Args:
        settings: of the launcher.
        threads: of one job.
        num_gpus: devices that the jobs may take; 0 on a CPU.
    """
    if settings.jobs > 0:
        return settings.jobs
    if num_gpus:
        return num_gpus * settings.jobs_per_gpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


@contextmanager
def worker_pool(
    settings: LocalConf, threads: int, device: str, data: DataConf
) -> "Iterator[Callable[[Sweep], list[Outcome]]]":
    """Worker processes that import while the parent still checks the jobs.

    Args:
        settings: of the launcher.
        threads: of one job.
        device: ``trainer.device`` as it was given.
        data: what every worker loads beforehand, if it comes from no files.

    Yields:
        a function that runs every job of a sweep. It raises KeyboardInterrupt when the user asked to stop; running
        jobs have checkpointed then.
    """
    for name in _THREAD_VARIABLES:  # inherited by the workers: BLAS must not start threads of its own
        os.environ[name] = str(threads)
    context = multiprocessing.get_context("spawn")
    stop = context.RawValue(ctypes.c_bool, False)
    gpus = visible_gpus(device, torch.cuda.device_count())
    jobs = pool_size(settings, threads, len(gpus))
    given = (stop, os.getpid(), gpus, settings.jobs_per_gpu)
    pool = ProcessPool(max_workers=jobs, initializer=_start_worker, initargs=given, context=context)
    try:
        with _interrupts_held_back():
            for _ in range(jobs):
                pool.schedule(_warm, args=(data,))
        yield lambda sweep: _run(sweep, pool, jobs, stop)
    finally:
        # Every job of ours has ended by now, or the sweep has: what may still run is a worker's warming up.
        pool.stop()
        pool.join()


def _mark_dead(folder: RunFolder, message: str) -> Status | None:
    """Write down how a run ended whose process cannot do so any more; call only while holding it.

    Returns:
        its status if it had ended before.
    """
    folder.clear_progress()
    if (status := Status(folder.read()["status"])) in FINISHED:
        return status
    folder.update(status=Status.FAILED, error={"kind": "WorkerDied", "message": message})
    return None


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process (or thread) started within inherits that Ctrl-C is not for it; for this process it only waits."""
    resource_tracker.ensure_running()  # multiprocessing's own; starting it would let interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(sweep: "Sweep", pool: ProcessPool, jobs: int, stop: Any) -> list[Outcome]:
    # The longest first, so that all cores stay busy to the end.
    order = sorted(sweep.specs, key=lambda s: (-s.conf.depth * s.conf.trainer.steps, s.conf.seed))
    groups = grouped(order)
    with stop_on_signals() as asked, make_view(sweep, order, min(jobs, len(groups))) as view:
        run = _PoolRun(sweep, groups, jobs, pool, stop, asked, view)
        run.until_done()
    if asked():
        raise KeyboardInterrupt
    return run.outcomes


class _PoolRun:
    """The parent's side: hands out jobs, polls their futures and progress files, collects outcomes."""

    def __init__(
        self,
        sweep: "Sweep",
        groups: list[list[RunSpec]],
        jobs: int,
        pool: ProcessPool,
        stop: Any,
        asked: StopRequest,
        view: Any,
    ) -> None:
        self._sweep = sweep
        self._jobs = jobs
        self._pool = pool
        self._stop = stop
        self._asked = asked
        self._view = view
        self._waiting = list(reversed(groups))
        self._running: dict[Any, list[RunSpec]] = {}
        self.outcomes: list[Outcome] = []

    def until_done(self) -> None:
        while self._waiting or self._running:
            if self._asked():
                self._stop.value = True
                self._waiting.clear()
            # One job for each worker and none in advance, so that those not started can still be held back.
            while self._waiting and len(self._running) < self._jobs:
                specs = self._waiting.pop()
                self._running[self._pool.schedule(_work, args=(specs, self._sweep.study))] = specs
            for future in wait(self._running, POLL_SECONDS, FIRST_COMPLETED).done:
                self._collect(self._running.pop(future), future)
            names = [s.name for specs in self._running.values() for s in specs]
            self._view.update({name: self._sweep.study.run_folder(name).read_progress() for name in names})

    def _collect(self, specs: list[RunSpec], future: Any) -> None:
        try:
            outcomes = future.result()
        except ProcessExpired as error:
            outcomes = [self._dead_worker(spec, error) for spec in specs]
        for outcome in outcomes:
            self.outcomes.append(outcome)
            self._view.finished(outcome)
            if self._sweep.fail_fast and outcome.status in (Status.FAILED, Status.OOM):
                self._waiting.clear()

    def _dead_worker(self, spec: RunSpec, error: ProcessExpired) -> Outcome:
        """The process is gone (killed, or out of memory); its run keeps its checkpoint and can be resumed."""
        message = f"its worker process died (exit code {error.exitcode}); the same command resumes it"
        folder = self._sweep.study.run_folder(spec.name)
        try:
            if folder.acquire(timeout=1):  # else another command has taken it over already
                try:
                    if (ended := _mark_dead(folder, message)) is not None:
                        return Outcome(spec.name, ended, False, "", 0.0)  # a replica that ended before the others
                finally:
                    folder.release()
        except (OSError, UserError) as second:
            message = f"{message} (and its status could not be written: {second})"
        return Outcome(spec.name, Status.FAILED, False, message, 0.0)
