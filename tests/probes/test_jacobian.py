"""Singular values against dense Jacobians by automatic differentiation and by hand; training moves by no bit."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.networks import Network
from plainres.probes.jacobian import JacobianSpectra
from plainres.probes.probe import Probe
from plainres.probes.readings import Readings
from plainres.probes.spectrum import dense, extremes, golub_kahan
from plainres.rows import read_table
from plainres.schema import RunConf
from plainres.store import Study

SIZES = [(12, 12), (12, 7), (7, 12)]


def small_map(num_in: int, num_out: int) -> nn.Module:
    torch.manual_seed(num_in * num_out)
    return nn.Sequential(nn.Linear(num_in, 20), nn.Tanh(), nn.Linear(20, num_out)).double()


def by_autograd(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """(N, E, D), one example at a time."""
    one = [torch.autograd.functional.jacobian(function, example[None]) for example in x]
    return torch.stack([j.reshape(j.shape[1 : -x.dim()].numel(), x[0].numel()) for j in one])


@pytest.mark.parametrize(("num_in", "num_out"), SIZES)
def test_dense_is_the_jacobian_of_each_example(num_in: int, num_out: int) -> None:
    function, x = small_map(num_in, num_out), torch.randn(3, num_in, dtype=torch.float64)
    assert torch.allclose(dense(function, x), by_autograd(function, x), atol=1e-12)


@pytest.mark.parametrize(("num_in", "num_out"), SIZES)
def test_as_many_iterations_as_dimensions_are_exact(num_in: int, num_out: int) -> None:
    function, x = small_map(num_in, num_out), torch.randn(3, num_in, dtype=torch.float64)
    values = torch.linalg.svdvals(by_autograd(function, x))
    for found in (golub_kahan(function, x, min(num_in, num_out)), extremes(function, x)):
        assert torch.allclose(found.top, values[:, 0], rtol=1e-5)
        assert torch.allclose(found.bottom, values[:, -1], rtol=1e-4)
        assert found.top_residual.max() < 1e-5 and found.bottom_residual.max() < 1e-5


def test_fewer_iterations_say_how_near_they_are() -> None:
    torch.manual_seed(1)
    function, x = nn.Linear(300, 300), torch.randn(2, 300)
    values = torch.linalg.svdvals(function.weight.detach().double())
    found = extremes(function, x, iterations=40)
    assert torch.allclose(found.top, values[0].expand(2), rtol=1e-3)
    for value, residual in ((found.top, found.top_residual), (found.bottom, found.bottom_residual)):
        nearest = (values[None] - value[:, None]).abs().min(1).values
        assert (nearest <= found.top * residual + 1e-6).all()
    assert (found.bottom >= values[-1]).all() and found.bottom_residual.min() > 1e-3, "an upper bound that says so"


def test_an_identity_and_a_null_space() -> None:
    x = torch.ones(2, 30)
    for found in (golub_kahan(lambda x: 1.0 * x, x, 10), extremes(lambda x: 1.0 * x, x)):
        assert found.top.tolist() == pytest.approx([1, 1]) and found.bottom.tolist() == pytest.approx([1, 1])
    half = torch.cat([torch.ones(15), -torch.ones(15)])
    for found in (golub_kahan(lambda x: (x * half).relu(), x, 30), extremes(lambda x: (x * half).relu(), x)):
        assert found.top.tolist() == pytest.approx([1, 1]) and found.bottom.tolist() == [0, 0]


@pytest.mark.parametrize(("model", "shape"), [("cnn", (6, 4, 4)), ("transformer", (4, 4))])
def test_iterations_on_real_blocks(make_preset, make_network, monkeypatch, model: str, shape: tuple[int, ...]) -> None:
    """Convolutions, batch and layer norm, attention: their second derivatives are what a product with J rests on."""
    network = make_network(make_preset("residual", model), (1, 4, 4), 3).eval()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    for block in list(network.blocks)[:2]:
        values = torch.linalg.svdvals(by_autograd(block, x).double())
        with monkeypatch.context() as patch:
            patch.setattr("plainres.probes.spectrum.DENSE", 0)
            found = extremes(block, x, iterations=10_000)
        assert torch.allclose(found.top, values[:, 0], rtol=1e-4)
        assert torch.allclose(found.bottom, values[:, -1], atol=1e-4)


def test_what_is_not_finite_is_not_a_number() -> None:
    x = torch.zeros(2, 300)
    for found in (extremes(torch.sqrt, x[:, :4]), golub_kahan(torch.sqrt, x, 5)):
        assert all(map(math.isnan, found.top)) and all(map(math.isnan, found.bottom))


def measured(network: Network, x: torch.Tensor, y: torch.Tensor, count: int) -> Readings:
    probe, readings = JacobianSpectra(network, count), Readings()
    probe.arm()
    F.cross_entropy(network(x), y).backward()
    probe.after_backward()
    probe.put(readings, [part.float().numpy() for part in probe.collect()])
    return readings


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_blocks_by_hand(make_conf, make_network, tiny_data, connection: str) -> None:
    """J_F = N₂ W₂ R₁ N₁ W₁ in float64, with N = diag(γ/√(v + ε)) of the whole batch and R the ReLU's 0 and 1."""
    network = make_network(make_conf(connection, {"depth": 8}))
    x, y = tiny_data.train.clean(slice(None))
    found = measured(network, x, y, 3).values
    p = {name: t.detach().double() for name, t in network.named_parameters()}

    def normed(z: torch.Tensor, path: str) -> tuple[torch.Tensor, torch.Tensor]:
        scale = p[f"{path}.norm.weight"] / (z.var(0, correction=0) + 1e-5).sqrt()
        return (z - z.mean(0)) * scale + p[f"{path}.norm.bias"], torch.diag(scale)

    h = normed(x.double().flatten(1) @ p["stem.op.weight"].T, "stem")[0].relu()
    trunk = [torch.eye(6, dtype=torch.float64)] * 3
    for block in range(3):
        paths = [f"blocks.{block}.branch.{i}" for i in range(2)]
        w1, w2 = (p[f"{path}.op.weight"] for path in paths)
        a, n1 = normed(h @ w1.T, paths[0])
        f, n2 = normed(a.relu() @ w2.T, paths[1])
        joined = h + f if connection == "residual" else f
        for name, outer in (("jacobian_sum", torch.ones_like(joined)), ("jacobian", (joined > 0).double())):
            values = []
            for i in range(3):
                j = n2 @ w2 @ torch.diag((a[i] > 0).double()) @ n1 @ w1
                j = torch.diag(outer[i]) @ (j + torch.eye(6) if connection == "residual" else j)
                values.append(torch.linalg.svdvals(j))
                if name == "jacobian":
                    trunk[i] = j @ trunk[i]
            top, bottom = (sum(float(v[k]) for v in values) / 3 for k in (0, -1))
            assert found["block"][f"{name}_top"][block] == pytest.approx(top, rel=1e-4)
            assert found["block"][f"{name}_bottom"][block] == pytest.approx(bottom, rel=1e-3, abs=1e-6)
        h = joined.relu()
    ends = [torch.linalg.svdvals(j) for j in trunk]
    assert found["trunk"]["end_to_end_top"][0] == pytest.approx(sum(float(v[0]) for v in ends) / 3, rel=1e-4)
    assert found["trunk"]["end_to_end_bottom"][0] == pytest.approx(sum(float(v[-1]) for v in ends) / 3, abs=1e-5)
    assert not any(name.endswith("residual") for names in found.values() for name in names), "all exact"


