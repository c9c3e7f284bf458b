import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres import assembly, checkpoint, job, train
from plainres.data import load
from plainres.divergence import DeferredGuard
from plainres.errors import Interrupted
from plainres.evaluate import evaluate
from plainres.models.layer import BatchNorm
from plainres.optim import build_optimizer
from plainres.pair import make_spec
from plainres.rows import evaluation_row, read_lines, read_table
from plainres.schema import DataConf
from plainres.seeding import epoch_order
from plainres.store import Status, Study


def tables(folder):
    layout = folder.read()["layout"]
    return {name: read_table(folder, name, layout) for name in ("steps", "layers")}


def metric(folder, name, kind="eval"):
    """{step: value} of a run-scope metric."""
    rows = tables(folder)["steps"].to_pylist()
    return {r["step"]: r["value"] for r in rows if r["metric"] == name and r["kind"] == kind}


def final_bits(folder):
    content = checkpoint.read(folder.checkpoint)
    return [content["parameters"], *content["buffers"].values()]


def assert_same_bits(a, b):
    assert all(torch.equal(x, y) for x, y in zip(final_bits(a), final_bits(b), strict=True))


@pytest.fixture
def assemble(study):
    """A training loop with its parts, not yet run."""
    made = []

    def make(conf, stop_when=lambda training: False):
        spec = make_spec(conf, "cpu")
        folder = study.run_folder(spec.name)
        folder.path.mkdir(parents=True)
        training = assembly.assemble(
            spec, folder, load(DataConf()), {}, lambda lengths: None, lambda: stop_when(made[-1])
        )
        made.append(training)
        return training

    yield make
    for training in made:
        training.parts.writer.close()


# The numbers of training, against a loop written with torch's own modules on separate tensors.


class Reference(nn.Module):
    def __init__(self, conf, features=64, classes=10):
        super().__init__()
        width, self.residual = conf.model.width, conf.connection.name == "residual"
        self.inner = nn.ModuleList(
            [nn.Linear(features if i == 0 else width, width, bias=False) for i in range(conf.depth - 1)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in self.inner])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu(self.norms[0](self.inner[0](x.flatten(1))))
        for i in range(1, len(self.inner), 2):
            f = torch.relu(self.norms[i](self.inner[i](x)))
            f = self.norms[i + 1](self.inner[i + 1](f))
            x = torch.relu(x + f if self.residual else f)
        return self.head(x)

    def take(self, network):
        """Copy the initial draws of a plainres network, layer by layer."""
        layers = [network.stem, *[layer for block in network.blocks for layer in block.branch]]
        for mine, theirs in zip(self.inner, layers, strict=True):
            mine.weight.data.copy_(theirs.op.weight.data)
        self.head.load_state_dict(network.head.state_dict())
        return self

    def weights(self):
        return [*[m.weight for m in self.inner], self.head.weight, self.head.bias]


