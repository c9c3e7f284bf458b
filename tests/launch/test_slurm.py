"""SLURM without SLURM: stand-ins for its commands on PATH show what is submitted, and run it when they are told to."""

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

import run
from plainres.errors import UserError
from plainres.job import execute
from plainres.launch import follow as following
from plainres.launch.follow import Task, follow
from plainres.launch.prepare import prepare
from plainres.launch.settings import SlurmConf
from plainres.launch.sweep import Sweep
from plainres.launch.task import RunTask
from plainres.schema import RunConf
from plainres.store import Status, Study, read_json

Make = Callable[..., RunConf]
TINY = ["-m", "connection=plain,residual", "depth=4", "model.width=8", "trainer.steps=30", "study=far"]
SLURM = ["hydra/launcher=slurm"]

# Each stands for one command; $CLUSTER is a folder: queue/ has a file for every task that waits or runs.
COMMANDS = {
    "sbatch": """
        [ -f $CLUSTER/refusal ] && { cat $CLUSTER/refusal >&2; exit 1; }
        cp $1 $CLUSTER/submitted.sh
        last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' $1)
        export SLURM_ARRAY_JOB_ID=77
        for index in $(seq 0 $last); do touch $CLUSTER/queue/77_$index; done
        echo Submitted batch job 77
        [ -f $CLUSTER/works ] || exit 0
        for index in $(seq 0 $last); do
            (
                export SLURM_ARRAY_TASK_ID=$index SLURM_JOB_ID=$((77 + index))
                bash $1
                while [ -f $CLUSTER/requeue_77_$index ]; do rm $CLUSTER/requeue_77_$index; bash $1; done
                rm -f $CLUSTER/queue/77_$index
            ) > /dev/null 2>&1 &
        done""",
    "srun": """
        while [ "${1#--}" != "$1" ]; do
            case $1 in --output) out=$2; shift;; --error) err=$2; shift;; esac
            shift
        done
        name() { echo $1 | sed "s/%A/77/; s/%a/$SLURM_ARRAY_TASK_ID/; s/%t/0/"; }
        exec "$@" >> $(name $out) 2>> $(name $err)""",
    "squeue": "ls $CLUSTER/queue",
    "scancel": "echo $* >> $CLUSTER/cancelled",
    "scontrol": "touch $CLUSTER/requeue_$2",
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that plays SLURM; the test stands in a folder of its own."""
    folder, tools, here = (tmp_path / name for name in ("cluster", "tools", "here"))
    (folder / "queue").mkdir(parents=True)
    here.mkdir()
    tools.mkdir()
    for name, text in COMMANDS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(folder))
    monkeypatch.chdir(here)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> int:
    monkeypatch.setattr(sys, "argv", ["run", *TINY, *SLURM, *overrides])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    code = stopped.value.code
    assert isinstance(code, int)
    return code


def test_what_is_submitted(cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["partition=long", "account=us", "qos=low", "constraint=a100", "time_min=90", "cpus=3", "gpus=1"]
    asked += ["mem_gb=1.5", "parallel=7", "grace_seconds=30", "setup=[module load x]", "wait=false"]
    assert call(monkeypatch, *(f"hydra.launcher.{text}" for text in asked)) == 0
    script = (cluster / "submitted.sh").read_text()
    flags = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.M))
    assert flags | {
        "partition": "long", "account": "us", "qos": "low", "constraint": "a100", "time": "90", "cpus-per-task": "3",
        "gpus-per-node": "1", "mem": "1536M", "array": "0-1%2", "signal": "USR2@30", "requeue": "",
        "job-name": "plainres-far", "open-mode": "append",
    } == flags  # fmt: skip
    study = Study.open("results/far")
    assert flags["output"] == str(study.path / "slurm" / "%A_%a_0_log.out")
    lines = script.splitlines()
    assert lines.index("export OMP_NUM_THREADS=1") < lines.index("module load x")
    assert any(line.startswith("srun") and "--cpus-per-task=3" in line for line in lines)
    names = [folder.name for folder in study.runs()]
    record = read_json(study.path / "slurm" / "77.json")
    assert sorted(record["runs"]) == names and {t["task"] for t in record["runs"].values()} == {"77_0", "77_1"}
    assert {folder.read()["config"]["trainer"]["device"] for folder in study.runs()} == {"cuda"}
    assert all(folder.status() is Status.PLANNED for folder in study.runs())
    shown = capsys.readouterr().out
    assert "job 77: 2 runs" in shown and "plainres status" in shown

    # The same command, while they wait: nothing is submitted twice.
    (cluster / "submitted.sh").unlink()
    assert call(monkeypatch, "hydra.launcher.gpus=1", "hydra.launcher.wait=false") == 0
    assert not (cluster / "submitted.sh").exists() and "2 runs are in the queue already" in capsys.readouterr().out


MISTAKES = {
    "hydra.launcher.time_min=soon": ["hydra.launcher.time_min=soon", "Integer"],
    "hydra.launcher.time_min=0": ["hydra.launcher.time_min=0", "at least 1"],
    "hydra.launcher.gpus=2": ["hydra.launcher.gpus=2", "0 or 1"],
    "hydra.launcher.grace_seconds=3600": ["hydra.launcher.grace_seconds=3600", "less than the time limit"],
    "hydra.launcher.partiton=x": ["did you mean hydra.launcher.partition"],
    "trainer.device=cuda": ["trainer.device=cuda", "hydra.launcher.gpus=1 asks for a GPU"],
}


@pytest.mark.parametrize(("override", "words"), MISTAKES.items(), ids=str)
def test_a_mistake_is_one_line(
    override: str,
    words: list[str],
    cluster: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, override) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and all(word in err for word in words), err
    assert not list(Path().iterdir()) and not (cluster / "submitted.sh").exists()


def test_without_slurm_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "no sbatch" in err and "login node" in err
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_sbatchs_words_in_one_line(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "invalid partition specified: moon"
    (cluster / "refusal").write_text(f"sbatch: error: {words}\nsbatch: error: Batch job submission failed\n")
    assert call(monkeypatch, "hydra.launcher.partition=moon", "hydra.launcher.wait=false") == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and words in err and "hydra.launcher.partition" in err
    assert not list(Path("results/far/slurm").iterdir())


def test_the_node_has_the_device_not_the_login_node() -> None:
    assert SlurmConf(gpus=1).device("auto") == "cuda" and SlurmConf().device("auto") == "cpu"
    with pytest.raises(UserError, match=r"trainer\.device=cpu: must be auto or cuda"):
        SlurmConf(gpus=1).device("cpu")


class Handler:
    """submitit's: requeues, and ends the process."""

    def __init__(self) -> None:
        self.called: list[int] = []

    def __call__(self, number: int, frame: object) -> None:
        self.called.append(number)
        raise SystemExit(-1)


@pytest.mark.parametrize(
    ("sent", "requeued"),
    [
        ([signal.SIGUSR1], True),
        ([signal.SIGTERM, signal.SIGUSR2], True),  # what a pre-emption may bring, in this order
        ([signal.SIGTERM], False),  # scancel: the user does not want it back
    ],
    ids=["limit", "preempted", "cancelled"],
)
def test_a_signal_is_a_checkpoint_before_it_is_a_requeue(
    sent: list[int], requeued: bool, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, (spec,) = prepare([tiny("residual", checkpoint_every=1000)])
    other, _ = prepare([RunConf(**vars(tiny("residual")) | {"study": "undisturbed"})])
    execute(spec, other, lambda: False)
    seen: list[int] = []

    def disturb(self: object, step: int, loss: torch.Tensor, last_eval: object) -> None:
        if step == 5 and not seen:
            for number in sent:
                seen.append(number)
                os.kill(os.getpid(), number)

    monkeypatch.setattr("plainres.progress.Progress.step", disturb)
    handler = Handler()
    before = signal.signal(signal.SIGUSR2, handler)  # type: ignore[arg-type]  # frames are of no interest
    try:
        with pytest.raises(SystemExit):
            RunTask()(spec, study)
        folder = study.run_folder(spec.name)
        assert folder.status() is Status.INTERRUPTED and seen == sent
        assert torch.load(folder.checkpoint, weights_only=True)["position"]["step"] == 6
        assert bool(handler.called) is requeued
        again = RunTask().checkpoint(spec, study)
        assert again.result() == "complete"
    finally:
        signal.signal(signal.SIGUSR2, before)
    for name in ("steps.parquet", "layers.parquet"):
        assert (folder.path / name).read_bytes() == (other.run_folder(spec.name).path / name).read_bytes()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(following, "QUEUE_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_what_becomes_of_runs_is_read_from_their_folders(tiny: Make) -> None:
    sweep = Sweep.prepare([tiny(seed=seed) for seed in range(5)])
    ended, works, fails, lost, silent = sweep.specs
    execute(ended, sweep.study, lambda: False)
    sweep.study.run_folder(fails.name).update(status=Status.FAILED, attempts=3, error={"message": "of before"})
    tasks = {s.name: Task(f"77_{i}", 3 if s is fails else 0) for i, s in enumerate((works, fails, lost, silent))}
    asked = 0

    def queued(jobs: Iterable[str]) -> set[str] | None:
        nonlocal asked
        asked += 1
        if asked == 3:
            execute(works, sweep.study, lambda: False)
            sweep.study.run_folder(fails.name).update(attempts=4, error={"message": "of now"})
        gone = {"77_2"} if asked in (2, 4, 5) else {"77_2", "77_3"} if asked > 5 else set()
        return None if asked == 1 else {"77_0", "77_1", "77_2", "77_3"} - gone

    found = {o.name: o for o in follow(sweep, tasks, 4, queued)}
    assert found[ended.name].skipped and found[ended.name].status is Status.COMPLETE
    assert found[works.name].status is Status.COMPLETE and not found[works.name].message
    assert (found[fails.name].status, found[fails.name].message) == (Status.FAILED, "of now")
    for spec, task in ((lost, "77_2"), (silent, "77_3")):
        assert found[spec.name].status is Status.PLANNED
        assert f"its task {task} left the queue" in found[spec.name].message
    assert asked == 7, "a task has to be missing twice in a row"


@pytest.mark.usefixtures("quick")
def test_fail_fast_holds_back_what_has_not_begun(cluster: Path, tiny: Make) -> None:
    confs = [tiny(seed=seed) for seed in range(2)]
    confs[0].fail_fast = True
    sweep = Sweep.prepare(confs)
    failed, waiting = sweep.specs
    sweep.study.run_folder(failed.name).update(status=Status.FAILED, attempts=1, error={"message": "no"})
    tasks = {failed.name: Task("77_0", 0), waiting.name: Task("77_1", 0)}
    outcomes = follow(sweep, tasks, 2, lambda jobs: set())
    assert [o.name for o in outcomes] == [failed.name]
    assert (cluster / "cancelled").read_text() == "--state=PENDING 77\n"


@pytest.mark.usefixtures("quick")
def test_ctrl_c_stops_waiting_and_not_the_runs(cluster: Path, tiny: Make, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep.prepare([tiny()])

    def queued(jobs: Iterable[str]) -> set[str]:
        os.kill(os.getpid(), signal.SIGINT)
        return {"77"}

    with pytest.raises(KeyboardInterrupt):
        follow(sweep, {sweep.specs[0].name: Task("77", 0)}, 1, queued)
    assert "scancel 77 ends them" in capsys.readouterr().out
    assert not (cluster / "cancelled").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_sweep_on_the_stand_in_trains_the_bits_of_this_machine(cluster: Path) -> None:
    """Whole: submitted, one task told to stop before its limit, requeued, followed, reported."""
    (cluster / "works").touch()
    command = [sys.executable, "-m", "run", *TINY, "trainer.steps=3000", "trainer.checkpoint_every=100000"]
    process = subprocess.Popen([*command, *SLURM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and not (started := list(Path().glob("results/far/runs/*/progress.json"))):
        time.sleep(0.05)
    victim = Study.open("results/far").run_folder(started[0].parent.name)
    while not (progress := victim.read_progress()).get("step"):
        time.sleep(0.05)
    os.kill(progress["pid"], signal.SIGUSR2)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "runs: 2 complete" in out and not err
    assert victim.read()["attempts"] == 2, "it was requeued"
    here = subprocess.run([*command, "results_dir=here", "hydra/launcher=basic"], capture_output=True, text=True)
    assert here.returncode == 0, here.stderr
    for mine, other in zip(Study.open("here/far").runs(), Study.open("results/far").runs(), strict=True):
        assert mine.name == other.name
        for table in ("steps.parquet", "layers.parquet"):
            assert (mine.path / table).read_bytes() == (other.path / table).read_bytes()
        weights = [torch.load(f.checkpoint, weights_only=True)["parameters"] for f in (mine, other)]
        assert torch.equal(*weights)
    assert len(list(Path("results/far/slurm").glob("*_log.out"))) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_submitits_local_executor_requeues_to_the_same_bits(tiny: Make) -> None:
    import submitit

    from plainres.launch.slurm import submit_runs

    long = tiny("residual", steps=4000, eval_every=1000, checkpoint_every=100000)
    sweep = Sweep.prepare([long])
    jobs: list[submitit.Job[str]] = []

    class Executor(submitit.LocalExecutor):
        """Keeps its jobs: the process of one that is forgotten is nobody's."""

        def map_array(self, *args: object) -> list[submitit.Job[str]]:  # type: ignore[override]
            jobs.extend(super().map_array(*args))  # type: ignore[arg-type]
            return jobs

    executor = Executor(sweep.study.path / "slurm")
    (task,) = submit_runs(executor, sweep.study, sweep.specs).values()
    folder = sweep.study.run_folder(sweep.specs[0].name)
    until = time.monotonic() + 120
    while time.monotonic() < until and not folder.read_progress().get("step"):
        time.sleep(0.05)
    os.kill(folder.read_progress()["pid"], signal.SIGUSR2)
    assert jobs[0].result() == "complete"
    jobs[0]._process.wait()  # type: ignore[attr-defined]
    assert folder.status() is Status.COMPLETE and folder.read()["attempts"] == 2
    log = (sweep.study.path / "slurm" / f"{task.id}_0_log.out").read_text()
    assert "interrupted after" in log and "complete after" in log
    undisturbed, (spec,) = prepare([RunConf(**vars(long) | {"study": "undisturbed"})])
    execute(spec, undisturbed, lambda: False)
    for table in ("steps.parquet", "layers.parquet"):
        assert (folder.path / table).read_bytes() == (undisturbed.run_folder(spec.name).path / table).read_bytes()
