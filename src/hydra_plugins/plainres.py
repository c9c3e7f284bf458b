"""Hydra's side of a sweep. Found by Hydra in every process, so it imports nothing heavy at the top."""

import copy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from plainres.job import Outcome
    from plainres.launch.sweep import Sweep


def _compose(context: HydraContext, config: DictConfig, jobs: Sequence[Sequence[str]]) -> list[Any]:
    """The checked settings of every job.

    Composing takes Hydra 0.1 s a job, and depths and seeds do not change which files are read: so only each choice of
    files is composed, and plain values are set in a copy of it.

    Raises:
        UserError: naming the first job setting that is not allowed.
    """
    from plainres.config import set_value, strip_hydra, to_conf

    loader = context.config_loader
    parsed = {text: OverridesParser.create().parse_override(text) for text in {t for job in jobs for t in job}}
    plain = {
        t for t, o in parsed.items() if o.type is OverrideType.CHANGE and not loader.get_group_options(o.key_or_group)
    }
    bases: dict[tuple[str, ...], DictConfig] = {}
    confs = []
    for job in jobs:
        files = tuple(text for text in job if text not in plain)
        if files not in bases:
            bases[files] = strip_hydra(loader.load_sweep_config(config, list(files)))
        composed = copy.deepcopy(bases[files])
        for text in job:
            if text in plain:
                set_value(composed, text, parsed[text].key_or_group, parsed[text].value())
        confs.append(to_conf(composed))
    return confs


class PlainresSweeper(BasicSweeper):
    """Hydra's grid, with every job checked before the first one starts, and a report after the last one."""

    def sweep(self, arguments: list[str]) -> Any:
        """For the command line: the shell learns from the exit code how it went."""
        from plainres.launch.sweep import exit_code

        _, outcomes = self.run_grid(arguments)
        if code := exit_code(outcomes):
            sys.exit(code)
        return outcomes

    def run_grid(self, arguments: list[str]) -> "tuple[Sweep, list[Outcome]]":
        """Check all jobs, run them, write the report.

        Raises:
            UserError: a job that is not allowed; nothing has been trained.
            SystemExit: as ``Sweep.run``.
        """
        from plainres.launch.sweep import Sweep

        assert self.hydra_context is not None and self.config is not None and self.launcher is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(overrides, None)
        print(f"plainres: checking {len(jobs)} jobs", flush=True)
        with self._backend(jobs) as run_jobs:
            sweep = Sweep.prepare(_compose(self.hydra_context, self.config, jobs))
            return sweep, sweep.run(run_jobs)

    def _backend(self, jobs: list[list[str]]) -> AbstractContextManager[Any]:
        """How the jobs are run: a function of the sweep."""
        if isinstance(self.launcher, PlainresLauncher):
            return self.launcher.pool()
        return nullcontext(lambda sweep: self._launch(jobs, sweep.fail_fast))

    def _launch(self, jobs: list[list[str]], fail_fast: bool) -> None:
        """Hand the jobs to one of Hydra's own launchers; each leaves its status in its folder."""
        assert self.launcher is not None
        size = 1 if fail_fast else len(jobs)
        for first in range(0, len(jobs), size):
            results = self.launcher.launch(jobs[first : first + size], initial_job_idx=first)
            if fail_fast and any(r.return_value in ("failed", "oom") for r in results):
                return


class PlainresLauncher(Launcher):
    """One-thread jobs in a pool of worker processes on this machine."""

    def __init__(self, jobs: int = 0) -> None:
        """
        Args:
            jobs: parallel jobs; 0 for as many as this machine bears.
        """
        self.jobs = jobs
        self._config: DictConfig | None = None
        self._context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config, self._context = config, hydra_context

    def pool(self) -> AbstractContextManager[Any]:
        """Worker processes, importing already while the jobs are still being checked."""
        from plainres.config import data_of
        from plainres.launch.pool import worker_pool

        assert self._config is not None
        trainer = self._config.trainer
        return worker_pool(self.jobs, max(1, trainer.threads), trainer.device, data_of(self._config))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """For another sweeper than ours: the same pool."""
        from plainres.launch.sweep import Sweep

        assert self._config is not None and self._context is not None
        with self.pool() as run_jobs:
            outcomes = Sweep.prepare(_compose(self._context, self._config, job_overrides)).run(run_jobs)
        return [
            JobReturn(working_dir=str(Path.cwd()), status=JobStatus.COMPLETED, _return_value=str(o.status))
            for o in outcomes
        ]