def weights_of(network):
    layers = [network.stem, *[layer for block in network.blocks for layer in block.branch]]
    return [*[layer.op.weight for layer in layers], network.head.weight, network.head.bias]


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_training_is_the_plain_loop_that_anyone_would_write(assemble, make_conf, connection, clip):
    conf = make_conf(connection, {"optimizer.clip_norm": clip, "trainer.steps": 25, "trainer.batch": 100, "seed": 3})
    training, data = assemble(conf), load(DataConf())
    reference = Reference(conf).take(training.parts.network).train()
    optimizer = torch.optim.SGD(reference.parameters(), 0.0, momentum=0.9, weight_decay=1e-4)
    assert training.run() is None
    norms, errors, losses = [], [], []
    for step in range(25):
        epoch, position = divmod(step, 1437 // 100)
        index = epoch_order(3, epoch, 1437)[position * 100 : (position + 1) * 100]
        optimizer.zero_grad()
        logits = reference(data.train.images[index])
        loss = F.cross_entropy(logits, data.train.y_N[index])
        loss.backward()
        losses.append(loss.item())
        errors.append((logits.argmax(1) != data.train.y_N[index]).double().mean().item())
        norms.append(math.sqrt(sum(p.grad.double().square().sum().item() for p in reference.parameters())))
        if clip is not None:
            nn.utils.clip_grad_norm_(reference.parameters(), clip)
        lr = 0.03 * min((step + 1) / 2, 1.0) if step < 2 else 0.03 * (1 + math.cos(math.pi * (step - 2) / 23)) / 2
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    for mine, theirs in zip(weights_of(training.parts.network), reference.weights(), strict=True):
        if clip is None:
            assert torch.equal(mine, theirs)
        assert torch.allclose(mine, theirs, rtol=1e-2, atol=1e-4)
    training.parts.writer.sync()
    rows = read_lines(training.parts.folder.path / "steps.jsonl")
    probed = {r["step"]: r["values"] for r in rows if r["kind"] == "update"}
    assert len(probed) >= 8
    for step, values in probed.items():
        assert values["grad_norm_total"] == pytest.approx(norms[step], rel=1e-3)
        assert values["clip_coef"] == pytest.approx(min(1.0, clip / norms[step]) if clip else 1.0, rel=1e-3)
    running = {r["step"]: r["values"] for r in rows if r["kind"] == "eval"}
    assert running.pop(0)["train_error_running"] is None
    begins = sorted({0, *running})
    for begin, end in itertools.pairwise(begins):
        found = running[end]["train_error_running"], running[end]["train_loss_running"]
        assert found[0] == pytest.approx(sum(errors[begin:end]) / (end - begin), rel=1e-12)
        assert found[1] == pytest.approx(sum(losses[begin:end]) / (end - begin), rel=1e-3)


def test_evaluations_stand_under_the_number_of_updates_made(execute, make_conf, assemble):
    conf = make_conf("plain", {"trainer.eval_every": 5})
    _, folder = execute(conf)
    assert sorted(metric(folder, "train_error")) == [0, 1, 2, 5, 10, 12]
    untrained = assemble(make_conf("plain", {"optimizer.lr": 0.01})).parts  # lr plays no part before the first update
    expected = evaluate(untrained.network, untrained.data)
    assert {name: metric(folder, name)[0] for name in expected} == expected
    assert sorted(metric(folder, "lr", "update")) == [0, 1, 2, 3, 6, 9, 11]


def test_the_final_values_are_those_of_the_final_weights(execute, make_conf, make_network, make_flat):
    conf = make_conf("residual")
    _, folder = execute(conf)
    network = make_network(conf, (1, 8, 8), 10)
    flat = make_flat(network, conf)
    position = checkpoint.restore(
        checkpoint.read(folder.checkpoint), network, flat, build_optimizer(conf.optimizer, flat)
    )
    record = folder.read()
    assert position.step == 13, "a complete run's checkpoint says that nothing is left to do"
    assert record["final"]["step"] == 12
    found = evaluate(network, load(DataConf()))
    assert {name: record["final"][name] for name in found} == found
    assert record["final"] == record["last_finite"]


# Looking changes nothing.


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_weights_and_evaluations_are_the_same_bits_whatever_is_probed(tmp_path, execute, make_conf, connection):
    found = []
    for every in (0, 50, 1):
        study = Study.create(tmp_path, f"probed-{every}")
        _, folder = execute(make_conf(connection, {"probe.every": every}), into=study)
        evals = [r for r in tables(folder)["steps"].to_pylist() if r["kind"] == "eval"]
        probed = {r["step"] for r in tables(folder)["layers"].to_pylist()}
        found.append((folder, evals, probed))
    (never, evals, none), *others = found
    assert none == set() and others[1][2] == set(range(12)) and others[0][2] == {0, 1, 2, 4, 8, 11}
    for folder, rows, _ in others:
        assert rows == evals
        assert_same_bits(folder, never)


@pytest.mark.parametrize(
    "values", [{"trainer.eval_every": 1}, {"trainer.batchstats_every": 1}, {"trainer.checkpoint_every": 1}], ids=str
)
def test_evaluating_and_checkpointing_change_no_bit_of_training(tmp_path, execute, make_conf, values):
    _, often = execute(make_conf("residual", values), into=Study.create(tmp_path, "often"))
    _, seldom = execute(make_conf("residual", {"trainer.eval_every": 12, "trainer.batchstats_every": 12}))
    assert_same_bits(often, seldom)


# Interruption and resume.


@pytest.mark.parametrize("optimizer", [{}, {"optimizer.name": "adamw", "optimizer.lr": 1e-3}], ids=["sgd", "adamw"])
def test_interrupted_at_every_boundary_and_resumed_gives_the_same_bits(tmp_path, execute, make_conf, optimizer):
    values = {"trainer.steps": 9, "trainer.checkpoint_every": 4, "optimizer.clip_norm": 1.0} | optimizer
    conf = make_conf("residual", values)
    _, undisturbed = execute(conf)
    expected = tables(undisturbed)
    for stop_at in range(10):
        study = Study.create(tmp_path, f"stop-{stop_at}")
        outcome, folder = execute(conf, stop_at=stop_at, into=study)
        assert outcome.status == folder.read()["status"] == "interrupted"
        assert checkpoint.read(folder.checkpoint)["position"]["step"] == stop_at
        assert execute(conf, into=study)[0].status == "complete"
        found = tables(folder)
        assert all(found[name].equals(expected[name]) for name in expected), stop_at
        assert_same_bits(folder, undisturbed)
        assert folder.read()["final"] == undisturbed.read()["final"]


def test_interrupted_at_every_step_of_one_run(execute, make_conf, tmp_path):
    conf = make_conf("plain", {"trainer.steps": 5})
    _, undisturbed = execute(conf)
    study = Study.create(tmp_path, "one-step-at-a-time")
    for _ in range(5):
        outcome, folder = execute(conf, stop_at=1, into=study)
        assert outcome.status == "interrupted"
    outcome, folder = execute(conf, stop_at=1, into=study)
    assert outcome.status == "complete" and folder.read()["attempts"] == 6
    found, expected = tables(folder), tables(undisturbed)
    assert all(found[name].equals(expected[name]) for name in expected)
    assert_same_bits(folder, undisturbed)


class Killed(BaseException):
    """The process is gone: nothing is cleaned up by the run itself."""


@pytest.mark.parametrize("place", ["plainres.job.compact", "plainres.job.drop_lines"])
def test_killed_after_the_last_checkpoint_and_resumed_gives_the_same_rows(
    tmp_path, monkeypatch, execute, make_conf, place
):
    conf = make_conf("residual")
    _, undisturbed = execute(conf)
    study = Study.create(tmp_path, "killed")
    with monkeypatch.context() as patched:

        def die(*args):
            raise Killed

        patched.setattr(place, die)
        with pytest.raises(Killed):
            execute(conf, into=study)
    outcome, folder = execute(conf, into=study)
    assert outcome.status == "complete"
    found, expected = tables(folder), tables(undisturbed)
    assert all(found[name].equals(expected[name]) for name in expected)
    assert folder.read()["final"] == undisturbed.read()["final"]
    assert not list(folder.path.glob("*.jsonl"))


@pytest.mark.parametrize("step", [3, 4, 7, 11])
def test_killed_between_checkpoints_and_resumed_gives_the_same_rows(tmp_path, monkeypatch, execute, make_conf, step):
    conf = make_conf("residual", {"trainer.checkpoint_every": 3, "probe.every": 1})
    _, undisturbed = execute(conf)
    study = Study.create(tmp_path, "killed")
    with monkeypatch.context() as patched:
        whole = train.learning_rate

        def die(conf, base, now, steps):
            if now == step:
                raise Killed
            return whole(conf, base, now, steps)

        patched.setattr(train, "learning_rate", die)
        with pytest.raises(Killed):
            execute(conf, into=study)
    _, folder = execute(conf, into=study)
    found, expected = tables(folder), tables(undisturbed)
    assert all(found[name].equals(expected[name]) for name in expected)
    assert_same_bits(folder, undisturbed)


def test_a_request_to_stop_leaves_a_checkpoint_of_that_step(assemble, make_conf):
    training = assemble(make_conf(), lambda t: t.position.step == 7)
    with pytest.raises(Interrupted):
        training.run()
    assert checkpoint.read(training.parts.folder.checkpoint)["position"]["step"] == 7


# The order inside a step.


def test_order_inside_a_probed_step(monkeypatch, assemble, make_conf):
    parts = assemble(make_conf("residual", {"optimizer.clip_norm": 1e-3})).parts
    training, calls = train.Training(parts, checkpoint.Position(), lambda: False), []

    def record(owner, name, label=None):
        whole = getattr(owner, name)

        def wrapped(*args, **kwargs):
            calls.append((label or name, torch.linalg.vector_norm(parts.flat.grad).item()))
            return whole(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    record(parts.flat, "zero_grad")
    record(parts.network, "forward")
    record(F, "cross_entropy")
    record(parts.optimizer, "step")
    for name in ("arm", "after_backward", "before_update", "after_update", "collect"):
        record(parts.probe, name)
    parts.network.head.bias.register_hook(lambda grad: calls.append(("backward", 0.0)))
    parts.flat.grad.fill_(1.0)  # of the step before
    assert training.update(3) is None
    norms = dict(calls)
    assert [name for name, _ in calls] == [
        "zero_grad", "arm", "forward", "cross_entropy", "backward", "after_backward", "before_update", "step",
        "after_update", "collect",
    ]  # fmt: skip
    assert norms["forward"] == 0.0
    assert norms["after_backward"] > 0.01, "gradients are read before clipping"
    for clipped in ("before_update", "step", "after_update"):
        assert norms[clipped] == pytest.approx(1e-3, rel=1e-2)


def test_an_unprobed_step_calls_no_probe(monkeypatch, assemble, make_conf):
    training = assemble(make_conf("residual", {"probe.every": 0}))
    for name in ("arm", "after_backward", "before_update", "after_update", "collect"):
        monkeypatch.setattr(training.parts.probe, name, lambda *args: pytest.fail("probed"))
    assert training.update(0) is None


def test_clipping_is_reported_and_the_update_uses_the_clipped_gradient(assemble, make_conf):
    values = {
        "optimizer.clip_norm": 0.01,
        "optimizer.momentum": 0.0,
        "optimizer.weight_decay": 0.0,
        "schedule.warmup_steps": 0,
    }
    training = assemble(make_conf("plain", values | {"schedule.name": "constant", "optimizer.lr": 0.5}))
    before = training.parts.flat.data.clone()
    training.update(0)
    training.parts.writer.sync()
    (row,) = [r["values"] for r in read_lines(training.parts.folder.path / "steps.jsonl")]
    (layers,) = read_lines(training.parts.folder.path / "layers.jsonl")
    total = math.sqrt(sum(v**2 for scope in layers["values"].values() for v in scope.get("grad_norm", [])))
    assert row["grad_norm_total"] == pytest.approx(total, rel=1e-5) and total > 0.05
    assert row["clip_coef"] == pytest.approx(0.01 / total, rel=1e-4)
    update = torch.linalg.vector_norm(training.parts.flat.data.double() - before.double())
    assert update.item() == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_a_gradient_below_the_limit_is_not_scaled(tmp_path, execute, make_conf):
    _, limited = execute(make_conf("plain", {"optimizer.clip_norm": 1e4}))
    _, free = execute(make_conf("plain"), into=Study.create(tmp_path, "free"))
    assert set(metric(limited, "clip_coef", "update").values()) == {1.0}
    assert_same_bits(limited, free)


# Divergence.

BLOW_UP = {"optimizer.lr": 1e30, "schedule.warmup_steps": 0, "trainer.eval_every": 1, "schedule.name": "constant"}


def test_a_run_that_diverges_is_a_result(execute, make_conf):
    outcome, folder = execute(make_conf("plain", BLOW_UP | {"trainer.steps": 6}))
    record = folder.read()
    assert outcome.status == record["status"] == "diverged" and outcome.message == ""
    diverged = record["diverged"]
    assert diverged["step"] == 1 and diverged["where"] == "forward" and diverged["layer"]
    assert record["final"] is None and record["error"] is None
    assert record["last_finite"]["step"] == 0 and math.isfinite(record["last_finite"]["train_loss"])
    errors = metric(folder, "train_loss")
    assert set(errors) == {0, 1} and errors[1] is None
    reasons = [r["reason"] for r in tables(folder)["steps"].to_pylist() if r["value"] is None and r["step"] == 1]
    assert reasons and all("not finite" in r for r in reasons)
    assert execute(make_conf("plain", BLOW_UP | {"trainer.steps": 6}))[0].skipped


def test_weights_that_end_not_finite_are_a_divergence_too(execute, make_conf):
    """The last update has no step after it whose loss would show what it did."""
    outcome, folder = execute(make_conf("plain", BLOW_UP | {"trainer.steps": 1}))
    record = folder.read()
    assert outcome.status == record["status"] == "diverged"
    assert record["final"] is None and record["last_finite"]["step"] == 0
    assert record["diverged"]["step"] == 1 and record["diverged"]["where"] == "evaluation"


def test_no_row_is_written_of_the_step_that_diverged_and_weights_stay(assemble, make_conf):
    training = assemble(make_conf("plain", {"probe.every": 1}))
    flat, network = training.parts.flat, training.parts.network
    assert training.update(0) is None
    with torch.no_grad():
        network.head.bias.fill_(math.inf)
    before = flat.data.clone()
    assert training.update(1) == 1
    assert torch.equal(flat.data, before)
    training.parts.writer.sync()
    assert [r["step"] for r in read_lines(training.parts.folder.path / "layers.jsonl")] == [0]


@pytest.mark.parametrize("values", [{"probe.every": 1}, {"probe.every": 0}, {"trainer.checkpoint_every": 2}], ids=str)
def test_a_deferred_guard_finds_the_same_divergence_in_a_whole_run(monkeypatch, tmp_path, execute, make_conf, values):
    """As on a GPU, but with the fused optimizer of the CPU."""
    values = values | {"optimizer.lr": 1e3, "trainer.steps": 40, "schedule.warmup_steps": 0, "trainer.eval_every": 20}
    conf = make_conf("plain", values | {"optimizer.weight_decay": 0.9})
    _, at_once = execute(conf)
    whole = build_optimizer
    monkeypatch.setattr(assembly, "build_optimizer", lambda conf, flat, fused: whole(conf, flat, fused=True))
    monkeypatch.setattr(assembly, "ImmediateGuard", lambda: None)
    assembled = assembly.assemble

    def deferred(*args):
        training = assembled(*args)
        training.parts.guard = DeferredGuard(training.parts.optimizer, "cpu")
        training.parts.guard.start(training.position.step)
        return training

    monkeypatch.setattr(job, "assemble", deferred)
    _, later = execute(conf, into=Study.create(tmp_path, "deferred"))
    mine, theirs = at_once.read(), later.read()
    assert mine["status"] == theirs["status"] == "diverged"
    assert mine["diverged"] == theirs["diverged"] and mine["diverged"]["step"] > 1
    if "trainer.checkpoint_every" in values:
        assert torch.equal(final_bits(at_once)[0], final_bits(later)[0])
    assert tables(at_once)["layers"].equals(tables(later)["layers"])


# Rows of an evaluation.


def test_what_is_not_finite_or_not_there_is_null_with_a_reason():
    row = evaluation_row(4, {"train_error": 0.5, "train_loss": math.inf, "val_loss": math.nan})
    nulls = ("train_loss", "val_loss", "train_error_running", "train_loss_running")
    assert row["values"] == {"train_error": 0.5} | dict.fromkeys(nulls)
    assert row["reasons"]["train_loss"] == "not finite (inf)" and "nan" in row["reasons"]["val_loss"]
    assert row["reasons"]["train_error_running"] == "no update since the last row"
    assert (row["step"], row["kind"]) == (4, "eval")


def test_batch_statistics_are_evaluated_at_their_own_cadence(execute, make_conf):
    _, folder = execute(make_conf("plain", {"trainer.eval_every": 2, "trainer.batchstats_every": 6}))
    assert sorted(metric(folder, "train_error_batchstats")) == [0, 6, 12]
    assert sorted(metric(folder, "train_error")) == [0, 1, 2, 4, 6, 8, 10, 12]


def test_evaluation_does_not_leave_batch_statistics_on(assemble, make_conf):
    training = assemble(make_conf())
    assert training.run() is None
    norms = [m for m in training.parts.network.modules() if isinstance(m, BatchNorm)]
    assert norms and not any(n.batch_statistics for n in norms) and all(n.training for n in norms)


def test_status_of_a_plain_run(execute, make_conf):
    outcome, folder = execute(make_conf())
    assert (outcome.status, outcome.skipped) == (Status.COMPLETE, False)
    seconds = folder.read()["seconds"]
    assert {"train", "probes", "evaluation", "store", "tracker", "total"} <= set(seconds)
    assert seconds["total"] >= sum(v for k, v in seconds.items() if k != "total") * 0.99
