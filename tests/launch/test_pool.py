"""The worker pool: same bits as in this process, a dead worker costs its own job, fail-fast, Ctrl-C."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pebble import ProcessExpired, ProcessPool

from plainres.errors import UserError
from plainres.job import Outcome, execute
from plainres.launch import pool
from plainres.launch.lease import lease
from plainres.launch.pool import pool_size, worker_pool
from plainres.launch.prepare import prepare
from plainres.launch.settings import LocalConf
from plainres.launch.sweep import Sweep, exit_code
from plainres.schema import DataConf, RunConf
from plainres.store import Status

Make = Callable[..., RunConf]
pytestmark = pytest.mark.timeout(300)  # each starts worker processes that import torch


def run_pool(sweep: Sweep, jobs: int) -> list[Outcome]:
    with worker_pool(LocalConf(jobs=jobs), 1, "cpu", "digits") as run_jobs:
        return run_jobs(sweep)


def when_training(sweep: Sweep, act: Callable[[int], None]) -> threading.Thread:
    """Call ``act`` with the worker's pid once the first job of the sweep reports progress."""

    def wait() -> None:
        folder = sweep.study.run_folder(sweep.specs[0].name)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if folder.read_progress().get("step"):
                act(folder.read_progress()["pid"])
                return
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_pool_and_this_process_train_the_same_bits(tiny: Make, tmp_path: Path) -> None:
    sweep = Sweep.prepare([tiny("plain"), tiny("residual")])
    outcomes = run_pool(sweep, 2)
    assert [o.status for o in outcomes] == [Status.COMPLETE] * 2
    study, specs = prepare(
        [RunConf(**vars(tiny(c)) | {"results_dir": str(tmp_path / "b")}) for c in ("plain", "residual")]
    )
    for spec in specs:
        execute(spec, study, lambda: False)
        mine, other = study.run_folder(spec.name), sweep.study.run_folder(spec.name)
        for table in ("steps.parquet", "layers.parquet"):
            assert (mine.path / table).read_bytes() == (other.path / table).read_bytes()
        weights = [torch.load(f.checkpoint, weights_only=True)["parameters"] for f in (mine, other)]
        assert torch.equal(*weights)


@pytest.mark.slow  # the record of such a run: faults/test_commands.py
def test_a_killed_worker_costs_only_its_own_job(tiny: Make) -> None:
    sweep = Sweep.prepare([tiny("plain", steps=10**6, eval_every=10**6), tiny("residual"), tiny("residual", seed=1)])
    thread = when_training(sweep, lambda pid: os.kill(pid, signal.SIGKILL))
    outcomes = {o.name: o for o in run_pool(sweep, 1)}
    thread.join()
    killed, *others = (outcomes[s.name] for s in sweep.specs)
    assert killed.status is Status.FAILED and "died" in killed.message
    assert [o.status for o in others] == [Status.COMPLETE] * 2
    assert exit_code(list(outcomes.values())) == 1
    folder = sweep.study.run_folder(killed.name)
    assert folder.status() is Status.FAILED and not folder.read_progress()


@pytest.mark.slow
@pytest.mark.parametrize(("fail_fast", "started"), [(False, 3), (True, 1)])
def test_a_failed_run_stops_the_others_only_when_asked(tiny: Make, fail_fast: bool, started: int) -> None:
    confs = [tiny(depth=8), tiny(depth=6), tiny(depth=4)]  # the longest runs first
    for conf in confs:
        conf.fail_fast = fail_fast
    sweep = Sweep.prepare(confs)
    (sweep.study.run_folder(sweep.specs[0].name).path / "steps.jsonl").mkdir()  # nothing can be written there
    outcomes = run_pool(sweep, 1)
    assert len(outcomes) == started
    failed = outcomes[0]
    assert failed.status is Status.FAILED and "traceback.txt" in failed.message
    assert "IsADirectoryError" in sweep.study.run_folder(failed.name).traceback.read_text()


