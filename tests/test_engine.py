"""Compiled blocks and recorded updates: what a CPU can show of them; the rest is in test_gpu.py."""

import numpy as np
import pytest
import torch

from plainres import assembly, checkpoint, engine, environment, train
from plainres.data import load
from plainres.divergence import DeferredGuard
from plainres.engine import WARM_UP, Compiled, Engine, Graphed, engine_notes, engine_of, op_by_op
from plainres.errors import UserError
from plainres.job import execute as execute_job
from plainres.launch.together import check_shared
from plainres.models.passage import Recomputed
from plainres.optim import build_optimizer, make_recordable, set_learning_rate
from plainres.pair import make_spec
from plainres.probes.probe import Probe
from plainres.schema import DataConf
from plainres.step import Passes
from plainres.validation import validate

COMPILED = {"trainer.compile": "blocks"}
RECORDED = {"trainer.cuda_graph": True}


def spec_of(conf, device="cpu"):
    return make_spec(conf, device)


# What a machine cannot follow, and what nothing can.


def test_a_machine_without_what_it_needs_says_so_in_one_line(monkeypatch, make_conf):
    assert engine_of(spec_of(make_conf())) == Engine(False, False, False, ())
    both = spec_of(make_conf("residual", COMPILED | RECORDED))
    assert engine_of(both).words == "compiled blocks" and not engine_of(both).graphed
    assert engine_notes([both, both]) == [
        "trainer.cuda_graph=true: needs a CUDA device; on cpu updates are executed op by op"
    ]
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = engine_of(both)
    assert found.words == "eager" and len(found.notes) == 2
    assert found.notes[0].startswith("trainer.compile=blocks: there is no C++ compiler no-such-compiler")
    on_gpu = spec_of(make_conf("residual", COMPILED | RECORDED), "cuda:0")
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert engine_of(on_gpu).words == "cuda graph" and "no triton" in engine_of(on_gpu).notes[0]
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    assert engine_of(on_gpu) == Engine(True, True, False, ())


def test_a_run_on_such_a_machine_trains_op_by_op_and_is_no_mate_of_one_that_did_not(monkeypatch, execute, make_conf):
    monkeypatch.setenv("CXX", "no-such-compiler")
    outcome, folder = execute(make_conf("residual", COMPILED | {"trainer.steps": 3}))
    assert outcome.status == "complete", outcome.message
    assert folder.read()["environment"]["engine"] == "eager"
    here, there = (environment.place(environment.describe("cpu", 1, engine=e)) for e in ("eager", "compiled blocks"))
    assert environment.differences(here, there) == ["engine: compiled blocks there, eager here"]


@pytest.mark.parametrize("setting", [COMPILED, RECORDED], ids=str)
@pytest.mark.parametrize(
    ("connection", "values", "named"),
    [
        ("stochastic_depth", {}, "connection.drop"),
        ("dropout_shortcut", {}, "connection.shortcut"),
        ("residual", {"trainer.checkpoint_blocks": 1}, "trainer.checkpoint_blocks"),
        ("constant_scaling", {"connection.alpha_warmup": 3}, "connection.alpha_warmup"),
    ],
)
def test_what_changes_from_step_to_step_is_refused(make_conf, setting, connection, values, named):
    (name,) = setting
    with pytest.raises(UserError, match=rf"^{name}=.*: must be (off|false) here; {named} cannot be compiled"):
        validate(make_conf(connection, setting | values))


def test_a_scaled_loss_and_several_devices_are_refused(make_conf):
    with pytest.raises(UserError, match=r"^trainer.cuda_graph=True: must be false with trainer.precision=fp16"):
        validate(make_conf("plain", RECORDED | {"trainer.precision": "fp16"}))
    for setting in (COMPILED, RECORDED):
        with pytest.raises(UserError, match=r"^trainer\.\w+=\w+: must be (off|false) on several devices"):
            check_shared(make_conf("plain", setting | {"trainer.devices": 2}))


# An update that is recorded: recording and replaying are stood in for, the rest is the run's own.


def record_here(body):
    """As a CUDA graph: recording computes nothing, replaying fills the same tensor."""
    out = torch.zeros(())
    return lambda: out.copy_(body()), out


