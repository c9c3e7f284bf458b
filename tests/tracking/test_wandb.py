"""W&B's offline runs hold what our own files hold. Nothing here reaches for the network."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from offline_runs import check_study
from plainres.options import TrackerName
from plainres.schema import TrackerConf
from plainres.store import Status, Study
from plainres.tracking import client
from plainres.tracking.sync import offline_files
from plainres.tracking.wandb_file import read_records

PLAINRES = [sys.executable, "-m", "run"]
OFFLINE = {"WANDB_MODE": "offline"}
SMALL = ["model.width=8", "trainer.steps=60", "trainer.device=cpu", "trainer.checkpoint_every=10", "probe.every=10"]
SWEEP = ["-m", "connection=plain,residual", "depth=4", *SMALL, "study=tracked"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("helpers")]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_offline_runs_hold_what_the_files_hold(command, tmp_path, read_back, launcher):
    done = command(*SWEEP, f"hydra/launcher={launcher}")
    assert done.returncode == 0, done.stderr
    assert f"in this terminal: wandb leet {tmp_path}/results/tracked/wandb" in done.stdout
    assert "tracker" not in done.stdout.replace("tracker 0.0", "") and not done.stderr
    study = Study.open(tmp_path / "results" / "tracked")
    assert check_study(study, read_back) > 200
    report = read_back(study, "report-tracked")
    assert (report.run["job_type"], report.run["run_group"], report.exit_code) == ("report", "tracked", 0)
    claims = json.loads((study.report_dir / "evidence.json").read_text())["claims"]
    assert report.history[0]["evidence.nrows"] == len(claims)
    figures = {p.stem for p in (study.report_dir / "figures").glob("*.png")}
    sent = {key.split(".")[0] for key in report.history[0] if key.startswith("figures/")}
    assert sent == {f"figures/{name}" for name in figures}
    assert json.dumps("evidence.md") in artifact_of(report.folder)


def artifact_of(folder: Path) -> str:
    """The files of the report's artifact, as W&B's record has them."""
    (file,) = folder.glob("run-*.wandb")
    found = [r.artifact for r in read_records(file) if r.WhichOneof("record_type") == "artifact"]
    (artifact,) = [a for a in found if a.type == "report"]
    return json.dumps([entry.path for entry in artifact.manifest.contents])


LONG = [*SMALL, "depth=8", "trainer.steps=4000", "trainer.eval_every=500", "trainer.checkpoint_every=100",
        "probe.every=100", "connection=residual", "study=killed"]  # fmt: skip


@pytest.mark.slow
def test_a_run_that_was_killed_and_resumed_is_one_whole_offline_run(tmp_path, read_back, command):
    for kills in (1, 2):
        process = subprocess.Popen([*PLAINRES, *LONG], cwd=tmp_path, env=os.environ | OFFLINE)
        until = time.monotonic() + 100
        while len(offline_rows(tmp_path)) < kills or not offline_rows(tmp_path)[-1]:
            assert process.poll() is None and time.monotonic() < until, "it ended before it was killed"
            time.sleep(0.02)
        process.kill()
        process.wait()
    study = Study.open(tmp_path / "results" / "killed")
    (run,) = study.runs()
    assert run.status() is Status.STALE
    assert command(*LONG).returncode == 0
    assert run.read()["attempts"] == 3
    assert check_study(study, read_back, report=False) > 200


def offline_rows(folder: Path) -> list[int]:
    """Rows in each offline folder, the oldest first."""
    files = sorted(folder.glob("results/killed/wandb/offline-run-*/run-*.wandb"))
    return [sum(r.WhichOneof("record_type") == "history" for r in read_records(file)) for file in files]


def test_an_interrupted_run_says_so_and_is_whole_when_it_has_gone_on(execute, study, make_conf, read_back, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    conf = make_conf("residual", {"trainer.checkpoint_every": 4})
    _, folder = execute(conf, stop_at=6)
    assert client.await_sinks(study.path, [folder.path], ["wandb"]) == []
    found = read_back(study, folder.read()["run_id"])
    assert (found.exit_code, found.summary["status"]) == (130, "interrupted") and max(found.history) == 4
    execute(conf)
    assert client.await_sinks(study.path, [folder.path], ["wandb"]) == []
    assert check_study(study, read_back, report=False) > 100


@pytest.mark.faults  # the long suite: some minutes
@pytest.mark.timeout(1500)
def test_forty_runs_share_one_folder(command, tmp_path, read_back):
    sweep = ["-m", "depth=4,6,8,10", "connection=plain,residual", "seed=range(5)", *SMALL, "study=forty"]
    assert command(*sweep).returncode == 0
    study = Study.open(tmp_path / "results" / "forty")
    assert len(list(study.runs())) == 40
    assert check_study(study, read_back) > 40 * 100


# Faults: our files stay whole, training goes on, one line says so, and the run can be made good from the files.


def core_of(helper: int) -> int:
    """The process id of a helper's wandb-core, once it has one."""
    children = Path(f"/proc/{helper}/task/{helper}/children")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in children.read_text().split():
            if "wandb-core" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        time.sleep(0.02)
    raise AssertionError("wandb-core did not start")


