"""Hydra's view of the settings: the typed schema in its store, a composed config back as plain dataclasses.

Only this module, run.py and the launcher know Hydra and OmegaConf.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from plainres.errors import UserError
from plainres.launch.settings import LocalConf, SlurmConf
from plainres.options import shortcut_of
from plainres.schema import DataConf, RunConf, flatten
from plainres.validation import validate


def register() -> None:
    """Put the schemas where the ``defaults`` of config.yaml and of the launchers find them."""
    node = OmegaConf.structured(RunConf)
    for settings in (node.model.branch_settings, node.connection.shortcut_settings):
        OmegaConf.set_struct(settings, False)  # any name: the user's class knows them
    store = ConfigStore.instance()
    store.store(name="schema", node=node)
    for name, launcher in {"local": LocalConf, "slurm": SlurmConf}.items():
        store.store(group="launcher_schema", name=name, node=launcher)


def conf_dir() -> str:
    """Absolute path of the configuration files: the packaged copy, or a checkout's conf/."""
    package = Path(__file__).parent
    packaged = package / "conf"
    return str(packaged if packaged.is_dir() else package.parents[1] / "conf")


def strip_hydra(cfg: DictConfig) -> DictConfig:
    """A composed config without Hydra's own part."""
    own = copy.copy(cfg)
    with read_write(own), open_dict(own):
        own.pop("hydra", None)
    return own


def set_value(cfg: DictConfig, override: str, key: str, value: Any) -> None:
    """Change one value in place, as the override ``key=value`` would.

    Raises:
        UserError: there is no such setting, or its type is another.
    """
    try:
        OmegaConf.update(cfg, key, value)
    except (ConfigKeyError, ConfigAttributeError) as error:
        raise UserError(_unknown_setting("", key)) from error
    except OmegaConfBaseException as error:
        raise UserError(_wrong_value(str(error), override)) from error


def compose(overrides: Sequence[str]) -> RunConf:
    """The checked settings of ``python -m run`` with these overrides.

    Raises:
        UserError: an override or a value that is not allowed.
    """
    register()
    try:
        with initialize_config_dir(conf_dir(), version_base="1.3"):
            cfg = hydra_compose("config", list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error)) from error
    return to_conf(cfg)


def data_of(cfg: DictConfig) -> DataConf:
    """The data settings of a config that is not checked yet; what is wrong with them is said by ``to_conf``."""
    try:
        return cast(DataConf, OmegaConf.to_object(cfg.data))
    except OmegaConfBaseException:
        return DataConf()


def to_conf(cfg: DictConfig) -> RunConf:
    """A composed config as checked dataclasses.

    Raises:
        UserError: a value that its field does not allow.
    """
    own = strip_hydra(cfg)
    _refuse_added_keys(own)
    try:
        conf = cast(RunConf, OmegaConf.to_object(own))
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    conf.connection.shortcut = shortcut_of(conf.connection.shortcut)
    validate(conf)
    return conf


def _refuse_added_keys(cfg: DictConfig) -> None:
    """``+key=value`` can add any key to a config; one that the schema lacks would be silently ignored."""
    given = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(given, dict)
    known = set(flatten(RunConf()))
    groups = {name.split(".")[0] for name in known if "." in name}
    for key, value in given.items():
        names = [f"{key}.{inner}" for inner in value] if key in groups and isinstance(value, dict) else [str(key)]
        for name in names:
            if name not in known:
                raise UserError(_unknown_setting("", name))


def explain(error: Exception) -> str:
    """One line for Hydra's and OmegaConf's errors of several: what was given, what is allowed, what to do."""
    text = "\n".join(str(e) for e in (error, error.__cause__) if e is not None)
    for pattern, sentence in _PATTERNS:
        if match := re.search(pattern, text):
            return sentence(text, *match.groups())
    lines = [line.strip() for line in text.splitlines() if line.strip() and "object_type" not in line]
    return "; ".join(dict.fromkeys(lines))


def _unknown_choice(text: str, group: str, given: str, listed: str) -> str:
    folder = ""
    if not group.startswith("hydra/"):  # connection=he2016/orginal: our own files may lie a folder deeper
        group, _, folder = group.partition("/")
    nested = [f"{p.parent.name}/{p.stem}" for p in sorted((Path(conf_dir()) / group).glob("*/*.yaml"))]
    asked = f"{folder}/{given}" if folder else given
    inside = [name for name in nested if name.startswith(f"{folder or given}/")]
    options = inside or [*listed.split(), *nested]
    close = get_close_matches(asked, options, 1)
    group = "+sweep" if group == "sweep" else group
    hint = f"; did you mean {group}={close[0]}?" if close else ""
    return f"{group}={asked}: must be one of {', '.join(options)}{hint}"


def _unknown_setting(text: str, key: str) -> str:
    if full := re.search(r"full_key: (\S+)", text):
        key = full.group(1)
    if key == "sweep":
        return "sweep: no such setting; a sweep is added with a plus: +sweep=NAME"
    groups = ["connection", "model", "data", "start", "optimizer", "schedule", "probe", "tracker"]
    launchers = [f"hydra.launcher.{item.name}" for conf in (LocalConf, SlurmConf) for item in fields(conf)]
    known = [*flatten(RunConf()), *groups, *launchers]
    last = key.rpartition(".")[2]
    close = [k for k in known if k.rpartition(".")[2] == last] or get_close_matches(key, known, 1)
    hint = f"did you mean {close[0]}=?" if close else "python -m run --cfg job lists all of them"
    return f"{key}: no such setting; {hint}"


def _wrong_value(text: str, override: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    problem = next((line for line in lines if line.startswith(("Value", "Invalid"))), "not allowed")
    if "is not a ListConfig" in text:
        key, _, value = override.partition("=")
        return f"{override}: must be a list; write {key}=[{value}]"
    return f"{override}: {problem}"


# Hydra's and OmegaConf's wordings, most specific first, with what a user should read instead.
_PATTERNS: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"(?m)Could not find '([^']+)/([^'/]+)'\s+Available options in '[^']+':\s*((?:\s+[^\s:]+$)+)", _unknown_choice),
    (r"Error parsing override '([^']*)'", lambda text, given: f"{given}: not of the form key=value"),
    (r"Ambiguous value for argument '([^']*)'", lambda text, given: f"{given}: several values make a sweep; add -m"),
    (r"An item is already at '([^']*)'", lambda text, key: f"+{key}: this setting exists; leave out the plus: {key}="),
    (r"Could not override '([^']+)'", _unknown_setting),
    (r"Key '([^']+)' (?:is not in struct|not in '\w+')", _unknown_setting),
    (r"Error merging override (\S+)", _wrong_value),
)
