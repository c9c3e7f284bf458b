"""A run's trained network, from its folder."""

from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import torch

from plainres import checkpoint
from plainres.data import Dataset, load
from plainres.errors import UserError
from plainres.evaluate import evaluate
from plainres.flat import FlatParameters
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.networks import Network
from plainres.models.own import with_code
from plainres.models.rules import rules_of, undecayed
from plainres.options import shortcut_of
from plainres.precision import computing
from plainres.schema import RunConf
from plainres.seeding import set_determinism
from plainres.store import RunFolder, Status, Study
from plainres.validation import validate

TOLERANCE = 0.002  # of an error (a fraction): what other hardware may move
C = TypeVar("C")


@dataclass(frozen=True)
class Trained:
    """A complete run with its final weights.

    Attributes:
        study, folder: where it is.
        conf: its settings.
        network: with the final weights, in evaluation mode.
        data: what it was trained on, on the network's device.
        intact: its errors and losses, evaluated again.
        recorded: the training error (a fraction) that its record has.
    """

    study: Study
    folder: RunFolder
    conf: RunConf
    network: Network
    data: Dataset
    intact: dict[str, float]
    recorded: float


def load_trained(path: str | Path) -> Trained:
    """Build a run's network again, with its final weights, and check that it is the one the record speaks of.

    Runs on the kind of device that it was trained on, if there is one, with its number of threads: then the training
    error is equal to the bit.

    Raises:
        UserError: no run, not complete, no final checkpoint, other data or code, or another training error.
    """
    folder, study = _run_at(path)
    record = _complete(folder)
    conf = _settings(folder, record)
    if with_code(conf) != conf:
        raise UserError(f"{folder.name}: the file of its branch or shortcut has changed since it was trained")
    device = "cuda" if conf.trainer.device == "cuda" and torch.cuda.is_available() else "cpu"
    set_determinism(conf.trainer.threads, conf.trainer.deterministic, device, conf.trainer.precision)
    data = load(conf.data)
    if data.sha256 != record["data"]["sha256"]:
        raise UserError(f"{folder.name}: its data are not those it was trained on (data.name={conf.data.name})")
    network = _with_final_weights(folder, conf, data, device)
    data = data.to(device, conf.data.residence)
    with computing(conf.trainer.precision, device):
        intact = evaluate(network, data)
    recorded = float(record["final"]["train_error"])
    if abs(intact["train_error"] - recorded) > TOLERANCE:
        raise UserError(
            f"{folder.name}: its checkpoint has a training error of {intact['train_error']:.2%} where its record says "
            f"{recorded:.2%}; the code has changed, or the checkpoint is another run's: train it again"
        )
    return Trained(study, folder, conf, network, data, intact, recorded)


def _run_at(path: str | Path) -> tuple[RunFolder, Study]:
    where = Path(path).expanduser().absolute()
    folder = RunFolder(where)
    if not folder.exists() or where.parent.name != "runs":
        raise UserError(f"{path}: no run (no run.json); give a run's folder, such as results/depth/runs/NAME")
    return folder, Study.open(where.parent.parent)


def _complete(folder: RunFolder) -> dict[str, Any]:
    record = folder.read()
    if (status := folder.status()) is not Status.COMPLETE:
        remedy = "there are no final weights" if status is Status.DIVERGED else "train it to its end"
        raise UserError(f"{folder.name}: is {status}, not complete; {remedy}")
    return record


def _settings(folder: RunFolder, record: dict[str, Any]) -> RunConf:
    """The settings that the record has, checked as those of a command line are."""
    try:
        conf: RunConf = restored(RunConf(), record["config"])
        model, connection = replace(conf.model, branch_code=None), replace(conf.connection, shortcut_code=None)
        data = replace(conf.data, content=None)
        validate(replace(conf, model=model, connection=connection, data=data))  # without what is measured from files
    except UserError as error:
        raise UserError(f"{folder.path / 'run.json'}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder.path / 'run.json'}: its settings cannot be read ({error}); train it again") from error
    return conf


def _with_final_weights(folder: RunFolder, conf: RunConf, data: Dataset, device: str) -> Network:
    content = checkpoint.read(folder.checkpoint)
    if content is None:
        raise UserError(f"{folder.checkpoint}: missing or unreadable; delete the run's folder and train it again")
    if content["position"]["step"] <= conf.trainer.steps:
        raise UserError(f"{folder.checkpoint}: not of the final weights; delete the run's folder and train it again")
    network = initial_network(conf, data, device)
    flat = FlatParameters(network, conf.optimizer.decay, undecayed(network), rules_of(conf).lr_factor)
    try:
        checkpoint.restore_weights(content, network, flat)
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{folder.checkpoint}: is of another network; the code has changed: train it again") from error
    network.begin_step(conf.seed, conf.trainer.steps)  # a rising α
    return network.eval()


def initial_network(conf: RunConf, data: Dataset, device: str) -> Network:
    """The network as it is before its first step, in evaluation mode.

    Raises:
        UserError: the depth, or the image size, cannot be built.
    """
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    Draws(network, conf.model, rules_of(conf), conf.seed).materialise(device)
    network.begin_step(conf.seed, 0)
    return network.eval()


def restored(default: C, values: dict[str, Any]) -> C:
    """A config dataclass from run.json's ``config``; a value or a group younger than the run has its default."""
    changes: dict[str, Any] = {}
    for item in fields(default):  # type: ignore[arg-type]  # C is one of schema's dataclasses
        now = getattr(default, item.name)
        value = values.get(item.name, {} if is_dataclass(now) else now)
        if is_dataclass(now):
            value = restored(now, value)
        elif item.name == "shortcut":
            value = shortcut_of(value)
        elif isinstance(now, StrEnum):
            value = type(now)(value)
        changes[item.name] = value
    return replace(default, **changes)  # type: ignore[type-var]  # as above
