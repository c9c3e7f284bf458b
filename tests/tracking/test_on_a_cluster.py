"""W&B under the SLURM launcher, by submitit's local executor: a task waits for its sink, because its node will not."""

import os
import signal
import time
from dataclasses import replace

import pytest
import submitit

from offline_runs import check_study
from plainres.launch.slurm import submit_runs
from plainres.launch.sweep import Sweep
from plainres.options import TrackerMode, TrackerName
from plainres.schema import TrackerConf
from plainres.store import Status
from plainres.tracking.sink import mark_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_requeued_run_is_one_whole_offline_run(tmp_path, make_conf, read_back, monkeypatch):
    tracker = TrackerConf(TrackerName.wandb, TrackerMode.offline)
    conf = replace(make_conf("residual"), tracker=tracker, study="cluster", results_dir=str(tmp_path / "results"))
    conf.trainer = replace(conf.trainer, steps=2000, eval_every=500, checkpoint_every=200)
    sweep = Sweep.prepare([conf, replace(conf, seed=1)])
    executor, jobs = submitit.LocalExecutor(sweep.study.path / "slurm"), []
    monkeypatch.setattr(executor, "map_array", lambda *a: jobs.extend(map_array(*a)) or jobs)
    map_array = type(executor).map_array.__get__(executor)
    submit_runs(executor, sweep.study, sweep.specs)
    folders = [sweep.study.run_folder(spec.name) for spec in sweep.specs]
    until = time.monotonic() + 120
    while time.monotonic() < until and folders[0].read_progress().get("step", 0) < 300:
        time.sleep(0.05)
    os.kill(folders[0].read_progress()["pid"], signal.SIGUSR2)  # as SLURM does before the time limit
    assert [job.result() for job in jobs] == ["complete", "complete"]
    assert not any(mark_path(folder.path, "wandb").exists() for folder in folders), "a task waited for its sink"
    for job in jobs:
        job._process.wait()
    assert [folder.read()["attempts"] for folder in folders] == [2, 1]
    assert all(folder.status() is Status.COMPLETE for folder in folders)
    assert check_study(sweep.study, read_back, report=False) > 200
