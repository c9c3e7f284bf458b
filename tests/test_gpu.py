"""On a GPU (pytest -m gpu): the same training as on the CPU, to tolerance, and divergence by the device's own flag."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plainres.assembly import assemble
from plainres.data import load
from plainres.job import execute
from plainres.launch.prepare import prepare
from plainres.options import Compile, Drop, Precision, Shortcut
from plainres.rows import read_lines, read_table
from plainres.schema import ConnectionConf, DataConf, ModelConf, OptimizerConf, RunConf, ScheduleConf, TrainerConf
from plainres.store import RunFolder, Status

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]


def train(tmp_path: Path, device: str, lr: float = 0.03, **trainer: Any) -> RunFolder:
    conf = RunConf(
        depth=8,
        connection=ConnectionConf("residual", Shortcut.identity),
        model=ModelConf(width=16),
        optimizer=OptimizerConf(lr=lr),
        schedule=ScheduleConf(warmup_steps=2),
        trainer=replace(TrainerConf(), **{"steps": 20, "eval_every": 5, "device": device} | trainer),
        study=device,
        results_dir=str(tmp_path),
    )
    study, (spec,) = prepare([conf])
    outcome = execute(spec, study, lambda: False)
    assert outcome.status in (Status.COMPLETE, Status.DIVERGED), outcome.message
    return study.run_folder(spec.name)


def test_the_gpu_trains_what_the_cpu_trains(tmp_path: Path) -> None:
    folders = [train(tmp_path, device) for device in ("cpu", "cuda")]
    layout = folders[0].read()["layout"]
    cpu, gpu = (read_table(f, "layers", layout).to_pandas() for f in folders)
    assert (cpu[["step", "scope", "layer_name", "metric"]] == gpu[["step", "scope", "layer_name", "metric"]]).all(None)
    first = cpu["step"] == 0
    torch.testing.assert_close(
        torch.tensor(gpu["value"][first].to_numpy(copy=True)),
        torch.tensor(cpu["value"][first].to_numpy(copy=True)),
        rtol=2e-3, atol=1e-5, equal_nan=True,
    )  # fmt: skip
    assert abs(folders[0].read()["final"]["train_loss"] - folders[1].read()["final"]["train_loss"]) < 0.1


def test_divergence_is_seen_by_the_devices_flag(tmp_path: Path) -> None:
    cpu, gpu = (train(tmp_path, device, lr=1e30).read() for device in ("cpu", "cuda"))
    assert cpu["status"] == gpu["status"] == "diverged"
    assert cpu["diverged"]["step"] == gpu["diverged"]["step"]


def test_two_gpu_runs_have_the_same_bits(tmp_path: Path) -> None:
    one, other = (train(tmp_path / name, "cuda") for name in "ab")
    assert (one.path / "steps.parquet").read_bytes() == (other.path / "steps.parquet").read_bytes()


@pytest.mark.parametrize("precision", [Precision.tf32, Precision.bf16, Precision.fp16])
def test_other_precisions_train_what_float32_trains(tmp_path: Path, precision: Precision) -> None:
    exact, other = (train(tmp_path / str(p), "cuda", precision=p) for p in (Precision.float32, precision))
    mine, theirs = other.read(), exact.read()
    assert mine["run_id"] != theirs["run_id"] and mine["environment"]["precision"] == str(precision)
    assert abs(mine["final"]["train_loss"] - theirs["final"]["train_loss"]) < 0.1
    layout = mine["layout"]
    rows, expected = (read_table(f, "layers", layout).to_pandas() for f in (other, exact))
    first = (expected["step"] == 0) & (expected["metric"] == "output_norm")
    torch.testing.assert_close(
        torch.tensor(rows["value"][first].to_numpy(copy=True)),
        torch.tensor(expected["value"][first].to_numpy(copy=True)),
        rtol=0.05, atol=0.0,
    )  # fmt: skip


def test_divergence_of_a_float16_run_is_one_that_no_scale_helps(tmp_path: Path) -> None:
    record = train(tmp_path, "cuda", lr=1e30, precision=Precision.fp16).read()
    assert record["status"] == "diverged" and record["diverged"]["step"] <= 3


def final_loss(folder: RunFolder) -> float:
    return float(folder.read()["final"]["train_loss"])


def test_less_memory_is_the_same_bits(tmp_path: Path) -> None:
    whole, less = (train(tmp_path / str(k), "cuda", checkpoint_blocks=k) for k in (0, 2))
    layout = whole.read()["layout"]
    for name in ("steps", "layers"):
        assert read_table(whole, name, layout).equals(read_table(less, name, layout))


def test_a_batch_in_parts_trains_what_the_batch_trains(tmp_path: Path) -> None:
    whole, parts = (train(tmp_path / str(k), "cuda", accumulate=k) for k in (1, 2))
    assert abs(final_loss(whole) - final_loss(parts)) < 0.1


def test_recorded_updates_train_what_updates_train(tmp_path: Path) -> None:
    one, recorded = (train(tmp_path / str(on), "cuda", steps=60, cuda_graph=on) for on in (False, True))
    assert recorded.read()["environment"]["engine"] == "cuda graph"
    assert abs(final_loss(one) - final_loss(recorded)) < 0.05
    layout = one.read()["layout"]
    mine, theirs = (read_table(f, "layers", layout).to_pandas() for f in (recorded, one))
    early = theirs["step"] <= 8  # the fourth probed step, 4, is recorded, and 8 is it again
    torch.testing.assert_close(
        torch.tensor(mine["value"][early].to_numpy(copy=True)),
        torch.tensor(theirs["value"][early].to_numpy(copy=True)),
        rtol=0.02, atol=1e-4, equal_nan=True,
    )  # fmt: skip


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_divergence_of_recorded_updates_is_found_at_its_step(tmp_path: Path, cuda_graph: bool) -> None:
    plain, recorded = (train(tmp_path / str(on), "cuda", lr=1e30, cuda_graph=on).read() for on in (False, cuda_graph))
    assert plain["status"] == recorded["status"] == "diverged"
    assert plain["diverged"]["step"] == recorded["diverged"]["step"]


def test_compiled_blocks_train_what_blocks_train(tmp_path: Path) -> None:
    one, compiled = (train(tmp_path / c, "cuda", compile=c) for c in (Compile.off, Compile.blocks))
    assert compiled.read()["environment"]["engine"] == "compiled blocks"
    assert abs(final_loss(one) - final_loss(compiled)) < 0.1


def test_nothing_waits_for_the_device_between_evaluations(tmp_path: Path) -> None:
    conf = RunConf(
        depth=8,
        connection=ConnectionConf("stochastic_depth", Shortcut.identity, drop=Drop.linear),
        model=ModelConf(width=16),
        optimizer=OptimizerConf(clip_norm=1.0),
        schedule=ScheduleConf(warmup_steps=2),
        trainer=replace(TrainerConf(), steps=40, device="cuda"),
        study="sync",
        results_dir=str(tmp_path),
    )
    study, (spec,) = prepare([conf])
    data = load(DataConf())
    training = assemble(spec, study.run_folder(spec.name), data, {}, lambda lengths: None, lambda: False)
    plan = training.parts.plan
    training.parts.plan = replace(plan, probes=frozenset({2, 20, 25}))
    for step in range(5):  # libraries begin, memory is taken; step 2 is probed
        training.update(step)
    training._flush()
    training._progress._written = -1e9  # the live view wants to know, too
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(5, 30):  # over the end of an epoch; 20 and 25 are probed, and at 25 the row of 20 is written
            training.update(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    training._flush()
    training.parts.writer.close()
    assert [r["step"] for r in read_lines(training.parts.folder.path / "layers.jsonl")] == [2, 20, 25]
