"""bf16 and fp16 beside float32: on a CPU, whose autocast knows both; what needs a GPU is in test_gpu.py."""

import math

import numpy as np
import pytest
import torch

from plainres import checkpoint
from plainres.audit import compare
from plainres.errors import UserError
from plainres.launch.prepare import checked_specs
from plainres.models.layer import BatchNorm, batch_norms, kept_statistics
from plainres.options import Precision
from plainres.precision import LossScale, computing, require_precision
from plainres.probes.probe import Probe
from plainres.rows import read_table
from plainres.seeding import set_determinism
from plainres.signature import arm_signature
from plainres.step import Passes
from plainres.store import Study
from plainres.theory.trained import load_trained

LOW = [Precision.bf16, Precision.fp16]
NETS = [("mlp", "residual"), ("cnn", "plain"), ("vit", "residual"), ("mlp", "stochastic_depth"), ("cnn", "highway")]


@pytest.fixture
def passed(make_preset, make_network, make_flat, tiny_data):
    """passed(precision, model, connection): network, flat, what its first pass gave, and the probes' row."""

    def make(precision, model="mlp", connection="residual", prepare=lambda passes: None):
        # Smooth: at a ReLU, rounding lets single units change sides, which moves a gradient by more than any rounding.
        values = {"seed": 3, "model.activation": "tanh", "trainer.precision": str(precision)}
        conf = make_preset(connection, model, values)
        network = make_network(conf)
        flat = make_flat(network, conf)
        passes = Passes(network, flat, conf, "cpu")
        prepare(passes)
        probe = Probe(network, flat)
        found = passes(0, tiny_data.train.images[:32], tiny_data.train.y_N[:32], probe)
        probe.before_update()
        probe.after_update()
        return network, flat, found, probe.collect().sent().row(0)["values"]

    return make


@pytest.mark.parametrize(("model", "connection"), NETS)
@pytest.mark.parametrize("precision", LOW)
def test_loss_gradients_statistics_and_probes_are_near_those_of_float32(passed, precision, model, connection):
    network, flat, found, row = passed(precision, model, connection)
    other, exact, expected, exact_row = passed(Precision.float32, model, connection)
    eps = 2**-8 if precision is Precision.bf16 else 2**-11
    assert found.loss.dtype is torch.float32 and found.loss.item() != expected.loss.item()
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=8 * eps)
    error = torch.linalg.vector_norm(flat.grad - exact.grad) / torch.linalg.vector_norm(exact.grad)
    assert error < 30 * eps
    for (name, a), b in zip(network.named_buffers(), other.buffers(), strict=True):
        assert a.dtype is torch.float32, name
        torch.testing.assert_close(a, b, rtol=16 * eps, atol=16 * eps, msg=name)
    assert row.keys() == exact_row.keys()
    for scope, metrics in exact_row.items():
        assert row[scope].keys() == metrics.keys()
    for metric in ("input_norm", "branch_norm", "output_norm", "activation_grad_norm_input"):
        np.testing.assert_allclose(row["block"][metric], exact_row["block"][metric], rtol=40 * eps, err_msg=metric)
    np.testing.assert_allclose(row["layer"]["response_std"], exact_row["layer"]["response_std"], rtol=40 * eps)
    np.testing.assert_allclose(row["layer"]["grad_norm"], exact_row["layer"]["grad_norm"], rtol=80 * eps)


@pytest.mark.parametrize("precision", LOW)
def test_activations_are_of_the_precision_and_norms_see_float32_parameters(make_conf, make_network, precision):
    network, seen = make_network(make_conf("residual")), {}
    for name, module in network.named_modules():
        module.register_forward_hook(lambda m, args, out, name=name: seen.update({name: out.dtype}))
    with computing(precision, "cpu"):
        network(torch.randn(8, 1, 4, 4))
    wanted = torch.bfloat16 if precision is Precision.bf16 else torch.float16
    assert {seen[n] for n in ("blocks.0.branch.0.op", "blocks.0.branch", "blocks.1", "head")} == {wanted}
    assert {p.dtype for p in network.parameters()} == {b.dtype for b in network.buffers()} == {torch.float32}


def test_float32_computes_outside_of_autocast(make_conf, make_network):
    for precision in (Precision.float32, Precision.tf32):
        with computing(precision, "cpu"):
            assert not torch.is_autocast_enabled("cpu")


def test_a_bf16_run_trains_evaluates_and_is_recorded(execute, make_conf, tmp_path):
    conf = make_conf("residual", {"trainer.steps": 40})
    _, exact = execute(conf)
    low = make_conf("residual", {"trainer.steps": 40, "trainer.precision": "bf16"})
    outcome, folder = execute(low, into=Study.create(tmp_path, "low"))
    assert outcome.status == "complete", outcome.message
    mine, theirs = folder.read(), exact.read()
    assert mine["run_id"] != theirs["run_id"]
    assert mine["environment"]["precision"] == mine["config"]["trainer"]["precision"] == "bf16"
    assert mine["final"]["train_loss"] == pytest.approx(theirs["final"]["train_loss"], abs=0.1)
    assert mine["final"]["train_loss"] != theirs["final"]["train_loss"]
    rows, expected = (read_table(f, "layers", f.read()["layout"]).to_pandas()["value"] for f in (folder, exact))
    assert len(rows) == len(expected) and rows.notna().sum() == expected.notna().sum()


