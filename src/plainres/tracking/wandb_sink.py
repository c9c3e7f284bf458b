"""One Weights & Biases run for each run: id = run_id, group = the pair, job_type = the connection. Needs wandb."""

import os
import shutil
import time
from pathlib import Path
from typing import Any, Literal, cast

import wandb

from plainres.analysis.load import run_row
from plainres.options import TrackerMode
from plainres.pair import identity_fields
from plainres.schema import RunConf, TrackerConf, plain_values
from plainres.store import RunFolder, Status
from plainres.tracking.history import History
from plainres.tracking.sink import Row, asked_mode
from plainres.tracking.wandb_file import is_whole, run_folders

EXIT_CODES = {Status.COMPLETE: 0, Status.DIVERGED: 0, Status.INTERRUPTED: 130}  # every other status: 1
Mode = Literal["online", "offline", "disabled"]

RUN_TABLE = "run"
FINAL = "final"  # section of the values that a complete run ends with, beside its depth
CELL = "cell"  # config key: depth and connection in one, because a W&B panel groups by one key
LONGEST_TAG = 64
TOP = {  # W&B config key -> identity field
    "depth": "depth",
    "seed": "seed",
    "connection": "connection.name",
    "model": "model.name",
    "width": "model.width",
    "data": "data.name",
    "start_depth": "start.depth",
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "steps": "trainer.steps",
}
FLUSH_SECONDS = 5.0  # that wandb may write on after finish() has returned


def wandb_mode(wanted: TrackerMode) -> Mode:
    """``online`` or ``offline``. ``auto``: WANDB_MODE if set, else online when logged in, else offline.

    Never prompts, and waits for nothing: whether someone is logged in is read from the environment and ~/.netrc.
    """
    return cast(Mode, asked_mode(wanted)) or ("online" if is_logged_in() else "offline")


def is_logged_in() -> bool:
    """Whether W&B's key is known to this user; nobody is asked."""
    os.environ.pop("WANDB_MODE", None)  # asked only where that has no say; wandb would answer no when it is offline
    return bool(wandb.login(prompt=False, verify=False))


def open_run(study: Path, mode: Mode, project: str, **what: Any) -> Any:
    """A W&B run whose files are in ``<study>/wandb``.

    Raises:
        OSError, wandb.Error: it cannot be opened, or its files would lie elsewhere.
    """
    os.environ.setdefault("WANDB_DATA_DIR", str(study / "wandb"))  # else tables are put aside in the home folder
    run = wandb.init(
        project=project,
        dir=str(study),
        mode=mode,
        reinit="create_new",
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            save_code=False,
            init_timeout=30,
            x_disable_stats=True,  # of this helper process: they would say nothing of training
            x_disable_machine_info=True,
            x_save_requirements=False,  # run.json has the versions; listing all packages takes 0.1 s a run
        ),
        **what,
    )
    if study not in Path(run.settings.sync_dir).parents:  # wandb goes to a temporary folder where it cannot write
        run.finish(exit_code=1)
        raise OSError(f"{study / 'wandb'} cannot be written")
    return run


def close_run(run: Any, exit_code: int) -> None:
    """Finish a W&B run; of one that was offline, drop the earlier folders, for this one holds all they held.

    Raises:
        OSError: not all of an offline run has reached the disk.
    """
    folder = Path(run.settings.sync_dir)
    file = folder / f"run-{run.id}.wandb"
    offline, run_id = run.settings.mode == "offline", run.id
    run.finish(exit_code=exit_code)
    if not offline:
        return
    until = time.monotonic() + FLUSH_SECONDS
    while not (whole := is_whole(file)) and time.monotonic() < until:
        time.sleep(0.02)
    if not whole:  # wandb itself says nothing of a full disk
        raise OSError(f"{file} is cut short; is the disk full?")
    for earlier in run_folders(folder.parent, run_id):
        if earlier != folder:
            shutil.rmtree(earlier, ignore_errors=True)


