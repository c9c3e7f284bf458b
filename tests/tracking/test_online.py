"""Online runs and ``plainres sync``, against a stub on loopback that keeps what it is sent; no other host is asked."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fake_study import FakeStudy
from plainres import cli
from plainres.errors import UserError
from plainres.rows import read_table
from plainres.store import Status, Study
from plainres.tracking import client
from plainres.tracking.sync import sync
from plainres.tracking.wandb_sink import identity_of
from stub_wandb import online, stub_server

PLAINRES = [sys.executable, "-m", "run"]
TINY = ["depth=4", "connection=residual", "model.width=8", "trainer.device=cpu"]
SHORT = [*TINY, "trainer.steps=60", "trainer.checkpoint_every=10", "study=online"]
LONG = [*TINY, "trainer.steps=4000", "trainer.eval_every=500", "trainer.checkpoint_every=100", "study=online"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("helpers")]


@pytest.fixture
def stub():
    with stub_server() as found:
        yield found


def check(run, sent):
    """What the server has of a run is what the run's files hold, each step once."""
    record = run.read()
    expected = identity_of(record)
    names = {"name": "id", "displayName": "name", "groupName": "group", "jobType": "job_type", "tags": "tags"}
    assert {ours: sent.settings[theirs] for theirs, ours in names.items()} == expected
    steps = [line["_step"] for line in sent.lines]
    assert steps == sorted(set(steps))
    table = read_table(run, "steps", record["layout"]).to_pylist()
    for metric in ("train_error", "val_loss", "lr", "grad_norm_total"):
        ours = {row["step"]: row["value"] for row in table if row["metric"] == metric}
        assert ours and {line["_step"]: line[metric] for line in sent.lines if metric in line} == ours
    assert (sent.summary["status"], sent.exit_code) == (record["status"], 0)


def test_a_run_online_has_all_rows_there(stub, command, tmp_path):
    done = command(*SHORT, **online(stub))
    assert done.returncode == 0 and "tracker" not in done.stdout, done.stdout
    (run,) = Study.open(tmp_path / "results" / "online").runs()
    assert list(stub.runs) == [run.read()["run_id"]]
    check(run, stub.runs[run.read()["run_id"]])
    assert not list(tmp_path.glob("results/online/wandb/offline-run-*"))


def test_a_run_online_that_was_killed_goes_on_where_the_server_is(stub, command, tmp_path):
    process = subprocess.Popen([*PLAINRES, *LONG], cwd=tmp_path, env=os.environ | online(stub))

    def wait_for(what):
        until = time.monotonic() + 100
        while not what():
            assert process.poll() is None and time.monotonic() < until, "it ended before it was killed"
            time.sleep(0.01)

    wait_for(lambda: list(tmp_path.glob("results/online/runs/*/checkpoint*")))
    process.send_signal(signal.SIGSTOP)  # training waits; what was told goes on its way to the server
    wait_for(lambda: any(run.lines for run in stub.runs.values()))
    process.kill()
    process.wait()
    time.sleep(2)  # wandb-core may still hand over what it has
    (run,) = Study.open(tmp_path / "results" / "online").runs()
    assert run.status() is Status.STALE
    sent = stub.runs[run.path.name.rpartition("-")[2]]
    before = [line["_step"] for line in sent.lines]
    assert sent.exit_code is None and len(before) > 0 and before[-1] < 4000
    assert command(*LONG, **online(stub)).returncode == 0
    check(run, sent)
    assert [line["_step"] for line in sent.lines][: len(before)] == before


def test_a_slow_server_slows_nothing(stub, execute, study, make_conf, monkeypatch):
    for name, value in online(stub).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 1.0)
    stub.delay = 20.0
    outcome, folder = execute(make_conf("residual"))
    assert outcome.status is Status.COMPLETE and folder.read()["seconds"]["tracker"] < 0.5
    began = time.monotonic()
    (line,) = client.await_sinks(study.path, [folder.path], ["wandb"])
    assert "still busy after 1 s" in line and time.monotonic() - began < 5