@pytest.mark.parametrize(("connection", "model"), [("stochastic_depth", "cnn"), ("residual", "transformer")])
def test_measuring_moves_nothing(make_preset, make_network, connection: str, model: str) -> None:
    network = make_network(make_preset(connection, model), (1, 8, 8), 3)
    network.begin_step(0, 0)
    x, y = torch.randn(16, 1, 8, 8), torch.arange(16) % 3
    F.cross_entropy(network(x), y).backward()
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    drawn = torch.get_rng_state()
    probe = JacobianSpectra(network, 2)
    probe.arm()
    probe._images = x  # the batch of a forward pass that has been made already
    grads = [p.grad.clone() for p in network.parameters()]
    probe.after_backward()
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    assert all(torch.equal(p.grad, grad) for p, grad in zip(network.parameters(), grads, strict=True))
    assert [module.training for module in network.modules()] == modes and torch.equal(torch.get_rng_state(), drawn)
    assert not network._forward_pre_hooks and not any(b._forward_pre_hooks for b in network.modules())


@pytest.mark.parametrize("connection", ["residual", "stochastic_depth"])
def test_training_is_the_same_to_the_bit(make_preset, execute, tmp_path, connection: str) -> None:
    kept = []
    for count in (0, 2):
        into = Study.create(tmp_path, f"with{count}")
        _, folder = execute(make_preset(connection, "mlp", {"probe.jacobian": count}), into=into)
        content = torch.load(folder.checkpoint, weights_only=True)
        kept.append((content["parameters"], content["buffers"], folder))
    assert torch.equal(kept[0][0], kept[1][0])
    assert all(torch.equal(kept[0][1][name], kept[1][1][name]) for name in kept[0][1])
    without, layout = kept[0][2], kept[1][2].read()["layout"]
    assert layout == without.read()["layout"] | {"trunk": ["trunk"]}
    table = read_table(kept[1][2], "layers", layout).to_pandas()
    shown = table[table["metric"].str.startswith(("jacobian", "end_to_end"))]
    assert set(shown["scope"]) == {"block", "trunk"} and shown["step"].nunique() == table["step"].nunique()
    assert (shown["value"] >= 0).all() and shown["reason"].isna().all()


def test_no_batch_is_said(make_conf: Callable[..., RunConf], make_network, make_flat) -> None:
    conf = make_conf("residual")
    network = make_network(conf)
    probe = Probe(network, make_flat(network, conf), jacobian=2)
    assert probe.layout["trunk"] == ["trunk"]
    with pytest.raises(RuntimeError, match="saw no batch"):
        JacobianSpectra(network, 2).after_backward()