class WandbSink:
    """Sends one attempt at a run to W&B; offline, a resumed attempt sends all rows anew and replaces what was there."""

    def __init__(self, record: dict[str, Any], folder: Path, mode: Mode | None = None) -> None:
        """
        Args:
            record: run.json.
            folder: of the run.
            mode: online or offline; None for what the run's settings say.
        """
        tracker = tracker_of(record)
        mode = mode or wandb_mode(TrackerMode(tracker["mode"]))
        self._folder = RunFolder(folder)
        self._history = History(record["identity"]["trainer.steps"])
        goes_on = mode == "online" and self._folder.checkpoint.exists()
        self._run = open_run(
            folder.parents[1], mode, tracker["project"],
            **identity_of(record), config=config_of(record), resume="allow" if goes_on else None,
        )  # fmt: skip
        self._next = self._run.starting_step if goes_on else 0  # what the server has of an earlier attempt
        self._held: tuple[int, dict[str, Any]] | None = None  # the last row, which W&B cannot add to once it has it

    def write(self, steps: list[Row], layers: list[Row]) -> None:
        """Send what is new of these rows."""
        for number, step in self._history.rows(steps, layers):
            if number < self._next:
                continue
            values: dict[str, Any] = dict(step.scalars)
            for metric, pairs in step.profiles.items():
                values[f"profile/{metric}"] = profile_chart(metric, pairs)
            self._send_held()
            self._held = number, values

    def _send_held(self) -> None:
        if self._held is not None:
            number, values = self._held
            self._run.log(values, step=number, commit=True)

    def finish(self, record: dict[str, Any]) -> None:
        """Send how the run ended, and its row of runs.csv as a table."""
        row = {k: v for k, v in run_row(self._folder, record).items() if v is not None}
        last = record["final"] or record["last_finite"] or {}
        if self._held is not None and record["final"]:
            ends = {"depth": record["config"]["depth"]} | {n: last[n] for n in ("train_error", "train_loss")}
            self._held[1].update({f"{FINAL}/{name}": value for name, value in ends.items()})
        self._send_held()
        cells = [str(v) if isinstance(v, list | dict) else v for v in row.values()]
        self._run.summary.update({
            "status": record["status"],
            **{name: value for name, value in last.items() if name != "step"},
            RUN_TABLE: wandb.Table(columns=list(row), data=[cells], allow_mixed_types=True),
        })  # fmt: skip
        close_run(self._run, EXIT_CODES.get(Status(record["status"]), 1))


def tracker_of(record: dict[str, Any]) -> dict[str, Any]:
    """The tracker settings of a run; the defaults where it is older than they are."""
    found: dict[str, Any] = plain_values(TrackerConf()) | record["config"].get("tracker", {})
    return found


def identity_of(record: dict[str, Any]) -> dict[str, Any]:
    """What names and groups a run in W&B: arguments of ``wandb.init``."""
    fields = _fields_of(record)
    model, connection = fields["model.name"], fields["connection.name"]
    label = record["name"].rpartition("-")[0]
    pair = label.removeprefix(f"{model}-{connection}-")
    return {
        "id": record["run_id"],
        "name": label,
        "group": f"{model}-{pair}-{record['pair_id']}",
        "job_type": connection,
        "tags": [text[:LONGEST_TAG] for text in (record["study"], model, fields["data.name"])],
    }


def config_of(record: dict[str, Any]) -> dict[str, Any]:
    """What W&B groups and filters by, at the top; all settings, code and environment below."""
    fields = _fields_of(record)
    top = {key: fields[name] for key, name in TOP.items()}
    return top | {
        CELL: f"d{fields['depth']:03d} {fields['connection.name']}",
        "study": record["study"],
        "run_id": record["run_id"],
        "pair_id": record["pair_id"],
        "num_parameters": record.get("num_parameters"),
        "settings": record["config"],
        "environment": record.get("environment"),
    }


def _fields_of(record: dict[str, Any]) -> dict[str, Any]:
    """Identity fields by dotted name; those that are younger than the run have their defaults."""
    fields: dict[str, Any] = identity_fields(RunConf()) | record["identity"]
    return fields


def profile_chart(metric: str, pairs: list[tuple[int, float]]) -> Any:
    """A profile over depth as a chart that W&B draws as a line."""
    table = wandb.Table(columns=["layer", metric], data=[list(pair) for pair in pairs])
    return wandb.plot.line(table, "layer", metric, title=f"{metric} over depth")
