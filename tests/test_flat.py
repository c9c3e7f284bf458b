import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.flat import FlatParameters, Region
from plainres.optim import build_optimizer
from plainres.options import DecayRule


def train(network, optimizer, flat, data, steps):
    for _ in range(steps):
        flat.zero_grad()
        F.cross_entropy(network(data.train.images), data.train.y_N).backward()
        optimizer.step()


def assert_all_views(network, flat):
    for kind, buffer in (("data", flat.data), ("grad", flat.grad)):
        begin = buffer.data_ptr()
        seen = set()
        for name, p in network.named_parameters():
            tensor = getattr(p, kind)
            offset = (tensor.data_ptr() - begin) // 4
            assert offset >= 0 and offset + p.numel() <= buffer.numel(), name
            assert torch.equal(buffer[offset : offset + p.numel()].view(p.shape), tensor.detach()), name
            seen.update(range(offset, offset + p.numel()))
        assert len(seen) == buffer.numel()


@pytest.mark.parametrize("decay", ["all", "matrices"])
def test_values_are_kept_and_views_stay_views_while_training(make_conf, make_network, make_flat, tiny_data, decay):
    conf = make_conf("residual", {"optimizer.decay": decay, "optimizer.clip_norm": 1.0})
    network, same = make_network(conf), make_network(conf)
    flat = make_flat(network, conf)
    for p, q in zip(network.parameters(), same.parameters(), strict=True):
        assert torch.equal(p, q)
    assert_all_views(network, flat)
    train(network, build_optimizer(conf.optimizer, flat), flat, tiny_data, 5)
    assert_all_views(network, flat)
    assert not torch.equal(network.head.weight, same.head.weight)


def test_regions(make_conf, make_network):
    network = make_network(make_conf())
    everything = FlatParameters(make_network(make_conf()), DecayRule.all)
    total = sum(p.numel() for p in network.parameters())
    assert everything.regions == [Region(0, total, True, 1.0)]
    flat = FlatParameters(network, DecayRule.matrices)
    matrices = [p for p in network.parameters() if p.dim() > 1]
    split = sum(p.numel() for p in matrices)
    assert flat.regions == [Region(0, split, True, 1.0), Region(split, total, False, 1.0)]
    dims = {name: p.dim() for name, p in network.named_parameters()}
    assert [dims[n] > 1 for n in flat.names] == [True] * len(matrices) + [False] * (len(dims) - len(matrices))
    assert flat.names[:2] == ["stem.op.weight", "blocks.0.branch.0.op.weight"]


@pytest.mark.parametrize("module", [nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False)])
def test_a_network_of_one_kind_has_one_region(module):
    assert len(FlatParameters(module, DecayRule.matrices).regions) == 1


@pytest.mark.parametrize("decay", list(DecayRule))
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_norms_are_those_of_each_tensor_in_float64(make_conf, make_network, decay, scale):
    network = make_network(make_conf("plain", {"model.name": "cnn", "model.width": 30, "depth": 4}))
    flat = FlatParameters(network, decay)
    draw = torch.Generator().manual_seed(0)
    flat.grad.copy_(torch.randn(flat.grad.shape, generator=draw) * scale)
    named = dict(network.named_parameters())
    expected = torch.stack([torch.linalg.vector_norm(named[n].grad.double()) for n in flat.names])
    found = flat.norms(flat.grad)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_norms_on_a_gpu_are_those_of_the_cpu(make_conf, make_network):
    on_cpu = FlatParameters(make_network(make_conf()), DecayRule.all)
    on_gpu = FlatParameters(make_network(make_conf()).cuda(), DecayRule.all)
    assert torch.allclose(on_gpu.norms(on_gpu.data).cpu(), on_cpu.norms(on_cpu.data), rtol=1e-6)


def test_a_gradient_that_is_exactly_0_has_norm_0(make_conf, make_network, make_flat):
    flat = make_flat(make_network(make_conf()), make_conf())
    assert flat.norms(flat.grad).abs().max() == 0


RULES = [
    {"optimizer.name": "sgd", "optimizer.momentum": 0.0},
    {"optimizer.name": "sgd"},
    {"optimizer.name": "sgd", "optimizer.nesterov": True, "optimizer.weight_decay": 0.1},
    {"optimizer.name": "adamw", "optimizer.lr": 0.01, "optimizer.weight_decay": 0.1, "optimizer.betas": [0.8, 0.95]},
]


def torchs_own(conf, network):
    """The same rule on separate tensors, with the parameter groups written out."""
    opt = conf.optimizer
    decayed = [p for p in network.parameters() if opt.decay == "all" or p.dim() > 1]
    rest = [p for p in network.parameters() if not (opt.decay == "all" or p.dim() > 1)]
    groups = [{"params": decayed, "weight_decay": opt.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    if opt.name == "sgd":
        return torch.optim.SGD(groups[: 1 + bool(rest)], opt.lr, momentum=opt.momentum, nesterov=opt.nesterov)
    return torch.optim.AdamW(groups[: 1 + bool(rest)], opt.lr, betas=tuple(opt.betas), eps=opt.eps)


@pytest.mark.parametrize("values", RULES, ids=["sgd", "momentum", "nesterov", "adamw"])
@pytest.mark.parametrize("decay", ["all", "matrices"])
def test_flat_and_separate_tensors_are_bit_equal(make_conf, make_network, make_flat, tiny_data, values, decay):
    conf = make_conf("residual", values | {"optimizer.decay": decay})
    network, separate = make_network(conf), make_network(conf)
    flat = make_flat(network, conf)
    optimizer, reference = build_optimizer(conf.optimizer, flat), torchs_own(conf, separate)
    for _ in range(20):
        train(network, optimizer, flat, tiny_data, 1)
        reference.zero_grad()
        F.cross_entropy(separate(tiny_data.train.images), tiny_data.train.y_N).backward()
        reference.step()
        for (name, p), q in zip(network.named_parameters(), separate.parameters(), strict=True):
            assert torch.equal(p, q), name


@pytest.mark.parametrize("values", RULES, ids=["sgd", "momentum", "nesterov", "adamw"])
def test_fused_updates_obey_found_inf(make_conf, make_network, make_flat, tiny_data, values):
    conf = make_conf("plain", values)
    network = make_network(conf)
    flat = make_flat(network, conf)
    optimizer = build_optimizer(conf.optimizer, flat, fused=True)
    optimizer.found_inf = torch.zeros(())
    train(network, optimizer, flat, tiny_data, 2)
    before = flat.data.clone()
    train(network, optimizer, flat, tiny_data, 1)
    assert not torch.equal(flat.data, before)
    before = flat.data.clone()
    optimizer.found_inf.fill_(1)
    train(network, optimizer, flat, tiny_data, 3)
    assert torch.equal(flat.data, before)