@pytest.mark.slow  # of a command: launch/test_launchers.py
def test_interrupt_checkpoints_and_the_same_command_goes_on(tiny: Make) -> None:
    long = tiny("plain", steps=10**6, eval_every=10**6, checkpoint_every=10**6)
    sweep = Sweep.prepare([long, tiny("residual")])
    thread = when_training(sweep, lambda pid: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_pool(sweep, 1)
    thread.join()
    interrupted, untouched = (sweep.study.run_folder(s.name) for s in sweep.specs)
    assert interrupted.status() is Status.INTERRUPTED
    assert torch.load(interrupted.checkpoint, weights_only=True)["position"]["step"] > 0
    assert untouched.status() is Status.PLANNED


def test_jobs_fill_the_cores_and_no_more() -> None:
    cores = len(os.sched_getaffinity(0))
    assert pool_size(LocalConf(jobs=7), 1, 0) == pool_size(LocalConf(jobs=7), 1, 2) == 7
    assert pool_size(LocalConf(), 1, 0) == cores
    assert pool_size(LocalConf(), 10**6, 0) == 1


def test_jobs_fill_the_gpus_and_no_more() -> None:
    assert pool_size(LocalConf(), 1, 1) == 1
    assert pool_size(LocalConf(jobs_per_gpu=3), 1, 2) == 6


def test_a_worker_trains_on_the_device_that_it_holds(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With devices that are not there: the job is told of the free one, and gives it back."""
    study, (spec,) = prepare([tiny()])
    monkeypatch.setattr(pool, "_gpus", {"cuda:0": "a", "cuda:1": "b"})
    monkeypatch.setattr(pool, "slots_folder", lambda: tmp_path / "slots")
    monkeypatch.setattr(pool, "_should_stop", lambda: True)
    monkeypatch.setattr(pool, "execute_group", lambda specs, study, stop: [spec.device for spec in specs])
    with lease({"cuda:0": "a"}, 1, tmp_path / "slots", lambda: True):
        assert pool._work([spec], study) == ["cuda:1"]
        with lease({"cuda:1": "b"}, 1, tmp_path / "slots", lambda: True):
            (outcome,) = pool._work([spec], study)
            assert outcome.status is Status.PLANNED, "no device, and asked to stop"
    assert pool._work([spec], study) == ["cuda:0"]


def test_a_mistake_found_while_workers_start_leaves_none_behind(tiny: Make) -> None:
    with pytest.raises(UserError, match="depth=5"), worker_pool(LocalConf(jobs=2), 1, "cpu", "digits"):
        Sweep.prepare([tiny(depth=5)])
    assert not multiprocessing.active_children()


def test_ctrl_c_while_workers_start_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Starting:
        def __init__(self, **settings: object) -> None:
            pass

        def schedule(self, *work: object, **settings: object) -> None:
            signal.pthread_kill(
                threading.get_ident(), signal.SIGINT
            )  # other threads of the test's process hold nothing
            assert signal.SIGINT in signal.sigpending(), "it waits, and what is started here inherits that it does"

        def stop(self) -> None:
            ended.append("stop")

        join = stop

    ended: list[str] = []
    monkeypatch.setattr(pool, "ProcessPool", Starting)
    with pytest.raises(KeyboardInterrupt), worker_pool(LocalConf(jobs=1), 1, "cpu", DataConf()):
        pytest.fail("it went on")
    assert ended == ["stop", "stop"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_ctrl_c_is_for_no_worker_also_not_for_one_that_replaces_a_dead_one() -> None:
    workers = ProcessPool(max_workers=1, context=multiprocessing.get_context("spawn"))
    try:
        with pool._interrupts_held_back():
            first = workers.schedule(os.getpid).result()
        assert signal.SIGINT in workers.schedule(signal.pthread_sigmask, args=(signal.SIG_BLOCK, ())).result()
        working = workers.schedule(time.sleep, args=(60,))
        while not working.running():
            time.sleep(0.01)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ProcessExpired):
            working.result()
        second = workers.schedule(os.getpid).result()
        assert second != first
        assert signal.SIGINT in workers.schedule(signal.pthread_sigmask, args=(signal.SIG_BLOCK, ())).result()
    finally:
        workers.stop()
        workers.join()