def test_an_fp16_run_resumes_to_the_same_bits_and_scale(execute, make_conf, tmp_path):
    conf = make_conf("residual", {"trainer.precision": "fp16", "probe.every": 1})
    _, whole = execute(conf)
    halves = Study.create(tmp_path, "halves")
    execute(conf, stop_at=5, into=halves)
    _, resumed = execute(conf, into=halves)
    a, b = (checkpoint.read(folder.checkpoint) for folder in (whole, resumed))
    assert torch.equal(a["parameters"], b["parameters"])
    assert a["position"]["loss_scale"] == b["position"]["loss_scale"] == {"value": 2.0**16, "good": 12}
    tables = [read_table(f, "steps", f.read()["layout"]) for f in (whole, resumed)]
    assert tables[0].equals(tables[1])
    scales = [r["value"] for r in tables[0].to_pylist() if r["metric"] == "loss_scale"]
    assert scales == [2.0**16] * 12


# The scale of the loss.


@pytest.mark.parametrize("start", [2.0**15, 2.0**24])
def test_gradients_and_probes_do_not_depend_on_the_scale(passed, start):
    """Not on one that is right, nor on one that is halved until it is."""

    def begin(passes):
        passes.scale.value = start

    _, flat, found, row = passed(Precision.fp16, prepare=begin)
    _, other, expected, other_row = passed(Precision.fp16, prepare=lambda p: setattr(p.scale, "value", 2.0**10))
    torch.testing.assert_close(flat.grad, other.grad, rtol=1e-2, atol=1e-5)
    norms, expected_norms = (r["block"]["activation_grad_norm_output"] for r in (row, other_row))
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-2)
    assert found.loss.item() == expected.loss.item() and math.isfinite(found.grad_norm.item())


def test_a_pass_that_overflows_is_repeated_and_statistics_move_once(passed):
    scales = []

    def begin(passes):
        passes.scale.value = 2.0**40
        scales.append(passes.scale)

    network, *_ = passed(Precision.fp16, prepare=begin)
    other, *_ = passed(Precision.fp16)
    assert scales[0].value < 2.0**40 and scales[0].good == 1
    for a, b in zip(network.buffers(), other.buffers(), strict=True):
        assert torch.equal(a, b)


def test_the_scale_is_halved_doubled_and_bounded():
    one, inf, nan = (torch.tensor(v) for v in (1.0, math.inf, math.nan))
    scale = LossScale()
    assert not scale.accept(one, inf) and scale.value == 2.0**15
    assert not scale.accept(one, nan) and scale.value == 2.0**14
    for _ in range(LossScale.INTERVAL):
        assert scale.accept(one, one)
    assert scale.value == 2.0**15 and scale.good == 0
    assert scale.accept(nan, nan) and scale.value == 2.0**15, "no scale helps a loss that is not finite"
    scale.value = 1.0
    assert scale.accept(one, inf) and scale.value == 1.0
    scale.value, scale.good = LossScale.LARGEST, LossScale.INTERVAL - 1
    assert scale.accept(one, one) and scale.value == LossScale.LARGEST
    again = LossScale()
    again.restore(scale.state())
    assert again.state() == scale.state()


def test_statistics_that_are_kept_are_the_same_tensors_afterwards():
    norms = torch.nn.Sequential(BatchNorm(3), torch.nn.BatchNorm1d(3))
    norms[0].reset_statistics()
    before = {name: (b, b.clone()) for name, b in norms.named_buffers()}
    with kept_statistics(batch_norms(norms)):
        norms(torch.randn(8, 3))
        assert not torch.equal(norms[1].running_mean, before["1.running_mean"][1])
    for name, buffer in norms.named_buffers():
        assert buffer is before[name][0] and torch.equal(buffer, before[name][1])


# What a device cannot do.


@pytest.mark.parametrize("precision", [Precision.tf32, Precision.fp16])
def test_tf32_and_fp16_need_a_gpu(precision, make_conf):
    with pytest.raises(UserError, match=rf"^trainer.precision={precision}: must be float32 or bf16 on cpu; "):
        checked_specs([make_conf("plain", {"trainer.precision": str(precision)})])
    require_precision(precision, "cuda:1")
    require_precision(Precision.bf16, "cpu")


def test_tf32_is_a_setting_of_the_process_and_does_not_stay():
    set_determinism(1, True, "cuda", Precision.tf32)
    assert torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "high"
    set_determinism(1, True, "cpu")
    assert not torch.backends.cudnn.allow_tf32 and torch.get_float32_matmul_precision() == "highest"


def test_a_trained_bf16_network_is_evaluated_as_it_was(execute, make_conf):
    _, folder = execute(make_conf("residual", {"trainer.precision": "bf16"}))
    trained, recorded = load_trained(folder.path), folder.read()["final"]
    assert trained.intact == {name: recorded[name] for name in trained.intact}


def test_arms_of_different_precision_are_no_pair(make_conf, tiny_data):
    signatures = [
        arm_signature(make_conf(arm, {"trainer.batch": 32, "trainer.precision": precision}), tiny_data)
        for arm, precision in (("residual", "bf16"), ("plain", "float32"))
    ]
    undeclared = [check for check in compare(*signatures) if check["result"] == "undeclared"]
    assert [check["check"] for check in undeclared] == ["trainer"]
    assert undeclared[0]["why"] == "trainer.precision: bf16 here, float32 in the partner"
