"""What a sink is: a class of two methods, built when a run starts. No torch, and wandb only where it is asked for."""

import inspect
import os
from pathlib import Path
from typing import Any, Protocol, cast

from plainres.errors import require
from plainres.options import TrackerMode, TrackerName
from plainres.own_class import import_named
from plainres.schema import TrackerConf

DISABLED = "disabled"
MODES = ("online", "offline", DISABLED)
METHODS = ("write", "finish")
PENDING = "not all of this run has arrived there yet\n"  # in the mark of a sink that is at work
Row = dict[str, Any]


class Sink(Protocol):
    """Listens to one attempt at a run. Built as ``Class(record, folder)``: run.json, as it stands then, and the folder.

    Calls come one after the other, in a process that trains nothing. After a resume the rows begin at step 0 again, so
    that a sink that was killed with its run has lost none.
    """

    def write(self, steps: list[Row], layers: list[Row]) -> None:
        """Further lines of steps.jsonl and layers.jsonl (formats: ``plainres.store``), each once and in order.

        Both end before the same step, so every step is whole. They will not be redone.
        """

    def finish(self, record: dict[str, Any]) -> None:
        """The attempt has ended; ``record`` is its run.json, with status and final values. Called last."""


def asked_mode(wanted: TrackerMode) -> str | None:
    """``online``, ``offline``, ``disabled`` (only by WANDB_MODE), or None where nobody has said so."""
    return (os.environ.get("WANDB_MODE") or None) if wanted is TrackerMode.auto else str(wanted)


def sink_names(conf: TrackerConf) -> list[str]:
    """The sinks that a run asks for; W&B is none of them where WANDB_MODE=disabled switches it off."""
    ours = conf.name is not TrackerName.none and asked_mode(conf.mode) != DISABLED
    return [*([str(conf.name)] if ours else []), *conf.own]


def sink_class(name: str) -> type[Any]:
    """The class of a sink by its name in the settings.

    Raises:
        UserError: a class of the user's cannot be imported, or lacks one of the two methods.
    """
    if name == TrackerName.wandb:
        from plainres.tracking.wandb_sink import WandbSink

        return WandbSink
    kind = import_named("tracker.own", name)
    good = inspect.isclass(kind) and all(callable(getattr(kind, method, None)) for method in METHODS)
    require(good, "tracker.own", name, f"a class with the methods {' and '.join(METHODS)}", "see docs/tracking.md")
    return cast(type[Any], kind)


def check_tracker(conf: TrackerConf) -> None:
    """Refuse, before anything is trained, what no sink could be made of.

    Raises:
        UserError: as ``sink_class``; or WANDB_MODE has a value that we do not know.
    """
    if conf.name is TrackerName.wandb:
        mode = asked_mode(conf.mode)
        require(mode in (None, *MODES), "WANDB_MODE", mode, f"{', '.join(MODES[:-1])} or {DISABLED}, or not set")
    for name in conf.own:
        sink_class(name)


def mark_path(folder: Path, name: str) -> Path:
    """The file in a run's folder that says that a sink has not, or not yet, taken down all of the run."""
    return folder / f"untracked-{name.replace(':', '-')}.txt"
