"""attach in the user's own loop: no number changes, no hook stays, and every way to loop has its rule."""

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.utils.checkpoint import checkpoint
from torchvision.models.resnet import BasicBlock, ResNet

from plainres.errors import UserError
from plainres.probes import attach

X = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
Y = torch.arange(6) % 5


def resnet():
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)


def vit():
    settings = {"init_values": 1e-2, "drop_path_rate": 0.4, "proj_drop_rate": 0.1}
    return VisionTransformer(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=5, **settings)


class Mlp(nn.Module):
    """Two residual blocks of one linear layer; the first block's shortcut is a projection."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 6, bias=False)
        self.first = nn.Linear(8, 6)
        self.second = nn.Linear(6, 6)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.act(self.project(x) + self.first(x))
        x = self.act(x + self.second(x))
        return self.head(x)


PAIRS = [("first", "project"), ("second", "second:input")]
IN = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))


def seeded(make):
    torch.manual_seed(4)
    return make().train()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train_step(model, optimizer, x=X, y=Y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def values(probes, metric, scope="block"):
    return [r["value"] for r in probes.rows() if (r["scope"], r["metric"]) == (scope, metric)]


def reasons(probes, metric, scope="block"):
    return {r["reason"] for r in probes.rows() if (r["scope"], r["metric"]) == (scope, metric)}


def num_hooks(model):
    count = sum(len(h) for m in model.modules() for h in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks))
    count += sum(len(getattr(p, "_post_accumulate_grad_hooks", None) or {}) for p in model.parameters())
    steps = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    return count + sum(map(len, steps))


@pytest.mark.parametrize("make", [resnet, vit])
def test_training_is_bit_identical_with_and_without(make):
    states = []
    for measured in (True, False):
        model = seeded(make)
        optimizer = sgd(model)
        probes = attach(model)
        keys = list(model.state_dict())
        losses = []
        for step in range(4):
            with probes.measure(step) if measured else nullcontext():
                losses.append(train_step(model, optimizer))
        assert list(model.state_dict()) == keys
        grads = [p.grad for p in model.parameters()]
        states.append([*losses, *model.state_dict().values(), *grads, torch.get_rng_state()])
        assert bool(probes.rows()) is measured
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_hooks_exist_only_inside_a_due_measured_step():
    model = seeded(resnet)
    optimizer, probes = sgd(model), attach(model, every=4)
    seen = []
    for step in range(9):
        with probes.measure(step):
            assert (num_hooks(model) > 0) is probes.due(step)
            train_step(model, optimizer)
        seen += [step] if num_hooks(model) == 0 and probes.due(step) else []
    assert seen == [0, 1, 2, 4, 8] == sorted({r["step"] for r in probes.rows()})


def test_nothing_stays_after_an_error_or_remove():
    model = seeded(resnet)
    with attach(model) as probes:
        with pytest.raises(RuntimeError, match="mine"), probes.measure(0):
            raise RuntimeError("mine")
        assert num_hooks(model) == 0
        with probes.measure(0):
            probes.remove()
            assert num_hooks(model) == 0
        assert probes.rows() == []
    with pytest.raises(UserError, match="removed"), probes.measure(1):
        pass


def test_two_attached_probes_read_the_same():
    model = seeded(resnet)
    first, second = attach(model), attach(model)
    with first.measure(0), second.measure(0):
        train_step(model, sgd(model))
    assert first.rows() == second.rows() and first.rows()


def measured_mlp(blocks=PAIRS, step=train_step, prepare=lambda model: None, **settings):
    model = seeded(Mlp)
    prepare(model)
    probes = attach(model, blocks, **settings)
    with probes.measure(0):
        step(model, sgd(model), IN, Y)
    return model, probes


def test_pairs_of_paths():
    model = seeded(Mlp)
    h, f = model.project(IN), model.first(IN)
    x = F.relu(h + f)
    _, probes = measured_mlp()
    norms = [t.detach().norm(dim=1).mean().item() for t in (IN, x, h, x, f, model.second(x))]
    found = [v for m in ("input_norm", "shortcut_norm", "branch_norm") for v in values(probes, m)]
    assert found == approx(norms)
    assert values(probes, "branch_ratio")[0] == approx((f.norm(dim=1) / h.norm(dim=1)).mean().item())
    assert values(probes, "output_norm")[0] == approx((h + f).norm(dim=1).mean().item())
    assert probes.layout["block"] == ["first", "second"]
    assert probes.layout["layer"] == ["project.weight", "first.weight", "second.weight", "head.weight"]
    assert reasons(probes, "activation_grad_norm_output") == {"this site names no place for its output"}
    assert reasons(probes, "activation_grad_norm_input") == {
        "no backward pass reached this place in the measured step",  # the data take no gradient
        None,
    }


def test_a_site_says_where_sum_and_output_are():
    from plainres.probes import Site

    sites = [
        Site("first", "project", total="act#0:input", output="act#0", name="a", scales=("project",)),
        Site("second", "second:input", total="act#1:input", output="act#1", name="b"),
    ]
    model, probes = measured_mlp(sites)
    assert probes.layout["block"] == ["a", "b"] and probes.layout["connection"] == ["project.weight"]
    twin = seeded(Mlp)
    first = F.relu(twin.project(IN) + twin.first(IN))
    second = F.relu(first + twin.second(first))
    grads = torch.autograd.grad(F.cross_entropy(twin.head(second), Y), [first, second])
    expected = [g.norm(dim=1).mean().item() * len(Y) for g in grads]
    assert values(probes, "activation_grad_norm_output") == approx(expected)
    assert values(probes, "activation_grad_norm_input")[1] == approx(expected[0])
    assert values(probes, "output_norm") == approx([t.norm(dim=1).mean().item() for t in (first, second)])
    assert num_hooks(model) == 0


def test_a_loss_that_is_a_sum():
    def step(model, optimizer, x, y):
        F.cross_entropy(model(x), y, reduction="sum").backward()

    _, mean = measured_mlp()
    _, total = measured_mlp(step=step, reduction="sum")
    assert values(mean, "activation_grad_norm_input")[1] == approx(values(total, "activation_grad_norm_input")[1])


@pytest.mark.parametrize("inside", ["last", "all"])
def test_accumulation_reads_the_last_micro_batch_and_the_accumulated_gradient(inside):
    model = seeded(resnet)
    alone = copy.deepcopy(model)
    probes = attach(model)
    halves = [(X[:3], Y[:3]), (X[3:], Y[3:])]

    def backward(net, half):
        (F.cross_entropy(net(half[0]), half[1]) / 2).backward()

    if inside == "last":
        backward(model, halves[0])
    with probes.measure(0, loss_weight=0.5):
        for half in halves if inside == "all" else halves[1:]:
            backward(model, half)
    single = attach(alone)
    backward(alone, halves[0])
    after_first = {n: p.grad.clone() for n, p in alone.named_parameters()}
    alone.zero_grad()
    with single.measure(0):
        F.cross_entropy(alone(halves[1][0]), halves[1][1]).backward()
    for metric in ("branch_ratio", "activation_grad_norm_input", "activation_grad_norm_output", "block_gain"):
        assert values(probes, metric) == approx(values(single, metric), rel=1e-5)
    expected = [(after_first[n] + p.grad / 2).norm().item() for n, p in alone.named_parameters()]
    total = sum(e * e for e in expected) ** 0.5
    assert values(probes, "grad_norm_total", "run") == approx([total], rel=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_is_divided_out_and_its_skipped_step_is_no_update(fused):
    reference = seeded(resnet)
    plain = attach(reference)
    with plain.measure(0):
        train_step(reference, torch.optim.SGD(reference.parameters(), lr=0.1))
    model = seeded(resnet)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    probes = attach(model, scaler=scaler)

    def step(number, factor):
        with probes.measure(number):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(X), Y) * factor).backward()
            scaler.step(optimizer)
            scaler.update()

    step(0, 1.0)
    for scope, metric in {(r["scope"], r["metric"]) for r in plain.rows()}:
        pairs = zip(values(probes, metric, scope), values(plain, metric, scope), strict=True)
        assert all(a is b or a == approx(b, rel=1e-3, abs=1e-6) for a, b in pairs), metric
    before = [p.detach().clone() for p in model.parameters()]
    step(1, float("inf"))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    skipped = [r for r in probes.rows() if r["step"] == 1 and r["metric"] == "update_ratio" and r["scope"] == "layer"]
    assert skipped and all(r["value"] is None and "scaler left it out" in r["reason"] for r in skipped)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_that_nobody_told_is_noticed(fused):
    model = seeded(resnet)
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    with pytest.raises(UserError, match="scaler=scaler"), attach(model).measure(0):
        scaler.scale(F.cross_entropy(model(X), Y)).backward()
        scaler.step(optimizer)
    assert num_hooks(model) == 0


@pytest.mark.parametrize("make", [resnet, vit])
def test_autocast_keeps_the_sum_recognisable_and_the_values_close(make):
    exact, rough = seeded(make), seeded(make)
    probes = [attach(exact), attach(rough)]
    for model, probe, cast in zip((exact, rough), probes, (False, True), strict=True):
        torch.manual_seed(0)
        with probe.measure(0), torch.autocast("cpu", torch.bfloat16, enabled=cast):
            F.cross_entropy(model(X), Y).backward()
    for metric in ("branch_ratio", "output_norm"):
        assert values(probes[1], metric) == approx(values(probes[0], metric), rel=0.05)


def test_frozen_parameters_and_unused_ones():
    def freeze(model):
        model.project.requires_grad_(False)
        model.unused = nn.Linear(3, 3)

    _, probes = measured_mlp(prepare=freeze)
    rows = {(r["layer_name"], r["metric"]): r for r in probes.rows()}
    assert rows["project.weight", "grad_norm"]["reason"] == "frozen: requires_grad is False"
    assert rows["unused.weight", "grad_norm"]["reason"] == "no gradient reached it in the measured step"
    assert rows["unused.weight", "update_ratio"]["value"] == 0
    assert rows["project.weight", "weight_grad_product"]["reason"] == "frozen: requires_grad is False"
    assert rows["project.weight", "weight_norm"]["value"] > 0


def test_without_backward_pass_or_optimizer_the_forward_values_stand():
    model = seeded(resnet).eval()
    probes = attach(model)
    with probes.measure(0), torch.no_grad():
        model(X)
    assert all(v > 0 for v in values(probes, "branch_ratio"))
    for metric, scope in (("block_gain", "block"), ("grad_norm", "layer"), ("update_ratio", "layer")):
        assert set(values(probes, metric, scope)) == {None} and None not in reasons(probes, metric, scope)
    assert values(probes, "grad_norm_total", "run") == [None]
    assert all(v > 0 for v in values(probes, "weight_norm", "layer"))


def test_reentrant_checkpointing_hides_gradients_but_not_the_forward_values():
    model = seeded(resnet)
    stage = model.layer2
    probes = attach(model)
    run_stage = stage.forward
    stage.forward = lambda x: checkpoint(run_stage, x, use_reentrant=True)
    with probes.measure(0):
        train_step(model, sgd(model))
    assert all(v > 0 for v in values(probes, "branch_ratio"))
    assert [v is None for v in values(probes, "activation_grad_norm_output")] == [False, True, False, False]


def test_checkpointing_repeats_a_forward_pass_that_is_not_measured_twice():
    class Checkpointed(ResNet):
        again = False

        def _forward_impl(self, x):
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
                x = checkpoint(stage, x, use_reentrant=False) if self.again else stage(x)
            return self.fc(self.avgpool(x).flatten(1))

    found = []
    for again in (False, True):
        model = seeded(lambda: Checkpointed(BasicBlock, [1, 1, 1, 1], num_classes=5))
        model.again = again
        probes = attach(model)
        with probes.measure(0):
            train_step(model, sgd(model))
        found.append(probes.rows())
    assert found[0] == found[1]
