"""Warnings about running jobs, each with its number: by the rules of diagnosis, from what a run has written so far.

They are read from the loss in progress.json and from the last row of layers.jsonl, which may be some steps behind.
The diagnosis in the report, which has all steps, takes their place when the sweep has ended.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plainres.analysis.diagnosis_rules import EARLY_SHARE, LEARNS_ABOVE, RULES, Gravity, Window, limit_of
from plainres.analysis.diagnosis_values import beyond, measure
from plainres.analysis.diagnosis_words import beside_limit, number_text
from plainres.analysis.inside import SLOW
from plainres.errors import UserError
from plainres.optim import learning_rate
from plainres.pair import RunSpec
from plainres.rows import read_last_line
from plainres.store import RunFolder, Study

LOOK_SECONDS = 3.0  # between two looks at a run's rows
PLATEAU_SHARE = 0.25  # of the budget that the loss has to be at chance level
WATCHED = [
    name
    for name, rule in RULES.items()
    if rule.profile and rule.profile.window is Window.LATER and rule.gravity is Gravity.WARNING
    if not rule.untrained_only
]


@dataclass(frozen=True)
class Warned:
    """One warning: which job, which rule, and the line to show."""

    run: str
    rule: str
    line: str


@dataclass
class _Job:
    """What is remembered of a running job."""

    spec: RunSpec
    folder: RunFolder
    looked: float = -math.inf
    loss: float | None = None
    chance_since: int | None = None
    of_layers: list[Warned] = field(default_factory=list)
    _classes: int | None = None

    @property
    def short(self) -> str:
        """The run's name without its hash."""
        return self.spec.name.rpartition("-")[0]

    def classes(self) -> int | None:
        """Number of classes, once the run has written it."""
        if self._classes is None:
            try:
                self._classes = (self.folder.read().get("data") or {}).get("num_classes")
            except UserError:  # not written yet, or broken: the run itself says so
                return None
        return self._classes


class Watch:
    """Follows the running jobs of a sweep."""

    def __init__(self, study: Study, specs: list[RunSpec]) -> None:
        self._jobs = {spec.name: _Job(spec, study.run_folder(spec.name)) for spec in specs}

    def look(self, progress: dict[str, dict[str, Any]]) -> list[Warned]:
        """All warnings that hold now.

        Args:
            progress: where each running job stands, as ``RunFolder.read_progress`` tells it.
        """
        found: list[Warned] = []
        for name, now in progress.items():
            job = self._jobs[name]
            if now and (classes := job.classes()):
                found += _of_loss(job, now, classes)
                found += _of_layers(job, classes)
        return found


def _of_loss(job: _Job, now: dict[str, Any], classes: int) -> Iterator[Warned]:
    step, steps, loss = now["step"], now["steps"], now.get("loss")
    if loss is None:
        if job.loss is not None:
            yield Warned(job.spec.name, "diverged", f"{job.short}: loss is not finite at step {step}")
        return
    job.loss = loss
    chance = math.log(classes)
    if loss <= limit_of("chance") * chance or step < job.spec.conf.schedule.warmup_steps:
        job.chance_since = None
        return
    job.chance_since = step if job.chance_since is None else job.chance_since
    if step - job.chance_since >= PLATEAU_SHARE * steps:
        where = "above" if loss > (2 - limit_of("chance")) * chance else "at"
        text = f"loss {loss:.2f} is {where} chance level (ln {classes} = {chance:.3f}) since step {job.chance_since}"
        yield Warned(job.spec.name, "chance", f"{job.short}: {text}")


def _of_layers(job: _Job, classes: int) -> list[Warned]:
    if time.monotonic() - job.looked >= LOOK_SECONDS:
        job.looked = time.monotonic()
        row = read_last_line(job.folder.path / "layers.jsonl")
        learns = job.loss is not None and job.loss > LEARNS_ABOVE * math.log(classes)
        job.of_layers = list(_of_row(job, row)) if row and learns else []
    return job.of_layers


def _of_row(job: _Job, row: dict[str, Any]) -> Iterator[Warned]:
    """The rules on most of training, at the one step of a row."""
    conf, step = job.spec.conf, row["step"]
    lr = learning_rate(conf.schedule, conf.optimizer.lr, step, conf.trainer.steps)
    if step < EARLY_SHARE * conf.trainer.steps or lr < SLOW * conf.optimizer.lr:
        return
    for name in WATCHED:
        rule = RULES[name]
        assert rule.profile is not None
        values = row["values"].get(rule.profile.scope, {}).get(rule.profile.metric)
        if values is None:
            continue
        number = measure(rule.profile.measure, np.abs(np.array(values, dtype=float)))
        if beyond(name, np.array(number)):
            text = beside_limit(f"{rule.quantity} is {number_text(number, name)} at step {step}", name)
            yield Warned(job.spec.name, name, f"{job.short}: {name.replace('_', ' ')}: {text}")
