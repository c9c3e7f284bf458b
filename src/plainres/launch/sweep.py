"""A sweep from its first line to its end report."""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from plainres.engine import engine_notes
from plainres.errors import UserError
from plainres.job import Outcome
from plainres.launch.prepare import prepare, resolve_device, settings_line
from plainres.pair import RunSpec
from plainres.report.terminal import make_console
from plainres.schema import RunConf
from plainres.store import FINISHED, Study
from plainres.tracking.client import ReportTracker, await_sinks
from plainres.tracking.sink import sink_names

log = logging.getLogger("plainres")


@dataclass(frozen=True)
class Sweep:
    """Checked jobs of one study, ready to run.

    Attributes:
        study: the folder.
        specs: the jobs, in the order of the grid.
        fail_fast: after the first failed run, start no further ones.
        console: where the user reads.
    """

    study: Study
    specs: list[RunSpec]
    fail_fast: bool
    console: Console

    @classmethod
    def prepare(cls, confs: Sequence[RunConf], device_of: Callable[[str], str] = resolve_device) -> "Sweep":
        """Check every job.

        Args:
            confs: of the jobs.
            device_of: where a run trains, from its ``trainer.device``.

        Raises:
            UserError: the first job that cannot be run; nothing has been trained.
        """
        console = make_console()
        study, specs = prepare(confs, device_of)
        count = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
        what = ": ".join(filter(None, (count, settings_line(confs))))
        console.print(Text(f"plainres: {what} -> {study.path}"), soft_wrap=True)
        for note in engine_notes(specs):
            console.print(Text(f"plainres: {note}"), soft_wrap=True)
        return cls(study, specs, confs[0].fail_fast, console)

    def run(self, launch: "Callable[[Sweep], list[Outcome] | None]") -> list[Outcome]:
        """Run all jobs by ``launch``, then write the report and say how it went.

        Raises:
            SystemExit: 130 after one line when the user asked to stop, 1 when the report could not be written.
        """
        began = time.perf_counter()
        handler = logging.FileHandler(self.study.path / "sweep.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.info("start: %s", " ".join(sys.argv))
        try:
            reported = launch(self)
            outcomes = self._from_folders() if reported is None else reported
            for outcome in outcomes:
                log.info("%s: %s %s", outcome.name, outcome.status.value, outcome.message)
            reported_well = self._report(outcomes, began)
        except KeyboardInterrupt:
            say_interrupted(self.study, self.console)
            sys.exit(130)
        finally:
            log.removeHandler(handler)
            handler.close()
        if not reported_well:
            sys.exit(1)
        return outcomes

    def _from_folders(self) -> list[Outcome]:
        """Outcomes as the run folders tell them, for launchers that return nothing of ours."""
        found = []
        for spec in self.specs:
            folder = self.study.run_folder(spec.name)
            status, error = folder.status(), folder.read().get("error")
            found.append(Outcome(spec.name, status, False, error["message"] if error else "", 0.0))
        return found

    def _report(self, outcomes: list[Outcome], began: float) -> bool:
        """Report of the whole study, failures last, where they are seen; False when it could not be written."""
        from plainres.report.build import build_report
        from plainres.report.terminal import print_report

        took = time.perf_counter() - began
        reporter = ReportTracker(self.specs[0].conf.tracker, self.study.path)
        self.console.print(Text(f"plainres: runs ended after {took:.1f} s, writing the report"), soft_wrap=True)
        well = True
        try:
            print_report(build_report(self.study.path, self._say, processes=os.cpu_count() or 1), self.console)
            reporter.start()
        except UserError as error:
            well = False
            self._say(f"the report failed: {error}; the runs are safe")
        except Exception as error:  # the runs are safe, and their failures must still be listed
            well = False
            log.exception("the report failed")
            where = self.study.path / "sweep.log"
            self._say(f"the report failed ({type(error).__name__}: {error}); the runs are safe; traceback in {where}")
        self._look_further(outcomes)
        for outcome in outcomes:
            if outcome.message:
                self._say(f"{outcome.name}: {outcome.status.value}: {outcome.message}")
        if missing := len(self.specs) - len(outcomes):
            self._say(f"{missing} runs were not started (fail_fast=true)")
        return well

    def _look_further(self, outcomes: list[Outcome]) -> None:
        """Where runs can be looked at side by side, and which of them have not arrived at a sink."""
        tracked = [self.study.run_folder(o.name).path for o in outcomes if not o.skipped]
        names = sink_names(self.specs[0].conf.tracker)
        for line in await_sinks(self.study.path, [*tracked, self.study.path], names):
            self._say(line)
        page, offline = self.study.report_dir / "index.html", self.study.path / "wandb"
        if page.is_file():
            self._say(f"in a browser:     {page}")
        if offline.is_dir():
            self._say(f"in this terminal: wandb leet {offline}")

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 when every run is complete or diverged (a result); else 1."""
    return 0 if all(o.status in FINISHED for o in outcomes) else 1


def say_interrupted(study: Study, console: Console) -> None:
    """The one line after Ctrl-C."""
    statuses = [folder.status() for folder in study.runs() if folder.exists()]
    counts = {s: statuses.count(s) for s in dict.fromkeys(statuses)}
    text = ", ".join(f"{n} {s.value}" for s, n in counts.items())
    console.print(Text(f"plainres: interrupted ({text}); the same command goes on from here"), soft_wrap=True)
