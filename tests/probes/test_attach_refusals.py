"""What attach cannot measure rightly it refuses, in one line that says what to do; and compiled models."""

import sys

import pytest
import timm
import torch
import torch.nn.functional as F
from pytest import approx
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torchvision.models.resnet import BasicBlock, ResNet

from plainres.errors import UserError
from plainres.probes import Site, attach

IN = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(2))


class Net(nn.Module):
    """One addition; ``kind`` spoils it."""

    def __init__(self, kind="right"):
        super().__init__()
        self.kind = kind
        self.shortcut, self.branch, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.act = nn.ReLU()

    def forward(self, x):
        h = self.shortcut(x)
        if self.kind == "rewritten":
            h += 1
        f = self.branch(x)
        if self.kind == "twice":
            f = self.branch(f)
        if self.kind == "uncalled":
            return self.act(h + f)
        self.narrow(x)
        return self.act(h + (2 if self.kind == "scaled" else 1) * f)


SITE = Site("branch", "shortcut", total="act:input", output="act")


def run(kind, site=SITE, x=IN):
    torch.manual_seed(0)
    model = Net(kind)
    probes = attach(model, [site])
    try:
        with probes.measure(0):
            model(x)
    finally:
        assert not model._forward_pre_hooks and not model.branch._forward_hooks
    return probes


def test_a_right_site_passes():
    assert run("right").rows()


@pytest.mark.parametrize(
    ("kind", "site", "message"),
    [
        ("scaled", SITE, "output is not shortcut [+] branch"),
        ("right", Site("shortcut", "branch:input", total="act:input"), "output is not shortcut [+] branch"),
        ("right", Site("branch", "shortcut", total="branch:input"), "output is not shortcut [+] branch"),
        ("rewritten", SITE, "rewritten in place"),
        ("twice", SITE, r"called more than once.*branch#0"),
        ("uncalled", Site("branch", "narrow"), "'narrow:input' was never passed"),
        ("right", Site("branch", "narrow"), r"\(6, 8\) and shortcut \(6, 4\) differ in shape"),
    ],
)
def test_a_site_that_is_not_an_addition_is_refused(kind, site, message):
    with pytest.raises(UserError, match=message):
        run(kind, site)


@pytest.mark.parametrize("call", ["branch#0", "branch#1"])
def test_the_call_of_a_module_can_be_told(call):
    torch.manual_seed(0)
    model = Net()
    once = model.branch(IN)
    expected = once if call == "branch#0" else model.branch(once)
    probes = run("twice", Site(call, "shortcut"))
    (found,) = (r["value"] for r in probes.rows() if r["metric"] == "branch_norm")
    assert found == approx(expected.norm(dim=1).mean().item())


def test_a_place_without_batch_is_refused():
    with pytest.raises(UserError, match="no tensor with examples first"):
        run("right", x=IN[0])


def test_samples_of_two_numbers_are_refused():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(4, 4)

        def forward(self, x):
            x = x + self.a(x)
            x = x.view(12, 4)
            return x + self.b(x)

    model = Folded()
    probes = attach(model, [("a", "a:input"), ("b", "b:input")])
    with pytest.raises(UserError, match="site b: 12 samples where a has 6"), probes.measure(0):
        model(IN)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "give a list"),
        (("branch", "shortcut"), "give a list"),
        ([("branch",)], "neither a pair of paths"),
        ([("branch", "shortcuts")], r"no module 'shortcuts'; it has, for example, \['shortcut', 'branch', 'narrow'\]"),
        ([("branch:output", "shortcut")], "not a place"),
        ([("branch", "shortcut"), ("branch", "act")], "two sites are called 'branch'"),
        (None, "no block of a known kind found"),
    ],
)
def test_blocks_that_make_no_sense(blocks, message):
    with pytest.raises(UserError, match=message):
        attach(Net(), blocks)


def test_settings_that_make_no_sense():
    model = Net()
    with pytest.raises(UserError, match="reduction='median'"):
        attach(model, [SITE], reduction="median")
    with pytest.raises(UserError, match="every=0"):
        attach(model, [SITE], every=0)
    probes = attach(model, [SITE])
    with pytest.raises(UserError, match="loss_weight=0"), probes.measure(0, loss_weight=0):
        pass
    with pytest.raises(UserError, match="under way"), probes.measure(0), probes.measure(1):
        pass
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UserError, match="two optimizer steps"), probes.measure(0):
        model(IN).sum().backward()
        optimizer.step()
        optimizer.step()
    assert not torch_optimizer._global_optimizer_pre_hooks


def test_more_than_one_process_or_device_is_refused(monkeypatch):
    with pytest.raises(UserError, match="one process"):
        attach(nn.DataParallel(Net()), [SITE])
    spread = Net()
    spread.narrow.to("meta")
    with pytest.raises(UserError, match="one process and device"):
        attach(spread, [SITE])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match="one process"):
        attach(Net(), [SITE])