def test_without_a_network_a_run_is_made_good_later(stub, execute, study, make_conf, monkeypatch):
    for name, value in (online(stub) | {"WANDB_BASE_URL": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 1.0)
    outcome, folder = execute(make_conf("residual"))
    assert outcome.status is Status.COMPLETE
    (line,) = client.await_sinks(study.path, [folder.path], ["wandb"])
    assert line.startswith("tracker wandb: 1 of 1 runs have not arrived")
    client.close_helpers()
    monkeypatch.setenv("WANDB_BASE_URL", stub.url)
    sync(study.path, print)
    check(folder, stub.runs[folder.read()["run_id"]])


def run_sync(study, stub):
    code = "import sys; from plainres.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "sync", str(study)]
    return subprocess.run(command, env=os.environ | online(stub), capture_output=True, text=True)


def test_sync_sends_offline_runs_once_in_the_right_groups(stub, command, tmp_path):
    assert command("-m", *SHORT, "connection=plain,residual", "seed=0").returncode == 0
    assert command(*SHORT, "connection=plain", "seed=2", "tracker=none").returncode == 0
    study = Study.open(tmp_path / "results" / "online")
    runs = list(study.runs())
    assert len(runs) == 3 and len(list(study.path.glob("wandb/offline-run-*"))) == 2 + 1
    done = run_sync(study.path, stub)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("wandb: ")]
    assert lines == ["online: 4 offline runs, 0 of them sent before", "online: 4 runs sent"]
    assert set(stub.runs) == {run.read()["run_id"] for run in runs} | {"report-online"}
    for run in runs:
        check(run, stub.runs[run.read()["run_id"]])
    groups = [stub.runs[run.read()["run_id"]].settings["groupName"] for run in runs]
    assert sorted(groups.count(group) for group in set(groups)) == [1, 2]
    assert stub.runs["report-online"].settings["jobType"] == "report"
    stub.runs.clear()
    done = run_sync(study.path, stub)
    assert "online: 4 offline runs, 4 of them sent before" in done.stderr and not stub.runs
    shutil.rmtree(next(study.path.glob(f"wandb/offline-run-*-{runs[0].read()['run_id']}")))
    assert run_sync(study.path, stub).stderr.strip().endswith("online: 1 runs sent")
    assert list(stub.runs) == [runs[0].read()["run_id"]]


def test_sync_without_a_login_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    study = FakeStudy(depths=(4,), seeds=(0,), steps=60).write(tmp_path)
    for arguments in (["sync", str(study)], ["dashboard", str(study)]):
        found = subprocess.run(
            [sys.executable, "-m", "plainres.cli", *arguments], env=os.environ | {"WANDB_MODE": ""},
            capture_output=True, text=True,
        )  # fmt: skip
        assert found.returncode == 1 and not found.stdout
        last = found.stderr.strip().splitlines()[-1]
        assert last.startswith("plainres: not logged in to W&B") and "wandb login" in last
        assert "Traceback" not in found.stderr


def test_a_dashboard_is_saved_for_who_is_logged_in(stub, tmp_path):
    pytest.importorskip("wandb_workspaces")
    study = FakeStudy(depths=(4,), seeds=(0,), steps=60).write(tmp_path)
    command = [sys.executable, "-m", "plainres.cli", "dashboard", str(study), "--project", "depths"]
    done = subprocess.run(command, env=os.environ | online(stub), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "saved: " in done.stderr and "Traceback" not in done.stderr
    (view,) = stub.views
    assert (view["entityName"], view["projectName"], view["displayName"]) == ("tester", "depths", "plainres depth")
    sections = json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]
    assert [s["name"] for s in sections] == ["degradation", "trajectories", "gradients", "updates", "branch ratios"]


def test_sync_of_no_study_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["sync", str(tmp_path / "nowhere")])
    assert capsys.readouterr().err.startswith(f"plainres: {tmp_path}/nowhere: no such folder")
    with pytest.raises(UserError, match="not a plainres study"):
        sync(tmp_path, print)
