"""One run from its folder's point of view: skip, resume or start; train; leave a status that tells the truth.

``execute`` never raises for what happens inside a run: a run that diverges is a result, one that fails leaves
its traceback in its folder, and neither takes the sweep down.
"""

import errno
import os
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch

from plainres import checkpoint, environment, memory
from plainres.assembly import assemble
from plainres.audit import audit
from plainres.checkpoint import Position
from plainres.clock import now
from plainres.data import Dataset, load
from plainres.divergence import Divergence
from plainres.engine import engine_of
from plainres.errors import Interrupted, UserError
from plainres.models.own import with_code
from plainres.pair import RunSpec
from plainres.replicas import Seat, make_group
from plainres.rows import compact, drop_lines
from plainres.schema import plain_values
from plainres.seeding import set_determinism
from plainres.signature import forward_flops
from plainres.source import finished_source
from plainres.store import FINISHED, RunFolder, Status, Study, clear_partial
from plainres.tracking.client import Tracker


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        name: of the run's folder.
        status: how it ended; ``running`` when another process holds it.
        skipped: nothing was trained, because the run had ended before or is held elsewhere.
        message: one line for the end report, empty when all went well.
        seconds: wall seconds of this job.
    """

    name: str
    status: Status
    skipped: bool
    message: str
    seconds: float


def execute(spec: RunSpec, study: Study, should_stop: Callable[[], bool], seat: Seat | None = None) -> Outcome:
    """Bring one run to its end, whatever state it is in.

    Args:
        spec: the validated run.
        study: the folder it belongs to.
        should_stop: asked at every step; once true, the run checkpoints and ends as ``interrupted``.
        seat: of a replica that trains with others; without one, it is a group of its own.
    """
    if seat is None and spec.conf.trainer.replicas > 1:
        seat = Seat(make_group(spec), Tracker(spec.conf.tracker, study.run_folder(spec.name).path))
    with seat or nullcontext():
        return _execute(spec, study, should_stop, seat)


def _execute(spec: RunSpec, study: Study, should_stop: Callable[[], bool], seat: Seat | None) -> Outcome:
    began = time.perf_counter()
    folder = study.run_folder(spec.name)
    try:
        held = folder.acquire(timeout=1)  # someone who only looks whether it is held lets go at once
    except OSError as error:
        message = f"{folder.path}: cannot be written ({error.strerror}); make room, or the folder writable"
        return Outcome(spec.name, Status.FAILED, False, message, 0.0)
    if not held:
        return Outcome(spec.name, Status.RUNNING, True, "another process is training this run", 0.0)
    try:
        if (ended := _ended(folder)) is not None:
            with suppress(OSError):  # they do no harm
                drop_lines(folder)
            return Outcome(spec.name, ended, True, "", 0.0)
        status, message = _attempt(spec, study, folder, should_stop, seat)
    finally:
        with suppress(OSError):
            folder.clear_progress()
        folder.release()
    return Outcome(spec.name, status, False, message, time.perf_counter() - began)


def _ended(folder: RunFolder) -> Status | None:
    """The status of a run that has ended; None for any other, also for one whose record cannot be read."""
    try:
        status = Status(folder.read()["status"])
    except (KeyError, ValueError):  # what is wrong with it is said, and recorded, by the attempt
        return None
    return status if status in FINISHED else None


def _attempt(
    spec: RunSpec, study: Study, folder: RunFolder, should_stop: Callable[[], bool], seat: Seat | None
) -> tuple[Status, str]:
    """Train, and turn whatever happens into a status, a message and a run.json."""
    began = time.perf_counter()
    tracker = Tracker(spec.conf.tracker, folder.path) if seat is None else seat.tracker
    stopped = None
    try:
        return _train(spec, study, folder, should_stop, tracker, seat), ""
    except Interrupted as stop:
        status, details, stopped = Status.INTERRUPTED, None, stop.step
        message = "the same command goes on from its checkpoint"
    except Exception as error:
        status, message = _explain(error, spec, folder)
        details = {"kind": type(error).__name__, "message": message}
        told = isinstance(error, UserError) or _is_full(error)
        trace = None if told else "".join(traceback.format_exception(error))
    try:
        if details and trace:
            folder.traceback.write_text(trace)
        seconds = {"total": folder.read().get("seconds", {}).get("total", 0.0) + time.perf_counter() - began}
        folder.update(status=status, error=details, stopped_at_step=stopped, finished=now(), seconds=seconds)
    except (OSError, UserError) as second:  # as far as the disk allows; the message reaches the end report anyway
        message = f"{message} (and its status could not be written: {second})"
    tracker.end()
    return status, message


def _explain(error: Exception, spec: RunSpec, folder: RunFolder) -> tuple[Status, str]:
    if isinstance(error, UserError):
        return Status.FAILED, str(error)
    if out_of_memory(error):
        return Status.OOM, (
            f"out of memory at trainer.batch={spec.conf.trainer.batch}; lower it or the width, or raise "
            "trainer.accumulate or trainer.checkpoint_blocks (docs/speed.md)"
        )
    if _is_full(error):
        why = os.strerror(error.errno)  # type: ignore[attr-defined]  # of an OSError
        return Status.FAILED, f"{why}: {folder.path}; make room: the same command goes on from the last checkpoint"
    first = (str(error).splitlines() or [""])[0]  # a compiler's words fill pages; the traceback has them
    return Status.FAILED, f"{type(error).__name__}: {first}; traceback in {folder.traceback}"


def _is_full(error: Exception) -> bool:
    """Whether the disk, or the user's share of it, has no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def out_of_memory(error: Exception) -> bool:
    """Whether Python, the GPU or the CPU had too little; for the last, torch has no exception of its own."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _train(
    spec: RunSpec,
    study: Study,
    folder: RunFolder,
    should_stop: Callable[[], bool],
    tracker: Tracker,
    seat: Seat | None,
) -> Status:
    conf, device = spec.conf, spec.device
    began = time.perf_counter()
    set_determinism(conf.trainer.threads, conf.trainer.deterministic, conf.trainer.device, conf.trainer.precision)
    memory.keep_freed()
    no_peak = memory.reset_peak(device)
    data = load(conf.data)
    if with_code(conf) != conf:
        raise UserError("the file of your branch or shortcut has changed since this run was checked; start again")
    found = environment.describe(device, conf.trainer.threads, conf.trainer.precision, engine_of(spec).words)
    record = _begin(spec, study, folder, data)
    _check_mates(spec, study, folder, found)
    source, waited = _source(spec, study, folder, should_stop)
    began += waited
    with ExitStack() as ending:
        if device.startswith("cuda"):  # streams, events and graphs are the current device's
            ending.enter_context(torch.cuda.device(device))
        training = assemble(
            spec, folder, data, environment.place(found), tracker.on_checkpoint, should_stop, source, seat
        )
        ending.callback(training.parts.writer.close)
        probe = training.parts.probe
        num_parameters = training.parts.flat.data.numel()
        folder.update(
            environment=found,
            layout=probe.layout,
            response_labels=probe.response_labels,
            num_parameters=num_parameters,
            forward_flops=forward_flops(conf, data),
        )
        tracker.start()
        diverged = training.run()
        seconds = training.finish(complete=diverged is None)
        compacting = time.perf_counter()
        compact(folder, probe.layout)
        seconds["store"] += time.perf_counter() - compacting
        seconds["total"] = time.perf_counter() - began + record["seconds"].get("total", 0.0)
        changes = _result(training.position, diverged) | {
            "seconds": seconds,
            "peak_memory_mib": None if no_peak else memory.peak_mib(device),
            "peak_memory_reason": no_peak,
            "finished": now(),
        }
        final = folder.update(**changes)
        drop_lines(folder)
    tracker.end()
    return Status(final["status"])


def _source(
    spec: RunSpec, study: Study, folder: RunFolder, should_stop: Callable[[], bool]
) -> tuple[RunFolder | None, float]:
    """The finished run that this one starts from, and the seconds it took; None where a checkpoint holds everything."""
    if spec.conf.start.depth is None or checkpoint.read(folder.checkpoint) is not None:
        return None, 0.0
    began = time.perf_counter()
    return finished_source(spec, study, should_stop, execute), time.perf_counter() - began


def _begin(spec: RunSpec, study: Study, folder: RunFolder, data: Dataset) -> dict[str, Any]:
    """Write the record of a run that starts or goes on, and refuse one whose audit is not clean."""
    before = folder.read() if folder.exists() else {}
    record = planned_record(spec, study) | {
        "status": Status.RUNNING,
        "audit": audit(spec.conf, data),
        "data": data.describe(),
        "environment": before.get("environment"),  # of the rows that are there, until it may go on here
        "seconds": before.get("seconds", {}),
        "environment_history": before.get("environment_history", []),
        "attempts": before.get("attempts", 0) + 1,
        "construction": before.get("construction"),
        "created": before.get("created", now()),
        "started": now(),
        "final": None,
        "last_finite": None,
        "diverged": None,
        "error": None,
    }
    clear_partial(folder.path)
    folder.write(record)
    folder.traceback.unlink(missing_ok=True)
    if not record["audit"]["clean"]:
        differences = "; ".join(record["audit"]["undeclared"])
        raise UserError(f"the pair is not matched: {differences}; declare it in the connection, or remove it")
    return record


def planned_record(spec: RunSpec, study: Study) -> dict[str, Any]:
    """What is known of a run before it starts."""
    return {
        "run_id": spec.run_id,
        "pair_id": spec.pair_id,
        "name": spec.name,
        "study": study.name,
        "status": Status.PLANNED,
        "config": plain_values(spec.conf),
        "identity": spec.identity,
    }


def _check_mates(spec: RunSpec, study: Study, folder: RunFolder, found: dict[str, Any]) -> None:
    """Refuse to pair arms that were trained by different code, versions or hardware, unless asked to."""
    if spec.conf.trainer.allow_mixed_environment:
        return
    here = environment.place(found)
    for other in study.runs():
        if other.name == spec.name or not other.exists():
            continue
        try:
            record = other.read()
        except UserError:  # it says so in the report; it must not take others down
            continue
        if record.get("pair_id") != spec.pair_id or not record.get("environment"):
            continue
        if differing := environment.differences(here, environment.place(record["environment"])):
            raise UserError(
                f"the pair is not matched: {other.name} was trained elsewhere ({'; '.join(differing)}); "
                "begin a new study=NAME, delete that run, or accept it with trainer.allow_mixed_environment=true"
            )


def _result(position: Position, diverged: Divergence | None) -> dict[str, Any]:
    """The entries of run.json that say how training ended."""
    last = position.last_eval
    if diverged is None:
        return {"status": Status.COMPLETE, "final": last, "last_finite": last}
    return {"status": Status.DIVERGED, "final": None, "last_finite": last, "diverged": asdict(diverged)}
