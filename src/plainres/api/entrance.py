"""What ``python -m run -m`` does before its sweep, for a call from Python: Hydra composes, our sweeper takes over.

Nothing of Hydra stays behind: a notebook, or an application that uses Hydra itself, finds it as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.plainres import PlainresSweeper
from plainres.config import conf_dir, explain, register, to_conf
from plainres.errors import UserError
from plainres.job import Outcome
from plainres.launch.single import run_single
from plainres.launch.sweep import Sweep

RunGrid = Callable[[list[str]], tuple[Sweep, list[Outcome]]]
# Hydra's "disabled", which the command line has, silences every logger of the process; "none" touches none.
_NO_LOGGING = ["hydra/job_logging=none", "hydra/hydra_logging=none"]


def sweep(overrides: Sequence[str]) -> tuple[Sweep, list[Outcome]]:
    """Check and run every job of these overrides, and write the report.

    Returns:
        The checked jobs, and what became of those that were started.

    Raises:
        UserError: an override, a value or a job that is not allowed; nothing has been trained.
        SystemExit: as ``Sweep.run``.
    """
    register()
    try:
        with initialize_config_dir(conf_dir(), job_name="run", version_base="1.3"), _config_kept():
            run_grid, arguments = _grid([*_NO_LOGGING, *overrides])
            return run_grid(arguments)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error)) from error


def _grid(overrides: list[str]) -> tuple[RunGrid, list[str]]:
    """Our sweeper's ``run_grid``, and the settings that it takes."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    config = hydra.compose_config("config", overrides, RunMode.MULTIRUN)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    sweeper = Plugins.instance().instantiate_sweeper(hydra_context=context, task_function=_job, config=config)
    # By its name: Hydra executes its plugins' modules itself, so that the class is another object than an import's.
    run_grid: RunGrid | None = getattr(sweeper, PlainresSweeper.run_grid.__name__, None)
    if run_grid is None:
        raise UserError("hydra/sweeper: plainres.run has a sweeper of its own; leave this override out")
    return run_grid, list(config.hydra.overrides.task)


@contextmanager
def _config_kept() -> Iterator[None]:
    """HydraConfig holds the settings of the last job that Hydra's own launchers ran."""
    holder = HydraConfig.instance()
    before = holder.cfg
    try:
        yield
    finally:
        holder.cfg = before


def _job(cfg: DictConfig) -> str:
    """One job of one of Hydra's own launchers, such as ``hydra/launcher=basic``. Returns its status."""
    return str(run_single(to_conf(cfg)).status)
