"""A study's report as one W&B run of job_type ``report``: figures, evidence table, and all files as an artifact."""

from pathlib import Path
from typing import Any

import wandb

from plainres.errors import UserError
from plainres.options import TrackerMode
from plainres.schema import TrackerConf, plain_values
from plainres.store import Study, read_json
from plainres.tracking.wandb_sink import Mode, close_run, open_run, tracker_of, wandb_mode

EVIDENCE_COLUMNS = ("id", "setting", "connection", "status", "sentence", "n", "effect", "low", "high", "unit")


def report_id(study: Study) -> str:
    """The W&B id of a study's report: a later report takes the place of the one before."""
    return f"report-{study.name}"


def send_report(path: Path, mode: Mode | None = None) -> None:
    """Send ``<study>/report`` to W&B.

    Args:
        path: the study's folder.
        mode: online or offline; None for what the study's runs say.

    Raises:
        UserError: the study has no report.
        OSError, wandb.Error: it cannot be sent.
    """
    study = Study.open(path)
    folder = study.report_dir
    evidence = read_json(folder / "evidence.json")
    tracker = _tracker_of_study(study)
    run = open_run(
        study.path, mode or wandb_mode(TrackerMode(tracker["mode"])), tracker["project"],
        id=report_id(study), name=f"{study.name} report", group=study.name, job_type="report", tags=[study.name[:64]],
        config={"study": study.name},
    )  # fmt: skip
    content: dict[str, Any] = {"evidence": evidence_table(evidence)}
    for figure in sorted((folder / "figures").glob("*.png")):
        content[f"figures/{figure.stem}"] = wandb.Image(str(figure))
    run.log(content, step=0, commit=True)
    artifact = wandb.Artifact(f"{study.name}-report", "report", description=f"plainres report of study {study.name}")
    artifact.add_dir(str(folder))
    run.log_artifact(artifact)
    close_run(run, exit_code=0)


def _tracker_of_study(study: Study) -> dict[str, Any]:
    for folder in study.runs():
        try:
            return tracker_of(folder.read())
        except (UserError, KeyError):  # its own report says so
            continue
    return plain_values(TrackerConf())


def evidence_table(evidence: dict[str, Any]) -> Any:
    """The claims of evidence.json as a W&B table."""
    rows = [[claim.get(name) for name in EVIDENCE_COLUMNS] for claim in evidence["claims"]]
    return wandb.Table(columns=list(EVIDENCE_COLUMNS), data=rows, allow_mixed_types=True)
