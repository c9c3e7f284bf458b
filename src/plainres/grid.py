"""The jobs of a sweep, as checked settings. Like config.py, this knows Hydra."""

import copy
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.types import HydraContext
from omegaconf import DictConfig

from plainres.config import set_value, strip_hydra, to_conf
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
