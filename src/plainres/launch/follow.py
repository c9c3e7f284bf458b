"""The submitting command while a cluster works: what it knows of the runs, it knows from their folders."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from plainres.errors import UserError
from plainres.job import Outcome
from plainres.launch.queue import cancel_waiting, queued_tasks
from plainres.launch.stopping import StopRequest, stop_on_signals
from plainres.launch.view import View, make_view
from plainres.store import FINISHED, RunFolder, Status, Study

if TYPE_CHECKING:
    from plainres.launch.sweep import Sweep

POLL_SECONDS = 1.0  # between two looks at the run folders
QUEUE_SECONDS = 20.0  # between two questions to the scheduler
GONE_AFTER = 2  # looks without the task in the queue: a network file system may show a run's end late
BAD = (Status.FAILED, Status.OOM)

Queued = Callable[[Iterable[str]], set[str] | None]


@dataclass(frozen=True)
class Task:
    """A run in the queue.

    Attributes:
        id: ``job_index`` of the array task, the job alone where there is one run.
        attempts: at the run before this task; a status counts once there are more.
    """

    id: str
    attempts: int

    @property
    def job(self) -> str:
        return self.id.partition("_")[0]


def log_of(study: Study, task: Task) -> Path:
    """What the task printed on stderr."""
    return study.path / "slurm" / f"{task.id}_0_log.err"


def follow(sweep: "Sweep", tasks: dict[str, Task], at_a_time: int, queued: Queued = queued_tasks) -> list[Outcome]:
    """Show the runs until each has ended or its task has left the queue.

    Args:
        sweep: all runs, those that had ended before among them.
        tasks: the runs in the queue.
        at_a_time: tasks that may run at the same time, for the first line.
        queued: which tasks of some jobs wait or run.

    Raises:
        KeyboardInterrupt: the user does not want to wait; the tasks go on.
    """
    shown = [s for s in sweep.specs if s.name in tasks]
    with stop_on_signals() as asked, make_view(sweep, shown or sweep.specs, min(at_a_time, len(tasks) or 1)) as view:
        following = _Following(sweep, tasks, queued, view)
        following.until_done(asked)
    if asked():
        jobs = " ".join(sorted({t.job for t in tasks.values()}))
        text = (
            f"plainres: no longer waiting; the runs go on: scancel {jobs} ends them, plainres status {sweep.study.path}"
        )
        sweep.console.print(Text(f"{text} shows them"), soft_wrap=True)
        raise KeyboardInterrupt
    return following.outcomes


class _Following:
    """Looks at folders and queue, and collects what becomes of the runs."""

    def __init__(self, sweep: "Sweep", tasks: dict[str, Task], queued: Queued, view: View) -> None:
        self._study: Study = sweep.study
        self._fail_fast = sweep.fail_fast
        self._queued = queued
        self._view = view
        self._open = dict(tasks)
        self._missing = dict.fromkeys(tasks, 0)
        self._asked_queue = time.monotonic()
        self._held_back = False
        self.outcomes: list[Outcome] = []
        for spec in sweep.specs:
            if spec.name not in tasks:
                self._end(_without_task(self._study.run_folder(spec.name)))

    def until_done(self, asked: StopRequest) -> None:
        while self._open and not asked():
            self._look_at_queue()
            running = {}
            for name, task in list(self._open.items()):
                folder = self._study.run_folder(name)
                if (outcome := self._outcome(folder, task)) is not None:
                    del self._open[name]
                    self._end(outcome)
                elif progress := folder.read_progress():
                    running[name] = progress
            self._view.update(running)
            if self._open:
                time.sleep(POLL_SECONDS)

    def _look_at_queue(self) -> None:
        if time.monotonic() - self._asked_queue < QUEUE_SECONDS:
            return
        self._asked_queue = time.monotonic()
        here = self._queued({t.job for t in self._open.values()})
        if here is not None:
            for name, task in self._open.items():
                self._missing[name] = 0 if task.id in here else self._missing[name] + 1

    def _outcome(self, folder: RunFolder, task: Task) -> Outcome | None:
        """What became of a run; None while its task waits or works."""
        gone = self._missing[folder.name] >= GONE_AFTER
        try:
            record = folder.read()
        except UserError as error:
            return Outcome(folder.name, Status.FAILED, False, str(error), 0.0) if gone else None
        status, began = Status(record["status"]), record.get("attempts", 0) > task.attempts
        seconds = record.get("seconds", {}).get("total", 0.0)
        if status in FINISHED:
            return Outcome(folder.name, status, False, "", seconds)
        if status in BAD and (began or gone):
            return Outcome(folder.name, status, False, record["error"]["message"], seconds)
        if not gone:
            return None
        message = f"its task {task.id} left the queue before the run had ended (cancelled, killed or out of memory)"
        where = f"{message}; {log_of(self._study, task)} may say why; the same command goes on"
        return Outcome(folder.name, folder.status(), False, where, seconds)

    def _end(self, outcome: Outcome) -> None:
        if self._held_back and outcome.status is Status.PLANNED:
            return  # not begun, as asked for; the end report counts them
        self.outcomes.append(outcome)
        self._view.finished(outcome)
        if self._fail_fast and outcome.status in BAD and not self._held_back:
            self._held_back = True
            for job in {t.job for t in self._open.values()}:
                cancel_waiting(job)


def _without_task(folder: RunFolder) -> Outcome:
    status = folder.status()
    message = "another process is training this run" if status is Status.RUNNING else ""
    return Outcome(folder.name, status, True, message, 0.0)
