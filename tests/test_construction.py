"""Runs that start from a trained network: exactness, job order, resuming, refusals, and what the record says."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plainres import checkpoint, construction, environment, job
from plainres.audit import audit
from plainres.construction import agreement, trunk_moments
from plainres.data import load
from plainres.errors import UserError
from plainres.evaluate import chunks
from plainres.models.networks import Network
from plainres.pair import make_spec, partner_of, source_of
from plainres.rows import read_table
from plainres.schema import RunConf, StartConf
from plainres.store import RunFolder, Status, Study
from plainres.validation import validate

BUILT = {"depth": 10, "start.depth": 4, "trainer.steps": 6}
Execute = Callable[..., tuple[job.Outcome, RunFolder]]
Make = Callable[..., RunConf]


@pytest.fixture
def built(make_conf: Make) -> Make:
    return lambda connection="plain", values=None: make_conf(connection, BUILT | (values or {}))


def source_folder(conf: RunConf, study: Study) -> RunFolder:
    source = source_of(conf)
    assert source is not None
    return study.run_folder(make_spec(source, "cpu").name)


def rows_of(folder: RunFolder) -> list[Any]:
    layout = folder.read()["layout"]
    return [read_table(folder, table, layout) for table in ("steps", "layers")]


def same_bits(one: RunFolder, other: RunFolder) -> bool:
    weights = [torch.load(f.checkpoint, weights_only=True)["parameters"] for f in (one, other)]
    equal_rows = all(a.equals(b) for a, b in zip(rows_of(one), rows_of(other), strict=True))
    return equal_rows and torch.equal(*weights)


# The record.


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_the_record_says_how_exactly_both_agree(
    execute: Execute, built: Make, study: Study, family: str, norm: str, connection: str
) -> None:
    # A source that has learned something, so that its outputs and statistics are no longer those of the draws.
    conf = built(connection, {"model.name": family, "model.norm": norm, "data.subset": 300})
    outcome, folder = execute(conf)
    assert outcome.status is Status.COMPLETE, outcome.message
    record, source = folder.read(), source_folder(conf, study)
    found = record["construction"]
    assert found["source"] == source.read()["run_id"] and found["source_name"] == source.name
    assert source.status() is Status.COMPLETE and found["num_inserted_blocks"] == 3
    assert found["train_error"] == found["source_train_error"] == source.read()["final"]["train_error"]
    assert found["max_output_difference"] <= found["tolerance"] < 1e-4 * found["max_output"]
    exact = norm == "none" or connection == "residual"
    assert found["max_output_difference"] == 0 or not exact
    assert (found["max_output_difference_batchstats"] == 0) is exact
    assert abs(found["train_error_batchstats"] - found["source_train_error_batchstats"]) < 0.2
    assert found["perturbed_train_error"] is None
    first = next(r for r in rows_of(folder)[0].to_pylist() if r["step"] == 0 and r["metric"] == "train_error")
    assert first["value"] == pytest.approx(found["train_error"])


def test_noise_comes_after_the_check_and_its_error_is_recorded(execute: Execute, built: Make) -> None:
    _, clean = execute(built())
    _, noisy = execute(built("plain", {"start.noise": 2.0}))
    kept, moved = (f.read()["construction"] for f in (clean, noisy))
    assert moved["perturbed_train_error"] > moved["train_error"] + 0.05
    assert moved | {"perturbed_train_error": None} == kept


def test_moments_are_those_of_the_trunk_in_float64(built: Make, make_network: Callable[..., Network]) -> None:
    data = load(built().data)
    for family in ("mlp", "cnn"):
        network = make_network(built("plain", {"model.name": family}), data.input_shape, data.num_classes)
        x = network.stem.eval()(network.prepare(data.train.images))
        with torch.no_grad():
            for block in network.blocks:
                x = block.eval()(x)
        values = x.detach().double().movedim(1, 0).flatten(1)
        found = trunk_moments(network, data.train)
        torch.testing.assert_close(found.mean_C, values.mean(1), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(found.var_C, values.var(1, correction=0), rtol=1e-5, atol=1e-8)


def test_a_network_that_is_not_the_same_is_refused(
    execute: Execute, built: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = construction.insert_identity_blocks

    def spoiled(deep: Network, *args: Any) -> Any:
        inserted = real(deep, *args)
        with torch.no_grad():
            inserted[1].branch[0].op.weight[2, 2] = 0.99
        return inserted

    monkeypatch.setattr(construction, "insert_identity_blocks", spoiled)
    outcome, folder = execute(built())
    assert outcome.status is Status.FAILED and folder.read()["status"] == "failed"
    assert "its outputs differ by" in outcome.message and "\n" not in outcome.message
    assert not folder.checkpoint.exists() and not folder.traceback.exists()


def test_outputs_that_are_not_finite_are_no_agreement(make_conf: Make, make_network: Callable[..., Network]) -> None:
    conf = make_conf()
    data = load(conf.data)
    one, other = (make_network(conf, data.input_shape, data.num_classes).eval() for _ in range(2))
    with torch.no_grad():
        other.head.bias[0] = float("nan")
        assert not agreement(one, other, chunks(data.train)).max_difference <= 1e9


# Whose turn it is.


def test_any_order_of_jobs_gives_the_same_bits(execute: Execute, built: Make, tmp_path: Path, study: Study) -> None:
    conf, other = built(), Study.create(tmp_path, "other_order")
    _, first = execute(conf)
    source = source_of(conf)
    assert source is not None
    _, source_first = execute(source, into=other)
    outcome, second = execute(conf, into=other)
    assert outcome.status is Status.COMPLETE and same_bits(first, second)
    assert same_bits(source_folder(conf, study), source_first)
    assert execute(source)[0].skipped, "the constructed run has trained it"


def test_two_at_once_share_one_source(execute: Execute, built: Make, study: Study) -> None:
    """Another process trains the source: the run waits, and starts from it once it has ended."""
    conf = built()
    held = source_folder(conf, study)
    assert held.acquire()
    outcomes: list[job.Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(execute(conf)[0]))
    thread.start()
    time.sleep(1.5)
    waiting = thread.is_alive() and not (held.path / "run.json").exists()
    held.release()
    thread.join(60)
    assert waiting and outcomes[0].status is Status.COMPLETE, outcomes
    assert held.read()["attempts"] == 1


def test_who_waits_for_its_source_can_be_interrupted(execute: Execute, built: Make, study: Study) -> None:
    conf = built()
    held = source_folder(conf, study)
    assert held.acquire()
    outcome, folder = execute(conf, stop_at=0)
    held.release()
    assert outcome.status is Status.INTERRUPTED and folder.read()["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pool_trains_a_shared_source_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "run", "-m", "start=built", "depth=12", "start.noise=0,0.1", "model.width=8",
               "trainer.steps=60", "hydra.launcher.jobs=2", f"results_dir={tmp_path}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    folders = list(Study.open(tmp_path / "single").runs())
    assert [f.status() for f in folders] == [Status.COMPLETE] * 3
    assert {f.read()["attempts"] for f in folders} == {1}
    sources = {f.read()["construction"]["source"] for f in folders if "-from010-" in f.name}
    assert len(sources) == 1


KILLED = [sys.executable, "-m", "run", "start=built", "depth=12", "model.width=16", "trainer.steps=200",
          "trainer.eval_every=10", "trainer.checkpoint_every=5", "probe.every=5", "trainer.device=cpu"]  # fmt: skip


def kill_after(results: Path, rows: int) -> bool:
    """Kill the command once so many lines are written by the run or its source; False when it ended before."""
    process = subprocess.Popen([*KILLED, f"results_dir={results}"], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        tables = list(results.glob("single/runs/*/steps.jsonl"))
        if sum(t.read_bytes().count(b"\n") for t in tables if t.exists()) >= rows:
            process.kill()
            process.wait()
            return True
        time.sleep(0.002)
    return False


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_run_and_a_killed_source_resume_to_the_same_bits(tmp_path: Path) -> None:
    killed = [kill_after(tmp_path / "killed", rows) for rows in (3, 20, 45, 10, 30)]
    assert any(killed), "no kill arrived in time: make the run longer"
    for results in ("killed", "undisturbed"):
        subprocess.run([*KILLED, f"results_dir={tmp_path / results}"], check=True, capture_output=True)
    one, other = (list(Study.open(tmp_path / name / "single").runs()) for name in ("killed", "undisturbed"))
    assert len(one) == len(other) == 2 and max(f.read()["attempts"] for f in one) > 1
    assert all(same_bits(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("stop_at", [3, 9], ids=["in the source", "in the run itself"])
def test_a_stop_at_any_moment_resumes_to_the_same_bits(
    execute: Execute, built: Make, tmp_path: Path, study: Study, stop_at: int
) -> None:
    conf = built("plain", {"start.noise": 0.1})
    outcome, folder = execute(conf, stop_at=stop_at)
    assert outcome.status is Status.INTERRUPTED
    assert source_folder(conf, study).status() is (Status.INTERRUPTED if stop_at == 3 else Status.COMPLETE)
    assert execute(conf)[0].status is Status.COMPLETE
    _, undisturbed = execute(conf, into=Study.create(tmp_path, "undisturbed"))
    assert same_bits(folder, undisturbed)
    assert folder.read()["construction"] == undisturbed.read()["construction"]


def test_a_checkpoint_holds_everything_and_the_source_may_go(execute: Execute, built: Make, study: Study) -> None:
    conf = built()
    _, folder = execute(conf, stop_at=9)
    record = folder.read()["construction"]
    source_folder(conf, study).checkpoint.unlink()
    assert execute(conf)[0].status is Status.COMPLETE
    assert folder.read()["construction"] == record is not None


# What cannot be started from.


def test_a_source_that_diverges_is_nothing_to_start_from(execute: Execute, built: Make, study: Study) -> None:
    conf = built("plain", {"optimizer.lr": 1e30, "schedule.warmup_steps": 0})
    outcome, folder = execute(conf)
    assert outcome.status is Status.FAILED and "ended as diverged" in outcome.message
    assert source_folder(conf, study).name in outcome.message and "\n" not in outcome.message
    assert source_folder(conf, study).status() is Status.DIVERGED and not folder.checkpoint.exists()


def test_a_source_that_fails_passes_its_message_on(
    execute: Execute, built: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = job.compact

    def fail(folder: RunFolder, layout: Any) -> None:
        if "-d004-" in folder.name:
            raise RuntimeError("boom")
        real(folder, layout)

    monkeypatch.setattr(job, "compact", fail)
    outcome, _ = execute(built())
    assert outcome.status is Status.FAILED and "ended as failed (RuntimeError: boom" in outcome.message
    monkeypatch.setattr(job, "compact", real)
    assert execute(built())[0].status is Status.COMPLETE


def test_lost_weights_of_a_source_are_named(execute: Execute, built: Make, study: Study) -> None:
    conf = built()
    source = source_of(conf)
    assert source is not None
    _, folder = execute(source)
    folder.checkpoint.unlink()
    outcome, _ = execute(conf)
    assert outcome.status is Status.FAILED and f"delete {folder.path}" in outcome.message


def test_a_source_trained_elsewhere_is_refused_unless_asked_for(
    execute: Execute, built: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(built())
    assert source is not None
    with monkeypatch.context() as patched:
        patched.setattr(environment, "code_hash", lambda: "f" * 16)
        execute(source)
    outcome, _ = execute(built())
    assert outcome.status is Status.FAILED and "was trained elsewhere (code_hash" in outcome.message
    assert execute(built("plain", {"trainer.allow_mixed_environment": True}))[0].status is Status.COMPLETE


REFUSED = [
    ("plain", {"start.depth": 10}, "depth=10: must be one of 12, 14, … with start.depth=10; "),
    ("plain", {"start.depth": 10, "depth": 5}, "depth=5: must be one of 12, 14, … with start.depth=10; "),
    ("plain", {"start.depth": 4, "depth": 5}, "depth=5: must be one of 6, 8, … with start.depth=4; "),
    ("plain", {"start.depth": 3}, "start.depth=3: must be one of 4, 6, …; "),
    ("plain", {"start.depth": 5}, "start.depth=5: must be one of 4, 6, …; "),
    ("plain", {"start.depth": None, "start.noise": 0.1}, "start.noise=0.1"),
    ("plain", {"start.noise": -0.1}, "start.noise=-0.1"),
    ("plain", {"start.noise": float("nan")}, "start.noise=nan"),
    ("plain", {"model.norm": "layer"}, "model.norm=layer"),
    ("plain", {"model.activation": "tanh"}, "model.activation=tanh"),
    ("plain", {"model.placement": "pre_activation"}, "model.placement=pre_activation"),
    ("plain", {"model.name": "cifar_resnet", "start.depth": 8, "depth": 14}, "model.name=cifar_resnet"),
    ("plain", {"model.branch": "mine:Branch"}, "model.branch=mine:Branch"),
    ("skipinit", {}, "connection.scale=learned"),
    ("depth_scaled", {}, "connection.scale=depth"),
    ("highway", {}, "connection.gate="),
    ("scaled", {}, "connection."),
    ("stochastic_depth", {}, "connection.drop=linear"),
    ("concat", {}, "connection.merge=concat"),
    ("zero_init", {"connection.zero_init": "last_weight"}, "connection.zero_init=last_weight"),
]


@pytest.mark.parametrize(("connection", "values", "begin"), REFUSED)
def test_what_cannot_be_built_is_refused_in_one_line(
    built: Make, connection: str, values: dict[str, Any], begin: str
) -> None:
    with pytest.raises(UserError) as caught:
        validate(built(connection, values))
    assert str(caught.value).startswith(begin) and "must be" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("connection", ["plain", "residual", "zero_init"])
def test_what_can_be_built_is_allowed(built: Make, connection: str) -> None:
    validate(built(connection))


# Identity and matching.


def test_the_source_is_the_same_run_from_scratch(built: Make, make_conf: Make) -> None:
    source = source_of(built("residual", {"start.noise": 0.5}))
    assert source == make_conf("residual", {"depth": 4, "trainer.steps": 6})
    assert source is not None and source.start == StartConf() and source_of(source) is None


def test_start_is_part_of_the_identity_and_of_the_pair(built: Make) -> None:
    confs = [built(), built("plain", {"start.noise": 0.1}), built("plain", {"start.depth": 6})]
    confs.append(built("plain", {"start.depth": None}))
    specs = [make_spec(conf, "cpu") for conf in confs]
    assert len({s.run_id for s in specs}) == len({s.pair_id for s in specs}) == 4
    assert "-d010-from004-s0-" in specs[0].name and "-d010-s0-" in specs[3].name
    assert make_spec(built("residual"), "cpu").pair_id == specs[0].pair_id
    partner = partner_of(built("residual"))
    assert partner is not None and make_spec(partner, "cpu").run_id == specs[0].run_id


def test_the_audit_declares_how_the_arms_start(built: Make) -> None:
    data = load(built().data)
    report = audit(built("residual"), data)
    assert report["clean"] and any("inserted branches end in 0" in words for words in report["declared"])
    assert audit(built(), data)["declared"] == []


def test_training_goes_on_from_the_weights_of_the_source(execute: Execute, built: Make, study: Study) -> None:
    """The weight norm that the first probed step writes down is that of the source's last stem."""
    conf = built("plain", {"trainer.steps": 3})
    _, folder = execute(conf)
    content = checkpoint.read(source_folder(conf, study).checkpoint)
    assert content is not None
    rows = [r for r in rows_of(folder)[1].to_pylist() if r["step"] == 0 and r["metric"] == "weight_norm"]
    stem = next(r["value"] for r in rows if r["layer_name"] == "stem.op.weight")
    assert stem == pytest.approx(content["parameters"][: 64 * 6].norm().item(), rel=1e-6)
