"""Nothing that a probed step reads is left on the host: on a GPU it could be neither packed with the rest nor recorded.

The device is torch's ``meta``: every machine has it, and it refuses tensors of the host as a GPU does.
"""

import sys

import pytest
import torch
from torch import nn

from plainres.flat import FlatParameters
from plainres.models.networks import LayerSite
from plainres.probes.jacobian import JacobianSpectra
from plainres.probes.probe import Probe
from plainres.probes.responses import LayerOutputs
from plainres.step import Passes

CONNECTIONS = (
    "plain", "residual", "highway", "layerscale", "fixup", "depth_scaled", "constant_scaling", "stochastic_depth",
    "layernorm_scaling", "concat",
)  # fmt: skip
CASES = [("mlp", name) for name in CONNECTIONS] + [("cifar_resnet", "depth_scaled")]


@pytest.fixture
def packed(monkeypatch, make_flat):
    """packed(conf, network) -> device and size of what the second of two probed steps collects."""
    for name, module in list(sys.modules.items()):  # what comes from the host is allowed before a step is recorded
        if name.startswith("plainres.") and hasattr(module, "to_device"):
            monkeypatch.setattr(module, "to_device", lambda tensor, device: torch.empty_like(tensor, device=device))
    norms = lambda flat, buffer: torch.stack([part.norm() for part in buffer.split(flat.numel.tolist())])  # noqa: E731
    monkeypatch.setattr(FlatParameters, "norms", norms)

    def step(conf, network):
        flat = make_flat(network, conf)
        probe, passes = Probe(network, flat), Passes(network, flat, conf, "meta")
        x, y = torch.empty(8, 1, 8, 8, device="meta"), torch.zeros(8, dtype=torch.long, device="meta")
        for number in range(2):
            passed = passes(number, x, y, probe)
            probe.before_update()
            probe.after_update()
            collected = probe.collect(passed.grad_norm)
        return collected._packed.device.type, len(collected._packed)

    return step


def on_meta(network):
    return network.to_empty(device="meta").train()


@pytest.mark.parametrize(("model", "connection"), CASES, ids=["-".join(case) for case in CASES])
def test_readings_are_packed_where_they_are(packed, make_preset, make_network, model, connection):
    conf = make_preset(connection, model)
    device, size = packed(conf, on_meta(make_network(conf, (1, 8, 8))))
    assert device == "meta" and size > 50


def test_layers_without_an_activation_of_ours():
    site = LayerSite("own", nn.Identity(), "its output", None)
    outputs = LayerOutputs([site])
    outputs.arm()
    site.response(torch.empty(4, 3, device="meta"))
    outputs.disarm()
    found = outputs.collect()
    assert [part.device.type for part in found] == ["meta", "meta"] and [len(part) for part in found] == [1, 0]


def test_jacobians_are_worked_out_on_the_host_and_join_the_rest(make_conf, make_network):
    network, x = make_network(make_conf("residual"), (1, 8, 8)), torch.randn(4, 1, 8, 8)
    probe = JacobianSpectra(network, 2)
    probe.arm()
    network(x).sum().backward()
    probe.after_backward()
    probe._device = torch.device("meta")  # as if the images had been there
    assert {part.device.type for part in probe.collect()} == {"meta"}
