"""One run on several devices, here two processes on a CPU: the same numbers as one, one folder, and no hanging."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

import run
from plainres.config import compose
from plainres.errors import UserError
from plainres.launch.prepare import prepare
from plainres.launch.together import check_shared
from plainres.models.layer import BatchNorm
from plainres.ranks import Ranks, ranks, synced
from plainres.schema import RunConf
from plainres.store import RunFolder, Status, Study
from small_sweep import check_same_run

Make = Callable[..., RunConf]
TWO = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
SCRIPT = Path(__file__).parents[1] / "two_ranks.py"
SMALL = ["depth=6", "connection=residual", "model.width=16", "trainer.device=cpu"]


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """This process as the only one of its group."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 3, 2)], ids=["vectors", "maps"])
def test_a_synced_norm_is_torchs_of_the_whole_batch(shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw, dtype=torch.float64) * 3 + 2
    mine, other = BatchNorm(5).double(), (torch.nn.BatchNorm1d if len(shape) == 2 else torch.nn.BatchNorm2d)(5).double()
    weight, bias = (torch.randn(5, generator=draw, dtype=torch.float64) for _ in range(2))
    into = torch.randn(shape, generator=draw, dtype=torch.float64)
    seen = []
    for norm in (mine, other):
        norm.weight.data.copy_(weight)
        norm.bias.data.copy_(bias)
        given = x.clone().requires_grad_()
        with synced([mine]):
            y = norm(given)
        y.backward(into)
        assert given.grad is not None and norm.weight.grad is not None and norm.bias.grad is not None
        seen.append([y, given.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var])
    for a, b in zip(*seen, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert not mine.synced


@pytest.mark.usefixtures("one_rank")
def test_what_ranks_tell_each_other() -> None:
    here = ranks()
    assert here == Ranks(0, 1)
    assert here.any(True) and not here.any(False)
    index = torch.arange(12)
    assert torch.equal(torch.cat([Ranks(r, 3).part(index) for r in range(3)]), index)


REFUSED = {
    "trainer.batch=127": ["trainer.batch=127", "a multiple of trainer.devices=2"],
    "connection=stochastic_depth": ["connection.drop=linear", "one device"],
    "connection=dropout_shortcut": ["connection.shortcut=dropout", "one device"],
    "trainer.replicas=4": ["trainer.replicas=4", "1 on several devices"],
    "start=built": ["start.depth=10", "several devices"],
}


@pytest.mark.parametrize(("given", "words"), REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_be_shared_is_refused(given: str, words: list[str]) -> None:
    conf = compose([given, "depth=20"])
    with pytest.raises(UserError) as error:
        check_shared(replace(conf, trainer=replace(conf.trainer, devices=2)))
    assert all(word in str(error.value) for word in words)


def test_devices_without_torchrun_are_refused(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.devices=2: this run has 1; start it with torchrun"):
        prepare([tiny(devices=2)])
    assert not list(tmp_path.iterdir())


def test_a_sweep_under_torchrun_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run", "+sweep=smoke"])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "no sweep" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_two_processes_train_what_one_trains(norm: str, tmp_path: Path) -> None:
    """In float64, so that the rounding errors of 40 updates stay small: float32's would grow to 1 %."""
    told = together(tmp_path, f"model.norm={norm}", "trainer.steps=40", "trainer.eval_every=10", "probe.every=0")
    assert told["updates"] == 40 and told["off"] < 1e-9
    assert len(told["steps, both"]) == len(told["steps, alone"]) >= 8
    for both, alone in zip(told["steps, both"], told["steps, alone"], strict=True):
        assert both.keys() == alone.keys()
        # Weights are float64 here (above), but a loss is a float32 mean (step.py): that of two halves rounds otherwise.
        check_close(both.values(), alone.values(), rel=1e-6, tiny=0.0)
        for name in ("train_error", "val_error", "train_error_running"):
            assert both[name] == alone[name], "an error is a count"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_probes_read_what_one_device_reads(norm: str, tmp_path: Path) -> None:
    told = together(tmp_path, f"model.norm={norm}", "trainer.steps=7", "schedule.warmup_steps=2", "probe.every=4")
    # Steps 0, 1, 2, 4 and 6 are probed; 3 and 5 are shared.
    assert len(told["layers, both"]) == 5 and told["off"] < 1e-4
    assert told["layers, both"][:3] == told["layers, alone"][:3]
    for both, alone in zip(told["layers, both"], told["layers, alone"], strict=True):
        for scope, metrics in alone.items():
            for name, values in metrics.items():
                # Of a gradient that is 0 but for rounding (before a batch norm) only its smallness is the same.
                check_close(both[scope][name], values, rel=1e-3, tiny=1e-6)


def check_close(mine: Iterable[float | None], other: Iterable[float | None], rel: float, tiny: float) -> None:
    """The same values are missing, and the others are equal to within rounding."""
    for a, b in zip(mine, other, strict=True):
        assert (a is None and b is None) or a == pytest.approx(b, rel=rel, abs=tiny)


def together(place: Path, *overrides: str) -> dict[str, Any]:
    """What two_ranks.py tells of a training."""
    done = subprocess.run([*TWO, str(SCRIPT), str(place), *SMALL, *overrides], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads((place / "told.json").read_text())
    return told


def start(place: Path, *overrides: str) -> "subprocess.Popen[str]":
    command = [*TWO, "-m", "run", *SMALL, "trainer.checkpoint_every=50", f"results_dir={place}", *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def the_run(place: Path) -> RunFolder:
    (folder,) = Study.open(place / "single").runs()
    return folder


def when_training(place: Path, after: int) -> int:
    """Wait until rank 0 has come past a step; its process."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for found in place.glob("single/runs/*/progress.json"):
            progress = RunFolder(found.parent).read_progress()
            if progress.get("step", 0) > after:
                return int(progress["pid"])
        time.sleep(0.02)
    raise AssertionError("it does not train")


def sibling(pid: int) -> int:
    """The other rank: torchrun's other child."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (other,) = (int(child) for child in children if int(child) != pid)
    return other


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_folder_and_whatever_happens_the_same_command_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    steps = ["trainer.steps=400", "model.norm=layer"]
    undisturbed = start(tmp_path / "a", *steps)
    out, err = undisturbed.communicate(timeout=200)
    assert undisturbed.returncode == 0, err
    assert out.count("plainres: complete") == 1, "rank 0 speaks"

    place = tmp_path / "b"
    process = start(place, *steps)
    os.kill(sibling(when_training(place, 60)), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    record = the_run(place).read()
    assert (record["status"], record["error"]["kind"]) == ("failed", "LostRank")
    assert "another rank died" in err

    process = start(place, *steps)
    when_training(place, torch.load(the_run(place).checkpoint, weights_only=True)["position"]["step"] + 20)
    process.terminate()  # torchrun hands it to both
    process.communicate(timeout=120)
    assert the_run(place).status() is Status.INTERRUPTED

    process = start(place, *steps)
    assert process.communicate(timeout=200) and process.returncode == 0
    one, other = the_run(tmp_path / "a"), the_run(place)
    assert one.name == other.name and other.read()["attempts"] == 3
    assert other.read()["identity"]["trainer.devices"] == 2
    for table in ("steps.parquet", "layers.parquet"):
        assert (one.path / table).read_bytes() == (other.path / table).read_bytes()
    weights = [torch.load(f.checkpoint, weights_only=True)["parameters"] for f in (one, other)]
    assert torch.equal(*weights)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_killed_rank_0_leaves_a_stale_run_that_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    steps = ["trainer.steps=300", "model.norm=layer"]
    undisturbed = start(tmp_path / "a", *steps)
    _, err = undisturbed.communicate(timeout=200)
    assert undisturbed.returncode == 0, err

    process = start(tmp_path / "b", *steps)
    os.kill(when_training(tmp_path / "b", 60), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert the_run(tmp_path / "b").status() is Status.STALE and the_run(tmp_path / "b").checkpoint.exists()

    process = start(tmp_path / "b", *steps)
    assert process.communicate(timeout=200) and process.returncode == 0
    one, other = the_run(tmp_path / "a"), the_run(tmp_path / "b")
    assert other.read()["attempts"] == 2
    check_same_run(other, one)
