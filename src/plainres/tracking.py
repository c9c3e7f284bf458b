"""Sinks beside the run's own files, which stay the truth: a sink only ever sees rows that a checkpoint covers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

from plainres.options import TrackerMode, TrackerName
from plainres.pair import RunSpec
from plainres.rows import read_lines
from plainres.schema import plain_values
from plainres.store import RunFolder, Status, Study


class Tracker:
    """Listens to a run and keeps nothing: ``tracker=none``, and what a sink overrides."""

    def on_checkpoint(self, step: int) -> None:
        """All rows written so far are covered by the checkpoint of ``step``; they will not be redone."""

    def finish(self, record: dict[str, Any]) -> None:
        """The run has ended; ``record`` is its run.json."""

    def close(self) -> None:
        """Called in any case, also when the run failed."""


class WandbTracker(Tracker):
    """One W&B run a job: id = run_id, group = the pair, job_type = the connection, tags = study, model, data."""

    def __init__(self, spec: RunSpec, study: Study) -> None:
        import wandb

        self._folder: RunFolder = study.run_folder(spec.name)
        self._sent = 0
        conf = spec.conf
        mode = wandb_mode(conf.tracker.mode)
        config = plain_values(conf) | {
            "run_id": spec.run_id,
            "pair_id": spec.pair_id,
            "connection": conf.connection.name,
        }
        self._run = wandb.init(
            project=conf.tracker.project,
            dir=str(study.path),
            mode=mode,
            id=spec.run_id,
            name=spec.name,
            group=spec.pair_id,
            job_type=conf.connection.name,
            tags=[study.name, str(conf.model.name), conf.data.name],
            config=config,
            resume="allow" if mode == "online" else None,
            reinit="finish_previous",
            settings=wandb.Settings(console="off", silent=True, disable_git=True),
        )
        self._run.define_metric("*", step_metric="step")
        self._exit_code = 1

    def on_checkpoint(self, step: int) -> None:
        rows = read_lines(self._folder.path / "steps.jsonl")
        for row in rows[self._sent :]:
            known = {name: value for name, value in row["values"].items() if value is not None}
            self._run.log({"step": row["step"]} | known)
        self._sent = len(rows)

    def finish(self, record: dict[str, Any]) -> None:
        self._run.summary.update({"status": record["status"]} | (record["final"] or record["last_finite"] or {}))
        self._exit_code = 0 if record["status"] in (Status.COMPLETE, Status.DIVERGED) else 1

    def close(self) -> None:
        self._run.finish(exit_code=self._exit_code)


WandbMode = Literal["online", "offline", "disabled", "shared"]


def wandb_mode(mode: TrackerMode) -> WandbMode:
    """``auto``: WANDB_MODE if set, else online when logged in, else offline; never prompts, never waits."""
    wanted = os.environ.get("WANDB_MODE") if mode is TrackerMode.auto else str(mode)
    if wanted:
        return cast(WandbMode, wanted)
    import wandb

    return "online" if wandb.login(prompt=False, verify=False) else "offline"


@contextmanager
def open_tracker(spec: RunSpec, study: Study) -> Iterator[Tracker]:
    """The tracker that the run asks for, closed in any case."""
    wanted = spec.conf.tracker.name
    tracker = WandbTracker(spec, study) if wanted is TrackerName.wandb else Tracker()
    try:
        yield tracker
    finally:
        tracker.close()
