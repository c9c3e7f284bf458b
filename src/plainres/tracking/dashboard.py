"""`plainres dashboard`: a saved W&B workspace for a study, built as code with wandb-workspaces.

Building validates it, without a network; saving needs a login. W&B draws the panels, so colours and groups are its own.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2.interface as wr
import wandb_workspaces.workspaces as ws

from plainres.errors import UserError
from plainres.own_class import words_of
from plainres.store import Study, write_json
from plainres.tracking.history import PROFILES
from plainres.tracking.wandb_sink import CELL, FINAL, is_logged_in

Echo = Callable[[str], None]

SPEC_FILE = "workspace.json"
CURVES = {"train_error": "training error", "train_loss": "training loss", "val_error": "validation error"}
SECTIONS = {"grad_norm": "gradients", "update_ratio": "updates", "branch_ratio": "branch ratios"}
MOST_RUNS = 200  # that a panel groups: W&B's own limit is lower than the default study


def make_dashboard(path: str | Path, project: str, entity: str | None, echo: Echo) -> None:
    """Build a study's workspace, write its spec beside the study's offline runs, and save it.

    Args:
        path: the study's folder.
        project: W&B project that the runs are in.
        entity: user or team; None for the one that is logged in.
        echo: called with each line for the user.

    Raises:
        UserError: ``path`` is no study, nobody is logged in, or W&B refuses it.
    """
    study = Study.open(path)
    workspace = build_workspace(study.name, project, entity or "")
    spec = study.path / "wandb" / SPEC_FILE
    spec.parent.mkdir(exist_ok=True)
    write_json(spec, spec_of(workspace))
    echo(f"built: {spec}")
    if not is_logged_in():
        raise UserError(
            "not logged in to W&B, so not saved: wandb login, or set WANDB_API_KEY, then give this command again"
        )
    try:
        workspace.entity = entity or wandb.Api().default_entity
        workspace.save()
    except Exception as error:  # wandb's, of many kinds
        raise UserError(f"W&B did not save it ({words_of(error)}); check --project and --entity") from error
    echo(f"saved: {workspace.url}")


def build_workspace(study: str, project: str, entity: str) -> Any:
    """The workspace: degradation, trajectories, one section for each profile, runs grouped by depth and connection."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"plainres {study}",
        sections=[_degradation(), _trajectories(), *map(_profile, PROFILES)],
        settings=ws.WorkspaceSettings(max_runs=MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Config("study") == study, ws.Metric("JobType") != "report"),
            groupby=[ws.Config("depth"), ws.Config("connection")],
            order=[ws.Ordering(ws.Config("depth"), ascending=True)],
        ),
    )


def spec_of(workspace: Any) -> dict[str, Any]:
    """What W&B is sent, as JSON values."""
    spec: dict[str, Any] = json.loads(workspace._to_model().model_dump_json(by_alias=True))
    return spec


def _degradation() -> Any:
    """Final error against depth: a line with its range for each connection, and every run as a point."""
    return ws.Section(
        name="degradation",
        is_open=True,
        pinned=True,
        panels=[
            _grouped("final training error over depth", [f"{FINAL}/train_error"], "connection", x=f"{FINAL}/depth"),
            wr.ScatterPlot(
                title="final training error of each run", x=wr.Config("depth"), y=wr.SummaryMetric("train_error")
            ),
        ],
    )


def _trajectories() -> Any:
    panels = []
    for metric, words in CURVES.items():
        panels += [_grouped(f"{words} by connection", [metric], "connection")]
        panels += [_grouped(f"{words} by depth and connection", [metric], CELL)]
    return ws.Section(name="trajectories", is_open=True, panels=panels)


def _profile(metric: str) -> Any:
    """The profile over depth at its last moment, and its first, last, smallest and largest member over training."""
    table = {"summaryTable": {"tableKey": f"profile/{metric}_table"}}
    profile = wr.CustomChart(
        query=table,
        chart_name="wandb/line/v0",
        chart_fields={"x": "layer", "y": metric},
        chart_strings={"title": f"{metric} over depth"},
    )
    members = ["first", "last", "min", "max"] + (["log_slope"] if metric == "grad_norm" else [])
    lines = [_grouped(f"{metric}, {m}", [f"{metric}/{m}"], CELL, log_y=m != "log_slope") for m in members]
    return ws.Section(name=SECTIONS[metric], panels=[profile, *lines])


def _grouped(title: str, y: Sequence[str], by: str, x: str = "Step", log_y: bool = False) -> Any:
    """Mean and range (smallest to largest) of each group of runs."""
    return wr.LinePlot(
        title=title,
        x=x,
        y=list(y),
        log_y=log_y,
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=MOST_RUNS,
    )
