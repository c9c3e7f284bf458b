"""Hydra's view of the settings: the typed schema in its store, a composed config back as plain dataclasses.

Only this module, run.py and the launcher know Hydra and OmegaConf.
"""

import copy
import re
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from plainres.errors import UserError
from plainres.schema import RunConf, flatten, validate


def register() -> None:
    """Put the schema where config.yaml's ``defaults`` finds it."""
    ConfigStore.instance().store(name="schema", node=RunConf)


def conf_dir() -> str:
    """Absolute path of the configuration files: the packaged copy, or a checkout's conf/."""
    package = Path(__file__).parent
    packaged = package / "conf"
    return str(packaged if packaged.is_dir() else package.parents[1] / "conf")


def to_conf(cfg: DictConfig) -> RunConf:
    """A composed config as checked dataclasses, without Hydra's own part.

    Raises:
        UserError: a value that its field does not allow.
    """
    own = copy.copy(cfg)
    with read_write(own), open_dict(own):
        own.pop("hydra", None)
    try:
        conf = cast(RunConf, OmegaConf.to_object(own))
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    validate(conf)
    return conf


def explain(error: Exception) -> str:
    """One line for Hydra's and OmegaConf's errors of several: what was given, what is allowed, what to do."""
    text = "\n".join(str(e) for e in (error, error.__cause__) if e is not None)
    if match := re.search(r"Could not find '([^']+)/([^'/]+)'\s+Available options in '[^']+':\s*((?:\s+\S+)+)", text):
        group, given, options = match.group(1), match.group(2), match.group(3).split()
        close = get_close_matches(given, options, 1)
        hint = f"; did you mean {group}={close[0]}?" if close else ""
        return f"{group}={given}: must be one of {', '.join(options)}{hint}"
    if match := re.search(r"Could not override '([^']+)'", text) or re.search(r"Key '([^']+)' is not in struct", text):
        return _unknown(match.group(1))
    if match := re.search(r"Key '([^']+)' not in '(\w+)'", text):
        full = re.search(r"full_key: (\S+)", text)
        return _unknown(full.group(1) if full else match.group(1))
    if match := re.search(r"(?:Error merging override|override) (\S+)", text):
        problem = next((line for line in text.splitlines() if "Value" in line or "Invalid" in line), "not allowed")
        return f"{match.group(1)}: {problem.strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and "object_type" not in line]
    return "; ".join(dict.fromkeys(lines))


def _unknown(key: str) -> str:
    known = [*flatten(RunConf()), "connection", "model", "data", "optimizer", "schedule", "probe", "tracker", "+sweep"]
    close = get_close_matches(key, known, 1) or [k for k in known if k.endswith(f".{key}")][:1]
    hint = f"did you mean {close[0]}=?" if close else "python -m run --cfg job lists all of them"
    if key == "sweep":
        hint = "a sweep is added with a plus: +sweep=NAME"
    return f"{key}: no such setting; {hint}"