@pytest.fixture
def final_weights(monkeypatch, study, make_conf):
    """final_weights(graphed, values): of a run with the GPU's guard and fused optimizer, here; and its outcome."""

    def run(graphed, values):
        conf = make_conf("residual", values)
        spec = spec_of(conf)
        monkeypatch.setattr(
            assembly, "build_optimizer", lambda conf, flat, fused: build_optimizer(conf, flat, fused=True)
        )
        folder = study.run_folder(f"{spec.name}-{graphed}")
        folder.path.mkdir(parents=True)
        made = assembly.assemble(spec, folder, load(DataConf()), {}, lambda lengths: None, lambda: False)
        made.parts.guard = DeferredGuard(made.parts.optimizer, "cpu")
        training = train.Training(made.parts, checkpoint.Position(), lambda: False, graphed)
        if graphed:
            make_recordable(made.parts.optimizer, "cpu")
            training._graphed = {
                probed: Graphed(graphed._body, record_here, lambda body: body())
                for probed, graphed in training._graphed.items()
            }
        diverged = training.run()
        running = training.position.last_eval
        training.parts.writer.close()
        return made.parts.flat.data, diverged, running

    return run


@pytest.mark.parametrize(
    "values",
    [
        {"probe.every": 5, "optimizer.clip_norm": 0.5},
        {"probe.every": 0, "optimizer.name": "adamw", "optimizer.lr": 2**-10},
        {"probe.every": 0, "trainer.accumulate": 2, "trainer.precision": "bf16"},
    ],
    ids=str,
)
def test_recorded_updates_are_the_updates(final_weights, values):
    values = {"trainer.steps": 14, "trainer.eval_every": 14, "trainer.eval_early": False} | values
    # A rate that float32 holds exactly: in a tensor it is float32, on the host float64.
    values = {"optimizer.lr": 2**-5, "schedule.name": "constant", "schedule.warmup_steps": 0} | values
    plain, recorded = (final_weights(graphed, values) for graphed in (False, True))
    assert plain[1] is recorded[1] is None
    assert torch.equal(recorded[0], plain[0]) and recorded[2] == plain[2]


def test_divergence_inside_recorded_updates_is_found_at_its_step(final_weights):
    values = {"optimizer.lr": 1e3, "optimizer.weight_decay": 0.9, "trainer.steps": 40, "schedule.warmup_steps": 0}
    values |= {"probe.every": 0, "trainer.eval_every": 20, "trainer.eval_early": False}
    plain, recorded = (final_weights(graphed, values) for graphed in (False, True))
    assert plain[1] is not None and plain[1] == recorded[1] and plain[1].step > WARM_UP


def test_a_graph_is_recorded_once_and_fed_by_copies():
    seen, recorded = [], []

    def body(x, y):
        seen.append((x.clone(), x.data_ptr()))
        return x.sum()

    def record(inner):
        recorded.append(inner)
        return record_here(inner)

    graph = Graphed(body, record, lambda inner: inner())
    losses = [graph(torch.full((2,), float(i)), torch.zeros(2)).item() for i in range(WARM_UP + 4)]
    assert losses == [2.0 * i for i in range(WARM_UP + 4)] and len(recorded) == 1
    assert len({pointer for _, pointer in seen[WARM_UP:]}) == 1, "always the same memory"


def test_learning_rates_live_in_tensors_that_are_written_to(make_conf, make_network, make_flat):
    for name in ("sgd", "adamw"):
        conf = make_conf("plain", {"optimizer.name": name, "optimizer.decay": "matrices"})
        optimizer = build_optimizer(conf.optimizer, make_flat(make_network(conf), conf), fused=True)
        make_recordable(optimizer, "cpu")
        kept = [group["lr"] for group in optimizer.param_groups]
        set_learning_rate(optimizer, 0.25)
        assert all(group["lr"] is lr for group, lr in zip(optimizer.param_groups, kept, strict=True))
        assert [lr.item() for lr in kept] == [0.25] * len(kept)


# Compiled blocks.


def test_where_training_diverged_is_looked_for_op_by_op(make_conf, make_network):
    """Hooks inside compiled blocks are not called; what is only computed again stays so, for its memory."""
    network = make_network(make_conf())
    for passage in (Compiled(list(network.blocks)), Recomputed(list(network.blocks), 1), None):
        network.passage = passage
        with op_by_op(network):
            assert network.passage is (None if isinstance(passage, Compiled) else passage)
        assert network.passage is passage


