"""Recorded updates and probed steps (trainer.cuda_graph), on a CPU with a tape in the place of a CUDA graph: operations
are done again on the same memory, and no Python of the step runs, so that whatever depends on it would show."""

from dataclasses import replace

import pytest
import torch

from plainres import assembly, checkpoint, train, transfer
from plainres.data import load
from plainres.divergence import DeferredGuard
from plainres.engine import WARM_UP, Graphed
from plainres.flat import FlatParameters
from plainres.optim import build_optimizer, make_recordable
from plainres.pair import make_spec
from plainres.probes.own import OwnProbe
from plainres.rows import read_lines
from plainres.schema import DataConf
from tape import record as tape

# Rates that float32 holds exactly: in a tensor they are float32, on the host float64.
VALUES = {
    "trainer.steps": 12, "trainer.eval_every": 6, "trainer.eval_early": False, "probe.every": 1,
    "optimizer.lr": 2**-5, "schedule.name": "constant", "schedule.warmup_steps": 0,
}  # fmt: skip


def norms(flat, buffer):
    """As on a GPU: on a CPU they are numpy's, which no tape sees."""
    lengths = torch.from_numpy(flat.numel)
    return torch.segment_reduce(buffer * buffer, "sum", lengths=lengths, unsafe=True).sqrt()


def record(body):
    """By the tape; nothing may come from the host meanwhile: its memory is another's when it is done again."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transfer, "to_device", lambda tensor, device: pytest.fail("comes from the host"))
        return tape(body)


@pytest.fixture
def run(monkeypatch, study):
    """run(conf, graphed) -> final weights, lines of layers.jsonl and steps.jsonl, how often a probe collected."""
    monkeypatch.setattr(FlatParameters, "norms", norms)
    monkeypatch.setattr(assembly, "build_optimizer", lambda conf, flat, fused: build_optimizer(conf, flat, fused=True))

    def made(conf, graphed):
        spec = make_spec(conf, "cpu")
        folder = study.run_folder(f"{spec.name}-{graphed}")
        folder.path.mkdir(parents=True)
        parts = assembly.assemble(spec, folder, load(DataConf()), {}, lambda lengths: None, lambda: False).parts
        parts.guard = DeferredGuard(parts.optimizer, "cpu")
        training = train.Training(parts, checkpoint.Position(), lambda: False, graphed)
        if graphed:
            make_recordable(parts.optimizer, "cpu")
            training._graphed = {
                probed: Graphed(whole._body, record, lambda body: body()) for probed, whole in training._graphed.items()
            }
        collect, count = parts.probe.collect, []

        def counted(*more):
            count.append(1)
            return collect(*more)

        monkeypatch.setattr(parts.probe, "collect", counted)
        diverged = training.run()
        parts.writer.close()
        rows = [list(read_lines(folder.path / f"{name}.jsonl")) for name in ("layers", "steps")]
        return parts.flat.data, rows, len(count), diverged

    return made


@pytest.mark.parametrize(
    ("connection", "model", "values"),
    [
        ("plain", "mlp", {}),
        ("residual", "mlp", {"optimizer.clip_norm": 0.5}),
        ("highway", "mlp", {"trainer.accumulate": 2}),
        ("layerscale", "mlp", {"optimizer.name": "adamw", "optimizer.lr": 2**-10}),
        ("residual", "cnn", {"trainer.precision": "bf16"}),
        ("residual", "vit", {}),
    ],
    ids=["plain", "clipped", "gates-accumulated", "scales-adamw", "cnn-bf16", "attention"],
)
def test_recorded_probed_steps_are_the_probed_steps(run, make_preset, connection, model, values):
    conf = make_preset(connection, model, VALUES | values)
    eager, recorded = run(conf, False), run(conf, True)
    assert eager[2] == 12 and recorded[2] == WARM_UP + 1, "the rest without any Python"
    assert torch.equal(eager[0], recorded[0])
    assert eager[1] == recorded[1] and len(eager[1][0]) == 12


def test_recorded_and_probed_steps_in_turns(run, make_preset):
    """Each kind is recorded by itself, and goes on where the other has left the weights."""
    conf = make_preset("residual", "mlp", VALUES | {"trainer.steps": 24, "trainer.eval_every": 24, "probe.every": 2})
    eager, recorded = run(conf, False), run(conf, True)
    assert recorded[2] == WARM_UP + 1 < eager[2]
    assert torch.equal(eager[0], recorded[0]) and eager[1] == recorded[1]


def test_divergence_in_a_recorded_probed_step(run, make_preset):
    values = {"optimizer.lr": 2.0**10, "optimizer.weight_decay": 0.75, "trainer.steps": 40, "trainer.eval_every": 40}
    conf = make_preset("plain", "mlp", VALUES | values)
    eager, recorded = run(conf, False), run(conf, True)
    assert eager[3] is not None and eager[3].step > WARM_UP and eager[3] == recorded[3]
    assert eager[1] == recorded[1] and len(eager[1][0]) == eager[3].step, "no row of a step that was not made"


@pytest.mark.parametrize("values", [{"probe.jacobian": 2}], ids=str)
def test_what_waits_in_a_probed_step_is_not_recorded(run, make_preset, values):
    conf = make_preset("residual", "mlp", VALUES | values)
    eager, recorded = run(conf, False), run(conf, True)
    assert recorded[2] == eager[2] == 12
    assert torch.equal(eager[0], recorded[0]) and eager[1] == recorded[1]


class Strict(OwnProbe):
    """Fails on what is not finite, as a singular value does."""

    def read(self):
        assert all(torch.isfinite(p.grad).all() for p in self.network.parameters()), "not finite"
        return {"block": {"one": [1.0] * len(self.network.blocks)}}


def test_a_probe_of_a_users_is_not_read_in_a_step_without_an_update(run, make_preset):
    values = {"optimizer.lr": 2.0**10, "optimizer.weight_decay": 0.75, "trainer.steps": 40, "trainer.eval_every": 40}
    conf = make_preset("plain", "mlp", VALUES | values)
    probed = replace(conf, probe=replace(conf.probe, own=["test_recorded:Strict"]))
    usual, own = run(conf, False), run(probed, True)
    assert usual[3] is not None and usual[3] == own[3]
    assert len(own[1][0]) == usual[3].step
