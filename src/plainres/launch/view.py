"""What the user sees while a sweep runs: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plainres.job import Outcome
from plainres.launch.watch import Watch
from plainres.pair import RunSpec
from plainres.store import FINISHED

if TYPE_CHECKING:
    from plainres.launch.sweep import Sweep


MOST_LINES = 8  # of warnings below the live table


class View(Protocol):
    """Hears of a sweep's progress."""

    def update(self, progress: dict[str, dict[str, Any]]) -> None:
        """Where each running job stands: step, steps, loss, train_error."""

    def finished(self, outcome: Outcome) -> None:
        """A job has ended."""


class Tally:
    """Counts, and the time that is left: by work done, where a job's work is depth × steps."""

    def __init__(self, specs: list[RunSpec]) -> None:
        self.work = {s.name: float(s.conf.depth * s.conf.trainer.steps) for s in specs}
        self._all = sum(self.work.values())
        self.counts = {"complete": 0, "diverged": 0, "skipped": 0, "failed": 0}
        self._done = 0.0
        self._began = time.monotonic()
        self.total = len(specs)

    def add(self, outcome: Outcome) -> None:
        work = self.work.pop(outcome.name, 0.0)
        if outcome.skipped:
            self.counts["skipped"] += 1
            return
        self._done += work
        kind = outcome.status.value if outcome.status in FINISHED else "failed"
        self.counts[kind] += 1

    @property
    def ended(self) -> int:
        return sum(self.counts.values())

    def line(self, running: int) -> str:
        counts = [f"{n} {kind}" for kind, n in self.counts.items() if n]
        of = f"{self.ended}/{self.total} run{'s' if self.total > 1 else ''}"
        return f"{of} done ({', '.join(counts) or 'none yet'}), {running} running"

    def remaining(self, progress: dict[str, dict[str, Any]]) -> str:
        """Estimated time left for the whole sweep."""
        share = {name: p.get("step", 0) / max(p.get("steps", 1), 1) for name, p in progress.items()}
        partial = sum(self.work.get(name, 0.0) * part for name, part in share.items())
        done = self._done + partial
        elapsed = time.monotonic() - self._began
        if done < 0.02 * self._all:  # the first steps are slow, and say nothing of the rest
            return "--:--"
        left = (sum(self.work.values()) - partial) * elapsed / done
        return f"{int(left // 60)}:{int(left % 60):02d}"


class LiveView:
    """A table that is redrawn in place."""

    def __init__(self, live: Live, tally: Tally, watch: Watch) -> None:
        self._live = live
        self._tally = tally
        self._watch = watch
        self._drawn = 0.0

    def update(self, progress: dict[str, dict[str, Any]]) -> None:
        if time.monotonic() - self._drawn < 0.25:
            return
        self._drawn = time.monotonic()
        table = Table(box=None, pad_edge=False)
        table.add_column("run")
        for name in ("step", "loss", "train error"):
            table.add_column(name, justify="right")
        for name, p in progress.items():
            table.add_row(name.rpartition("-")[0], *progress_cells(p))
        bar = ProgressBar(total=self._tally.total, completed=self._tally.ended, width=40)
        eta = f"  about {self._tally.remaining(progress)} left"
        warned = [w.line for w in self._watch.look(progress)]
        more = [f"and {len(warned) - MOST_LINES} more"] if len(warned) > MOST_LINES else []
        below = Text("\n".join(["", *warned[:MOST_LINES], *more]), style="yellow")
        self._live.update(Group(Text(self._tally.line(len(progress)) + eta), bar, Text(), table, below))

    def finished(self, outcome: Outcome) -> None:
        self._tally.add(outcome)
        if outcome.message:
            self._live.console.print(Text(f"{outcome.name}: {outcome.status.value}: {outcome.message}"))


class PlainView:
    """One line a finished job, each warning once, and a sign of life at least every half minute."""

    def __init__(self, console: Console, tally: Tally, watch: Watch) -> None:
        self._console = console
        self._tally = tally
        self._watch = watch
        self._said: set[tuple[str, str]] = set()
        self._spoke = time.monotonic()

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)
        self._spoke = time.monotonic()

    def update(self, progress: dict[str, dict[str, Any]]) -> None:
        for warned in self._watch.look(progress):
            if (warned.run, warned.rule) not in self._said:
                self._said.add((warned.run, warned.rule))
                self._say(f"warning: {warned.line}")
        if time.monotonic() - self._spoke > 30:
            running = [f"{name.rpartition('-')[0]} at step {progress_cells(p)[0]}" for name, p in progress.items()]
            left = self._tally.remaining(progress)
            self._say(f"{self._tally.line(len(progress))}: {', '.join(running)}; about {left} left")

    def finished(self, outcome: Outcome) -> None:
        self._tally.add(outcome)
        how = "skipped (ended before)" if outcome.skipped and not outcome.message else outcome.status.value
        took = "" if outcome.skipped else f" in {outcome.seconds:.1f} s"
        tail = f": {outcome.message}" if outcome.message else ""
        self._say(f"[{self._tally.ended}/{self._tally.total}] {outcome.name}: {how}{took}{tail}")


def progress_cells(progress: dict[str, Any]) -> tuple[str, str, str]:
    """step, loss and training error of a running job as text."""
    if not progress:
        return "starting", "", ""
    loss, error = progress.get("loss"), progress.get("train_error")
    return (
        f"{progress.get('step')}/{progress.get('steps')}",
        "" if loss is None else f"{loss:.4f}",
        "" if error is None else f"{100 * error:.2f} %",
    )


@contextmanager
def make_view(sweep: "Sweep", specs: list[RunSpec], jobs: int) -> Iterator[View]:
    """A live view on a terminal, plain lines elsewhere."""
    console = sweep.console
    tally, watch = Tally(specs), Watch(sweep.study, specs)
    console.print(Text(f"plainres: {jobs} job{'s' if jobs > 1 else ''} at a time"), soft_wrap=True)
    if not console.is_terminal:
        yield PlainView(console, tally, watch)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield LiveView(live, tally, watch)
