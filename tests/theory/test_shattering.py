"""Gradients along a line by hand, the laws of Balduzzi 2017 on random nets, files and refusals."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from plainres.cli import main
from plainres.data.dataset import Dataset, make_dataset
from plainres.models.networks import Network
from plainres.schema import RunConf
from plainres.theory.shattering import along_line, autocorrelation, logit_gradients, mean_cosine, shattering

Make = Callable[..., RunConf]
TINY = ["model.width=8", "depth=4,6", "connection=plain,residual"]


def test_a_line_and_its_gradients_by_differences(make_conf: Make, make_network: Callable[..., Network]) -> None:
    network = make_network(make_conf("residual", {"model.activation": "tanh"})).double().eval()
    first, last = torch.randn(2, 1, 4, 4, dtype=torch.float64)
    points = along_line(first, last, 5)
    assert torch.allclose(points[[0, 2, 4]], torch.stack([first, (first + last) / 2, last]))
    found = logit_gradients(network, points, 1, chunk=2)
    with torch.no_grad():
        for i in range(16):
            step = torch.zeros(16, dtype=torch.float64)
            step[i] = 1e-6
            up, down = (network(points + sign * step.reshape(1, 1, 4, 4))[:, 1] for sign in (1, -1))
            assert found[:, i] == pytest.approx(((up - down) / 2e-6).numpy(), rel=1e-5, abs=1e-9)


def test_autocorrelation_by_hand() -> None:
    g = np.array([[1.0, 0.0], [3.0, 1.0], [2.0, 5.0]])
    centred = g - np.array([2.0, 2.0])
    total = (centred**2).sum()
    wanted = [1, (centred[0] @ centred[1] + centred[1] @ centred[2]) / total, centred[0] @ centred[2] / total]
    assert autocorrelation(g, 2) == pytest.approx(wanted)
    assert np.isnan(autocorrelation(np.ones((4, 3)), 2)).all(), "a linear map's gradient is constant"


def test_mean_cosine_by_hand() -> None:
    g = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [0.0, 0.0]])
    assert mean_cosine(g) == pytest.approx((0 + math.sqrt(0.5) + math.sqrt(0.5)) / 3)
    assert math.isnan(mean_cosine(np.zeros((3, 2))))


def test_a_network_is_left_as_it_was(make_conf: Make, make_network: Callable[..., Network], tiny_data: Dataset) -> None:
    network = make_network(make_conf("residual"))
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    first, again = shattering(network, tiny_data), shattering(network, tiny_data)
    assert np.array_equal(first.autocorrelation, again.autocorrelation) and first.autocorrelation[0] == 1
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    assert all(m.training for m in network.modules()) and all(p.requires_grad for p in network.parameters())
    assert all(p.grad is None for p in network.parameters())


@pytest.fixture(scope="module")
def noise_images() -> Dataset:
    """Unrelated inputs, as the laws suppose."""
    x = torch.randn(400, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.arange(400) % 10
    return make_dataset(x[:390], y[:390], x[390:], y[390:])


@pytest.mark.slow
def test_plain_nets_follow_the_law_of_halves(
    make_conf: Make, make_network: Callable[..., Network], noise_images: Dataset
) -> None:
    """Correlation of gradients at different inputs: 2^−L with L ReLU layers, each active half the time."""
    for layers in (2, 4, 6):
        values = {"model.width": 192, "model.branch_layers": 1, "depth": layers + 1}
        nets = [make_network(make_conf("plain", values | {"seed": s}), (1, 16, 16), 10) for s in range(2)]
        found = np.mean([shattering(net, noise_images).example_cosine for net in nets])
        assert found == pytest.approx(2.0**-layers, rel=0.15)


@pytest.mark.slow
def test_residual_nets_with_batch_norm_fall_with_the_root(
    make_conf: Make, make_network: Callable[..., Network], noise_images: Dataset
) -> None:
    """Balduzzi's block x + W relu(BN(x)): about L^(−1/2), where plain nets of the same depths would fall by 2^−22."""
    blocks, found = np.array([2, 8, 24]), []
    for count in blocks:
        values = {"model.width": 192, "model.branch_layers": 1, "depth": int(count) + 2}
        values |= {"model.placement": "pre_activation"}
        nets = [make_network(make_conf("residual", values | {"seed": s}), (1, 16, 16), 10) for s in range(2)]
        found.append(np.mean([shattering(net, noise_images).example_cosine for net in nets]))
    slope = np.polyfit(np.log(blocks), np.log(found), 1)[0]
    assert -0.62 < slope < -0.38


def test_networks_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["shattering", *TINY])
    folder = tmp_path / "results" / "single" / "report" / "shattering"
    summary = pd.read_csv(folder / "summary.csv")
    assert len(summary) == 4 and set(summary["moment"]) == {"start"} and "plain" in capsys.readouterr().out
    curves = pd.read_csv(folder / "shattering.csv")
    assert (folder / "shattering.png").is_file() and set(curves["lag"]) == set(range(129))
    ones = curves[curves["lag"] == 1].set_index(["connection", "depth"])["autocorrelation"]
    assert np.allclose(summary.set_index(["connection", "depth"])["lag_1"], ones)


def test_a_run_is_measured_before_and_after(execute, make_conf, study, capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = execute(make_conf("residual", {"trainer.steps": 4, "schedule.warmup_steps": 1}))
    main(["shattering", str(folder.path)])
    assert "before training" in capsys.readouterr().out
    summary = pd.read_csv(study.path / "report" / "shattering" / "summary.csv")
    assert summary["moment"].tolist() == ["start", "end"] and summary["lag_1"].nunique() == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["nowhere"], "no run"),
        (["nowhere", "depth=4"], "not both"),
        (["depth=5"], "nearest is depth=4 or depth=6"),
        (["depth=20", "start.depth=10"], "start.depth=10: must be null for networks before training"),
        (["depth=4", "optimizer.lr=0.1,0.2"], "two runs have connection=plain depth=4 seed=0"),
    ],
    ids=["no run", "both", "no such depth", "built", "two settings"],
)
def test_mistakes_are_one_line(
    given: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["shattering", *given])
    err = capsys.readouterr().err
    assert stopped.value.code == 1 and why in err and err.count("\n") == 1
    assert not list(tmp_path.rglob("report"))
