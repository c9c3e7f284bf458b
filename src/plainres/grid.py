"""The jobs of a sweep, as checked settings. Like config.py, this knows Hydra."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from plainres.config import conf_dir, explain, register, set_value, strip_hydra, to_conf
from plainres.errors import UserError
from plainres.launch.settings import LocalConf, SlurmConf
from plainres.schema import RunConf


def compose_jobs(context: HydraContext, config: DictConfig, jobs: Sequence[Sequence[str]]) -> list[RunConf]:
    """The checked settings of every job.

    Composing takes Hydra 0.1 s a job, and depths and seeds do not change which files are read: so only each choice of
    files is composed, and plain values are set in a copy of it.

    Raises:
        UserError: naming the first job setting that is not allowed.
    """
    loader = context.config_loader
    parsed: dict[str, Any] = {
        text: OverridesParser.create().parse_override(text) for text in {t for job in jobs for t in job}
    }
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


@dataclass(frozen=True)
class Grid:
    """What a command line asks for.

    Attributes:
        confs: of the jobs, checked, in order.
        launcher: ours, which would run them; None for one of Hydra's own.
    """

    confs: list[RunConf]
    launcher: LocalConf | SlurmConf | None


def expand(overrides: Sequence[str]) -> Grid:
    """The jobs of ``python -m run`` with these overrides, a sweep's or the one, and how they would be run.

    Raises:
        UserError: an override or a value that is not allowed.
    """
    register()
    try:
        with initialize_config_dir(conf_dir(), version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            config = hydra.compose_config("config", list(overrides), RunMode.MULTIRUN)
            params = config.hydra.sweeper.params or {}
            given = [*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task]
            parsed = OverridesParser.create(config_loader=hydra.config_loader).parse_overrides(given)
            (jobs,) = BasicSweeper.split_arguments(parsed, None)
            confs = compose_jobs(HydraContext(hydra.config_loader, Callbacks()), config, jobs)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error)) from error
    launcher = OmegaConf.to_object(config.hydra.launcher)
    if not isinstance(launcher, LocalConf | SlurmConf):
        return Grid(confs, None)
    launcher.check()
    return Grid(confs, launcher)