@pytest.mark.slow  # the compiler takes half a minute
@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_compiled_blocks_compute_what_blocks_compute_and_are_compiled_once(
    make_conf, make_network, make_flat, tiny_data, connection
):
    from torch._dynamo.utils import counters

    counters.clear()
    graphs = []
    for depth in (10, 30):
        conf = make_conf(connection, {"depth": depth, "model.activation": "tanh"})  # a ReLU turns rounding into flips
        found = []
        for compiled in (False, True):
            network = make_network(conf)
            if compiled:
                network.passage = Compiled(list(network.blocks))
            flat = make_flat(network, conf)
            passed = Passes(network, flat, conf, "cpu")(0, tiny_data.train.images[:32], tiny_data.train.y_N[:32])
            found.append((passed, flat, network))
        (a, flat_a, net_a), (b, flat_b, net_b) = found
        torch.testing.assert_close(a.loss, b.loss, rtol=1e-4, atol=1e-5)
        error = torch.linalg.vector_norm(flat_a.grad - flat_b.grad) / torch.linalg.vector_norm(flat_a.grad)
        assert 0 < error < 1e-3
        for mine, theirs in zip(net_a.buffers(), net_b.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] == 1


def readings_of(conf, network, flat, data, passage):
    """Everything that the probes read in one step."""
    network.passage = passage
    probe = Probe(network, flat)
    Passes(network, flat, conf, "cpu")(0, data.train.images[:32], data.train.y_N[:32], probe)
    probe.before_update()
    probe.after_update()
    values = probe.collect().sent().row(0)["values"]
    return {(scope, name): np.array(v, dtype=float) for scope, found in values.items() for name, v in found.items()}


PROBED = [
    ("plain", {}, "branch_over_input"),
    ("highway", {"model.activation": "tanh"}, "gate_mean"),
    ("residual", {"depth": 4}, "attention_entropy"),
]


@pytest.mark.parametrize(("connection", "values", "has"), PROBED, ids=[has for *_, has in PROBED])
def test_hooks_and_taps_are_told_the_same_by_the_method_that_is_compiled(
    make_conf, make_preset, make_network, make_flat, tiny_data, connection, values, has
):
    """Before compiling: the same bits, with the gates' and the attention's numbers."""
    conf = make_preset(connection, "vit", values) if has == "attention_entropy" else make_conf(connection, values)
    found = []
    for told in (False, True):
        network = make_network(conf)
        passage = Compiled(list(network.blocks)) if told else None
        if told:
            passage._seen = engine._seen_joined
        found.append(readings_of(conf, network, make_flat(network, conf), tiny_data, passage))
        assert not any(m._forward_hooks for m in network.modules()) and not engine._kept
    assert found[0].keys() == found[1].keys() and ("block", has) in found[0]
    for key, expected in found[0].items():
        np.testing.assert_array_equal(found[1][key], expected, err_msg=str(key))


def test_probes_of_the_users_see_blocks_op_by_op(make_conf, make_network, make_flat, tiny_data):
    conf = make_conf("residual")
    network = make_network(conf)
    passage = Compiled(list(network.blocks), own_probes=True)
    passage._seen = passage._forward = None  # neither is called
    inputs = []
    handle = network.blocks[0].branch.register_forward_hook(lambda module, args, out: inputs.append(args[0]))
    readings_of(conf, network, make_flat(network, conf), tiny_data, passage)
    handle.remove()
    assert len(inputs) == 1


@pytest.mark.slow  # the compiler takes half a minute
def test_a_compiled_probed_step_reads_what_an_eager_one_reads(make_conf, make_network, make_flat, tiny_data):
    from torch._dynamo.utils import counters

    counters.clear()
    for depth in (6, 12):
        conf = make_conf("highway", {"depth": depth, "model.activation": "tanh"})
        found = []
        for compiled in (False, True):
            network = make_network(conf)
            passage = Compiled(list(network.blocks)) if compiled else None
            found.append(readings_of(conf, network, make_flat(network, conf), tiny_data, passage))
        assert found[0].keys() == found[1].keys() and ("block", "gate_mean") in found[0]
        for key, expected in found[0].items():
            np.testing.assert_allclose(found[1][key], expected, rtol=1e-3, atol=1e-6, err_msg=str(key))
        assert any((found[1][key] != expected).any() for key, expected in found[0].items()), "it was compiled"
    assert counters["stats"]["unique_graphs"] == 1, "once for all blocks of all depths"


@pytest.mark.slow
def test_a_compiled_run_ends_near(study, make_conf):
    values = {"trainer.steps": 10, "probe.every": 4}
    records = []
    for more in ({}, COMPILED):
        spec = spec_of(make_conf("residual", values | more))
        outcome = execute_job(spec, study, lambda: False)
        assert outcome.status == "complete", outcome.message
        records.append(study.run_folder(spec.name).read())
    assert records[1]["environment"]["engine"] == "compiled blocks"
    assert records[0]["run_id"] != records[1]["run_id"] and records[0]["layout"] == records[1]["layout"]
    assert records[1]["final"]["train_loss"] == pytest.approx(records[0]["final"]["train_loss"], rel=0.02)
