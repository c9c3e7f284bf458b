"""Several commands at once on one study, and a run without memory in a sweep."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from plainres import job
from plainres.assembly import assemble
from plainres.launch import pool
from plainres.launch.prepare import prepare
from plainres.launch.sweep import Sweep, exit_code
from plainres.schema import RunConf
from plainres.store import RunFolder, Status, Study
from small_sweep import check_same, finish, start


def test_what_another_command_has_begun_of_a_study_is_no_foreign_folder(tmp_path: Path) -> None:
    """Of the same second, or killed in it."""
    (tmp_path / "depth").mkdir()
    for name in (".lock", ".study.json.123.partial", ".writable.partial"):
        (tmp_path / "depth" / name).touch()
    study = Study.create(tmp_path, "depth")
    assert {p.name for p in study.path.iterdir()} == {".lock", "study.json", "runs"}


MANY = """
import sys
from plainres.store import Study
for i in range(100):
    Study.create(sys.argv[1], f"study{i}").run_folder("run").plan({"status": "planned", "by": sys.argv[2]})
"""


def test_two_that_make_studies_in_the_same_moments(tmp_path: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", MANY, str(tmp_path), name], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    for i in range(100):
        study = Study.open(tmp_path / f"study{i}")
        assert {p.name for p in study.path.iterdir()} == {".lock", "study.json", "runs"}
        assert {p.name for p in study.run_folder("run").path.iterdir()} == {".lock", "run.json"}


def test_a_plan_never_replaces_what_has_begun(study: Study) -> None:
    folder, other = study.run_folder("run"), study.run_folder("run")
    assert other.acquire()  # by a command that is about to write its record
    folder.plan({"status": "planned"})
    assert not folder.exists()
    other.write({"status": "running"})
    other.release()
    folder.plan({"status": "planned"})
    assert folder.read()["status"] == "running"


@pytest.mark.parametrize("status", ["running", "complete"])
def test_a_dead_worker_marks_its_run_and_no_finished_one(status: str, study: Study) -> None:
    folder = study.run_folder("run")
    folder.write({"status": status})
    pool._mark_dead(folder, "died")
    assert folder.read()["status"] == {"running": "failed"}.get(status, status)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_two_commands_on_one_study_train_every_run_once(tmp_path: Path) -> None:
    finish(tmp_path / "undisturbed")
    both = [start(tmp_path / "both") for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    for process, (out, err) in zip(both, said, strict=True):
        assert "Traceback" not in out + err
        held = "another process is training this run" in out
        assert process.returncode == int(held), (out, err)
    runs = list(Study.open(tmp_path / "both" / "small").runs())
    assert [run.read()["attempts"] for run in runs] == [1] * 4
    assert sum(out.count(": complete in") for out, _ in said) == 4
    check_same(tmp_path / "both", tmp_path / "undisturbed")


@pytest.mark.usefixtures("pool_in_this_process")
@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")], ids=["python", "cuda"])
def test_a_run_without_memory_says_its_batch_and_the_sweep_goes_on(
    error: Exception, make_conf: Callable[..., RunConf], study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"trainer.steps": 4, "study": study.name, "results_dir": str(study.path.parent), "tracker.name": "none"}

    def assembled(spec, *others, **more):
        if spec.conf.connection.name == "plain":
            raise error
        return assemble(spec, *others, **more)

    sweep = Sweep.prepare([make_conf("plain", values), make_conf("residual", values)])
    with monkeypatch.context() as patched, pool.worker_pool() as run_jobs:
        patched.setattr(job, "assemble", assembled)
        outcomes = run_jobs(sweep)
        assert [o.status for o in outcomes] == [Status.OOM, Status.COMPLETE] and exit_code(outcomes) == 1
        assert "trainer.batch=128" in outcomes[0].message and "lower it" in outcomes[0].message
        assert study.run_folder(outcomes[0].name).status() is Status.OOM
    with pool.worker_pool() as run_jobs:
        assert [o.status for o in run_jobs(sweep)] == [Status.COMPLETE] * 2


def test_a_study_that_cannot_be_planned_names_the_folder(
    make_conf: Callable[..., RunConf], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RunFolder, record: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "plan", full)
    with pytest.raises(ValueError, match=r"/runs/mlp-plain.*cannot be written \(No space left on device\); make room"):
        prepare([make_conf("plain", {"results_dir": str(tmp_path)})])
