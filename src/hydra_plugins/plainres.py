"""Hydra's side of a sweep. Found by Hydra in every process, so it imports nothing heavy at the top."""

import os
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from plainres.job import Outcome
    from plainres.launch.sweep import Sweep
    from plainres.schema import RunConf


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
        from plainres.errors import UserError
        from plainres.grid import compose_jobs
        from plainres.launch.groups import refuse_groups
        from plainres.launch.sweep import Sweep

        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise UserError("torchrun: trains one run on several devices, and no sweep; leave out +sweep= and -m")
        assert self.hydra_context is not None and self.config is not None and self.launcher is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(overrides, None)
        print(f"plainres: checking {len(jobs)} job{'s' if len(jobs) > 1 else ''}", flush=True)
        ours = self.launcher if isinstance(self.launcher, OwnLauncher) else None
        with ours.backend() if ours else nullcontext(self._by_hydra(jobs)) as run_jobs:
            confs = compose_jobs(self.hydra_context, self.config, jobs)
            if not isinstance(ours, PlainresLauncher):
                refuse_groups(confs)
            sweep = ours.prepare(confs) if ours else Sweep.prepare(confs)
            return sweep, sweep.run(run_jobs)

    def _by_hydra(self, jobs: list[list[str]]) -> Any:
        """One of Hydra's own launchers as a function of the sweep."""
        return lambda sweep: self._launch(jobs, sweep.fail_fast)

    def _launch(self, jobs: list[list[str]], fail_fast: bool) -> None:
        """Hand the jobs to one of Hydra's own launchers; each leaves its status in its folder."""
        assert self.launcher is not None
        size = 1 if fail_fast else len(jobs)
        for first in range(0, len(jobs), size):
            results = self.launcher.launch(jobs[first : first + size], initial_job_idx=first)
            if fail_fast and any(r.return_value in ("failed", "oom") for r in results):
                return


class OwnLauncher(Launcher):
    """What our launchers share: they take a whole sweep, checked before its first job."""

    _config: DictConfig
    _context: HydraContext

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config, self._context = config, hydra_context

    @abstractmethod
    def backend(self) -> AbstractContextManager[Any]:
        """Within, a function that runs every job of a sweep."""

    def prepare(self, confs: "Sequence[RunConf]") -> "Sweep":
        """Check every job."""
        from plainres.launch.sweep import Sweep

        return Sweep.prepare(confs)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """For another sweeper than ours."""
        from plainres.grid import compose_jobs

        with self.backend() as run_jobs:
            outcomes = self.prepare(compose_jobs(self._context, self._config, job_overrides)).run(run_jobs)
        return [
            JobReturn(working_dir=str(Path.cwd()), status=JobStatus.COMPLETED, _return_value=str(o.status))
            for o in outcomes
        ]


class PlainresLauncher(OwnLauncher):
    """One-thread jobs in a pool of worker processes on this machine."""

    def __init__(self, **settings: Any) -> None:
        """
        Args:
            settings: of ``LocalConf``.
        """
        from plainres.launch.settings import LocalConf

        self.settings = LocalConf(**settings)

    def backend(self) -> AbstractContextManager[Any]:
        """Worker processes, importing already while the jobs are still being checked."""
        from plainres.config import data_of
        from plainres.launch.pool import worker_pool

        self.settings.check()
        trainer = self._config.trainer
        return worker_pool(self.settings, max(1, trainer.threads), trainer.device, data_of(self._config))


class SlurmLauncher(OwnLauncher):
    """One array job of a SLURM cluster."""

    def __init__(self, **settings: Any) -> None:
        """
        Args:
            settings: of ``SlurmConf``.
        """
        from plainres.launch.settings import SlurmConf

        self.settings = SlurmConf(**settings)

    def backend(self) -> AbstractContextManager[Any]:
        """Submits, and waits if it is asked to; that there is a cluster is checked at once."""
        from plainres.launch.slurm import check_slurm, run_on_slurm

        check_slurm(self.settings)
        return nullcontext(lambda sweep: run_on_slurm(sweep, self.settings))

    def prepare(self, confs: "Sequence[RunConf]") -> "Sweep":
        """Check every job for the device that its node will have."""
        from plainres.launch.sweep import Sweep

        return Sweep.prepare(confs, self.settings.device)