@pytest.fixture
def undisturbed(execute, make_conf, tmp_path):
    """The row tables of a run without a tracker."""

    def tables(conf):
        bare = with_tracker(conf, TrackerConf(name=TrackerName.none))
        _, folder = execute(bare, into=Study.create(tmp_path, "undisturbed"))
        return [(folder.path / f"{name}.parquet").read_bytes() for name in ("steps", "layers")]

    return tables


def with_tracker(conf, tracker):
    return replace(conf, tracker=tracker)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_wandb_that_dies_or_hangs_stops_nothing(execute, study, make_conf, read_back, undisturbed, monkeypatch, number):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 3.0)
    conf = make_conf("residual", {"trainer.checkpoint_every": 2})
    tell, cores = client.Tracker.on_checkpoint, []

    def disturb(self, lengths):
        tell(self, lengths)
        if len(cores) == 0:
            cores.append(core_of(client.open_helper("wandb")._process.pid))
            os.kill(cores[0], number)

    with monkeypatch.context() as patched:
        patched.setattr(client.Tracker, "on_checkpoint", disturb)
        outcome, folder = execute(conf)
    assert outcome.status is Status.COMPLETE and not outcome.message
    (line,) = client.await_sinks(study.path, [folder.path], ["wandb"])
    assert line.startswith("tracker wandb: 1 of 1 runs have not arrived") and f"plainres sync {study.path}" in line
    assert [(folder.path / f"{name}.parquet").read_bytes() for name in ("steps", "layers")] == undisturbed(conf)
    if number is signal.SIGSTOP:
        os.kill(client.open_helper("wandb")._process.pid, signal.SIGKILL)
        os.kill(cores[0], signal.SIGKILL)
    assert len(offline_files(study, lambda line: None)) == 1, "made anew"
    assert check_study(study, read_back, report=False) > 100


@pytest.mark.slow
def test_a_folder_that_wandb_cannot_write_stops_nothing(execute, study, make_conf, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    (study.path / "wandb").write_text("in the way")
    outcome, folder = execute(make_conf("residual"))
    assert outcome.status is Status.COMPLETE
    (line,) = client.await_sinks(study.path, [folder.path], ["wandb"])
    assert "NotADirectoryError" in line and "\n" not in line


FULL = "mkdir -p {0}/wandb && mount -t tmpfs -o size=64k tmpfs {0}/wandb && exec {1}"


@pytest.mark.faults
def test_a_full_disk_under_wandbs_folder_stops_nothing(tmp_path, read_back):
    """In a mount namespace of its own, where W&B's folder holds 64 kB."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a mount namespace")
    study = Study.create(tmp_path / "results", "full")
    run = shlex.join([*PLAINRES, *SWEEP, "study=full"])
    script = FULL.format(shlex.quote(str(study.path)), run)
    command = ["unshare", "-rm", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | OFFLINE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "runs: 2 complete" in done.stdout and "Traceback" not in done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("tracker wandb: ")]
    assert "of 3 runs have not arrived there in full" in line
    for folder in study.runs():
        assert folder.status() is Status.COMPLETE and (folder.path / "layers.parquet").exists()
    offline_files(study, lambda line: None)
    assert check_study(study, read_back) > 200, "made good from the files, outside of the full disk"
