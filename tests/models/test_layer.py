import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plainres.models.layer import BatchNorm, Layer, Pointwise, conv_kit, linear_kit
from plainres.options import Activation, Norm

CASES = [((6, 3), nn.BatchNorm1d), ((5, 3, 2, 4), nn.BatchNorm2d)]


def pair_of_norms(reference):
    mine, theirs = BatchNorm(3), reference(3)
    with torch.no_grad():
        for norm in (mine, theirs):
            norm.weight.copy_(torch.tensor([1.0, 2.0, -0.5]))
            norm.bias.copy_(torch.tensor([0.1, -1.0, 3.0]))
    return mine, theirs


def run(norm, x, weights):
    x = x.clone().requires_grad_()
    y = norm(x)
    grads = torch.autograd.grad((y * weights).sum(), [x, norm.weight, norm.bias])
    return [y.detach(), *grads, norm.running_mean.clone(), norm.running_var.clone()]


@pytest.mark.parametrize(("shape", "reference"), CASES)
def test_equals_torch_in_training_and_evaluation(shape, reference):
    draw = torch.Generator().manual_seed(0)
    mine, theirs = pair_of_norms(reference)
    for training in (True, True, False, True):
        x, weights = (torch.randn(shape, generator=draw) * 3 + 1 for _ in range(2))
        mine.train(training)
        theirs.train(training)
        for got, expected in zip(run(mine, x, weights), run(theirs, x, weights), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("shape", [(6, 3), (5, 3, 2, 4)])
def test_batch_statistics_in_evaluation_move_nothing(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3 + 1
    norm = pair_of_norms(nn.BatchNorm1d)[0].eval()
    norm.running_mean.fill_(9.0)
    before = [b.clone() for b in norm.buffers()]
    norm.batch_statistics = True
    expected = F.batch_norm(x.double(), None, None, norm.weight.double(), norm.bias.double(), training=True)
    assert torch.allclose(norm(x).double(), expected, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(norm.buffers(), before, strict=True))
    norm.batch_statistics = False
    assert not torch.allclose(norm(x).double(), expected, atol=1e-1)


def test_statistics_begin_at_0_and_1():
    norm = BatchNorm(3)
    norm(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)) + 4)
    assert norm.running_mean.abs().min() > 0
    norm.reset_statistics()
    assert norm.running_mean.tolist() == [0] * 3 and norm.running_var.tolist() == [1] * 3
    assert [name for name, _ in norm.named_buffers()] == ["running_mean", "running_var"]


@pytest.mark.parametrize("activate", [True, False])
def test_layers_are_op_norm_act(activate):
    draw = torch.Generator().manual_seed(0)
    x_ND, x_NCHW = torch.randn(8, 4, generator=draw), torch.randn(8, 4, 5, 5, generator=draw)
    linear, conv = (
        Layer(kit.op(4, 3, 1), kit.make_norm(3), kit.make_act() if activate else None)
        for kit in (linear_kit(Norm.batch, Activation.relu), conv_kit(Norm.batch, Activation.relu, (4, 4)))
    )
    for layer, x, op in ((linear, x_ND, F.linear), (conv, x_NCHW, lambda x, w: F.conv2d(x, w, padding=1))):
        assert [n for n, _ in layer.named_parameters()] == ["op.weight", "norm.weight", "norm.bias"]
        y = F.batch_norm(op(x.double(), layer.op.weight.double()), None, None, training=True)
        assert torch.allclose(layer(x).double(), y.clamp(min=0) if activate else y, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width_in", [3, 6, 16])
def test_a_pointwise_convolution_is_torchs_own_in_float64(width_in, stride):
    torch.manual_seed(0)
    mine = Pointwise(width_in, 10, stride, True)
    theirs = nn.Conv2d(width_in, 10, 1, stride=stride).double()
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(8, width_in, 7, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    x_64 = x.detach().double().requires_grad_()
    y, expected = mine(x), theirs(x_64)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    torch.testing.assert_close(x.grad.double(), x_64.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.weight.grad.double(), theirs.weight.grad, rtol=1e-4, atol=1e-3)