def test_blocks_whose_forward_is_not_the_library_s_own():
    class Halved(BasicBlock):
        def forward(self, x):
            return super().forward(x) / 2

    class Same(BasicBlock):
        pass

    with pytest.raises(UserError, match="no block of a known kind"):
        attach(ResNet(Halved, [1, 1, 1, 1]))
    assert attach(ResNet(Same, [1, 1, 1, 1])).layout["block"] == [f"layer{i}.0" for i in range(1, 5)]
    assert attach(BasicBlock(3, 3)).layout["block"] == ["bn2"]
    parallel = VisionTransformer(
        img_size=16, patch_size=4, embed_dim=16, depth=1, num_heads=2, block_fn=ParallelScalingBlock
    )
    with pytest.raises(UserError, match=r"blocks\.0: attach does not know where a ParallelScalingBlock"):
        attach(parallel)
    assert attach(parallel, [("blocks.0.drop_path", "blocks.0:input")])
    with pytest.raises(UserError, match="no block of a known kind"):
        attach(timm.create_model("resnetv2_18"))


def stand_in(full_name, body):
    """A class with the full name of another library's."""
    module, _, name = full_name.rpartition(".")
    return type(name, (nn.Module,), body | {"__module__": module, "__qualname__": name})()


class Pair(nn.Linear):
    """Puts out a tuple, as attention modules do."""

    def forward(self, x):
        return super().forward(x), None


class Output(nn.Module):
    """The end of a ViTLayer before transformers 5: the addition stands inside."""

    def __init__(self):
        super().__init__()
        self.dense, self.dropout = nn.Linear(8, 8), nn.Dropout(0.0)

    def forward(self, z, x):
        return self.dropout(self.dense(z)) + x


def gpt2_forward(self, x):
    x = self.attn(self.ln_1(x))[0] + x
    return x + self.mlp(self.ln_2(x))


def vit5_forward(self, x):
    x = self.dropout(self.attention(self.layernorm_before(x))[0]) + x
    return self.dropout(self.mlp(self.layernorm_after(x))) + x


def vit4_forward(self, x):
    x = self.attention(self.layernorm_before(x)) + x
    return self.output(self.intermediate(self.layernorm_after(x)), x)


GPT2 = "transformers.models.gpt2.modeling_gpt2.GPT2Block"
VIT = "transformers.models.vit.modeling_vit.ViTLayer"


@pytest.mark.parametrize(
    ("full_name", "forward", "parts"),
    [
        (
            GPT2,
            gpt2_forward,
            {"ln_1": nn.LayerNorm(8), "attn": Pair(8, 8), "ln_2": nn.LayerNorm(8), "mlp": nn.Linear(8, 8)},
        ),
        (VIT, vit5_forward, {"attention": Pair(8, 8), "mlp": nn.Linear(8, 8), "dropout": nn.Dropout(0.0)}),
        (VIT, vit4_forward, {"attention": nn.Linear(8, 8), "intermediate": nn.Linear(8, 8), "output": Output()}),
    ],
    ids=["gpt2", "vit", "vit-before-5"],
)
def test_stand_ins_for_transformers_when_it_is_not_installed(full_name, forward, parts):
    """What the real ones are tested for in test_attach_values.py, where transformers is installed."""
    block = stand_in(full_name, {"forward": forward})
    if full_name == VIT:
        parts = parts | {"layernorm_before": nn.LayerNorm(8), "layernorm_after": nn.LayerNorm(8)}
    for name, part in parts.items():
        block.add_module(name, part)
    model = nn.Sequential(block)
    probes = attach(model)
    with probes.measure(0):
        model(IN).sum().backward()
    attention = parts["attn" if full_name == GPT2 else "attention"]
    f = attention(parts["ln_1" if full_name == GPT2 else "layernorm_before"](IN))
    f = f[0] if isinstance(f, tuple) else f
    ratio = (f.norm(dim=1) / IN.norm(dim=1)).mean().item()
    found = {r["layer_name"]: r["value"] for r in probes.rows() if r["metric"] == "branch_ratio"}
    assert list(found) == ["0.attn", "0.mlp"] and found["0.attn"] == approx(ratio)
    block.crossattention = nn.Identity()
    if full_name == GPT2:
        with pytest.raises(UserError, match="three additions"):
            attach(model)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
@pytest.mark.parametrize("how", ["model", "in place", "part"])
def test_a_compiled_model_runs_uncompiled_in_measured_steps_only(how):
    runs = []

    def backend(graph, example_inputs):
        def compiled(*args):
            runs.append(1)
            return graph.forward(*args)

        return compiled

    def small():
        torch.manual_seed(0)
        parts = nn.Conv2d(3, 4, 3), BasicBlock(4, 4), BasicBlock(4, 4), nn.Flatten(), nn.LazyLinear(5)
        model = nn.Sequential(*parts)
        model(IMAGES)
        return model

    plain, model = small(), small()
    if how == "model":
        model = torch.compile(model, backend=backend)
    elif how == "in place":
        model.compile(backend=backend)
    else:
        model[2] = torch.compile(model[2], backend=backend)
    probes, reference = attach(model, every=4), attach(plain, every=4)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, model)]
    targets = torch.arange(4)
    for step in range(6):
        before = len(runs)
        for net, probe, optimizer in zip((plain, model), (reference, probes), optimizers, strict=True):
            with probe.measure(step):
                loss = F.cross_entropy(net(IMAGES), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        assert (len(runs) == before) is probes.due(step)
    assert len(runs) == 2  # steps 3 and 5
    pairs = list(zip(plain.parameters(), model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    found = [r["value"] for r in probes.rows()]
    assert found == [r["value"] for r in reference.rows()] and found
    assert "torch._dynamo" in sys.modules
