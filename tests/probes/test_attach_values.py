"""attach on real models of each library: every value against a slow twin whose blocks are written out by hand.

The twin is a float64 copy (float32 where masks are drawn, from the same seed). It uses the library's weights and
never calls a block, an activation module or an attention module of it.
"""

import copy
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from pytest import approx
from timm.models.vision_transformer import ResPostBlock, VisionTransformer

from plainres.probes import attach

X = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 5
TOKENS = torch.randint(30, (6, 7), generator=torch.Generator().manual_seed(0))


@dataclass
class Tensors:
    """x, h, F and y of every addition, and for each F whether samples were kept."""

    x: list = field(default_factory=list)
    h: list = field(default_factory=list)
    f: list = field(default_factory=list)
    y: list = field(default_factory=list)

    def add(self, x, h, f, y):
        for values, tensor in zip((self.x, self.h, self.f, self.y), (x, h, f, y), strict=True):
            values.append(tensor)
        return y


def resnet_twin(model, x, out):
    """torchvision's and timm's: the same weights have the same names."""
    x = F.max_pool2d(F.relu(model.bn1(model.conv1(x))), 3, 2, 1)
    for block in (b for i in range(1, 5) for b in getattr(model, f"layer{i}")):
        layers = [(getattr(block, f"conv{i}"), getattr(block, f"bn{i}")) for i in (1, 2, 3) if hasattr(block, f"bn{i}")]
        f = x
        for i, (conv, norm) in enumerate(layers):
            f = norm(conv(f))
            f = F.relu(f) if i < len(layers) - 1 else f
        if getattr(block, "se", None) is not None:
            f = f * torch.sigmoid(block.se.fc2(F.relu(block.se.fc1(f.mean((2, 3), keepdim=True)))))
        if getattr(block, "drop_path", None) is not None:
            f = block.drop_path(f)
        h = x if block.downsample is None else block.downsample(x)
        x = out.add(x, h, f, F.relu(h + f))
    return model.fc(x.mean((2, 3)))


def attention(q, k, v, heads, causal=False):
    n, t, d = q.shape
    q, k, v = (z.view(n, t, heads, d // heads).transpose(1, 2) for z in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(d // heads)
    if causal:
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d)


def timm_vit_twin(model, images, out):
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1) + model.pos_embed

    def attn(block, z):
        return block.attn.proj(attention(*block.attn.qkv(z).chunk(3, -1), heads=block.attn.num_heads))

    def mlp(block, z):
        return block.mlp.fc2(F.gelu(block.mlp.fc1(z)))

    for block in model.blocks:
        for branch, i in ((attn, 1), (mlp, 2)):
            norm, drop = getattr(block, f"norm{i}"), getattr(block, f"drop_path{i}")
            f = norm(branch(block, x)) if isinstance(block, ResPostBlock) else branch(block, norm(x))
            f = drop(f * getattr(getattr(block, f"ls{i}", None), "gamma", 1))
            x = out.add(x, x, f, x + f)
    return model.head(model.norm(x)[:, 0])


def hf_vit_twin(model, images, out):
    patches = model.vit.embeddings.patch_embeddings.projection(images).flatten(2).transpose(1, 2)
    tokens = model.vit.embeddings.cls_token.expand(len(images), -1, -1)
    x = torch.cat([tokens, patches], 1) + model.vit.embeddings.position_embeddings
    for layer in model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer:
        a = layer.attention
        names = ("q_proj", "k_proj", "v_proj") if hasattr(a, "q_proj") else ("query", "key", "value")
        source = a if hasattr(a, "q_proj") else a.attention
        z = layer.layernorm_before(x)
        mixed = attention(*(getattr(source, name)(z) for name in names), heads=4)
        f = a.o_proj(mixed) if hasattr(a, "o_proj") else a.output.dense(mixed)
        x = out.add(x, x, f, x + f)
        z = layer.layernorm_after(x)
        if hasattr(layer, "intermediate"):
            f = layer.output.dense(F.gelu(layer.intermediate.dense(z)))
        else:
            f = layer.mlp.fc2(F.gelu(layer.mlp.fc1(z)))
        x = out.add(x, x, f, x + f)
    return model.classifier(model.vit.layernorm(x)[:, 0])


def gpt2_twin(model, ids, out):
    def conv1d(module, z):
        return z @ module.weight + module.bias

    x = model.transformer.wte.weight[ids] + model.transformer.wpe.weight[: ids.shape[1]]
    for block in model.transformer.h:
        mixed = attention(*conv1d(block.attn.c_attn, block.ln_1(x)).chunk(3, -1), heads=4, causal=True)
        f = conv1d(block.attn.c_proj, mixed)
        x = out.add(x, x, f, x + f)
        f = conv1d(block.mlp.c_proj, F.gelu(conv1d(block.mlp.c_fc, block.ln_2(x)), approximate="tanh"))
        x = out.add(x, x, f, x + f)
    return (model.transformer.ln_f(x) @ model.transformer.wte.weight.T)[:, -1]


def small_vit(**settings):
    return VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=5, **settings
    ), timm_vit_twin


def hf_vit():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=5,
    )
    return transformers.ViTForImageClassification(config), hf_vit_twin


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=8, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), gpt2_twin


CASES = {
    "torchvision-resnet18": lambda: (torchvision.models.resnet18(num_classes=5), resnet_twin),
    "torchvision-resnet50": lambda: (torchvision.models.resnet50(num_classes=5), resnet_twin),
    "timm-resnet18": lambda: (timm.create_model("resnet18", num_classes=5, zero_init_last=False), resnet_twin),
    "timm-resnet18-drop": lambda: (
        timm.create_model("resnet18", num_classes=5, zero_init_last=False, drop_path_rate=0.6),
        resnet_twin,
    ),
    "timm-seresnet26t": lambda: (
        timm.create_model("resnet26", num_classes=5, zero_init_last=False, block_args={"attn_layer": "se"}),
        resnet_twin,
    ),
    "timm-vit": small_vit,
    "timm-vit-layerscale-droppath": lambda: small_vit(init_values=1e-2, drop_path_rate=0.6),
    "timm-vit-res-post": lambda: small_vit(block_fn=ResPostBlock, init_values=0.5),
    "transformers-vit": hf_vit,
    "transformers-gpt2": gpt2,
}


@dataclass
class Step:
    rows: dict
    reasons: dict
    tensors: Tensors
    gradients: dict
    loss_gradients: dict
    before: dict
    after: dict
    drops: list


@pytest.fixture(scope="module", params=CASES, ids=CASES)
def step(request):
    """One measured training step with clipping, and the twin's own gradients."""
    torch.manual_seed(3)
    model, forward = CASES[request.param]()
    model.train()
    dtype = torch.float32 if "drop" in request.param else torch.float64
    inputs = TOKENS if forward is gpt2_twin else X
    twin, tensors = copy.deepcopy(model).to(dtype), Tensors()
    torch.manual_seed(9)
    loss = F.cross_entropy(forward(twin, inputs if inputs is TOKENS else inputs.to(dtype), tensors), Y)
    parameters = dict(twin.named_parameters())
    found = torch.autograd.grad(
        loss, [*tensors.x, *tensors.y, *parameters.values()], retain_graph=True, allow_unused=True
    )
    num = len(tensors.x)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    probes = attach(model)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    torch.manual_seed(9)
    with probes.measure(0):
        output = model(inputs)
        logits = output if isinstance(output, torch.Tensor) else output.logits
        F.cross_entropy(logits[:, -1] if forward is gpt2_twin else logits, Y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    rows, reasons = {}, {}
    for row in probes.rows():
        rows.setdefault((row["scope"], row["metric"]), {})[row["layer_name"]] = row["value"]
        reasons[row["scope"], row["metric"], row["layer_name"]] = row["reason"]
    names = probes.layout["block"]
    drops = [request.param.endswith("drop") or request.param.endswith("droppath")] * len(names)
    return Step(
        rows,
        reasons,
        tensors,
        {"input": found[:num], "output": found[num : 2 * num]},
        dict(zip(parameters, found[2 * num :], strict=True)),
        before,
        {n: p.detach().clone() for n, p in model.named_parameters()},
        drops,
    )


def per_sample(tensor):
    return np.array([math.sqrt(float((t.double() ** 2).sum())) for t in tensor.detach()])


def block_values(step, metric):
    return list(step.rows["block", metric].values())


def close(expected):
    return approx(expected, rel=2e-3, abs=1e-6)


def test_norms_of_trunk_shortcut_and_branch(step):
    assert len(step.tensors.x) == len(block_values(step, "input_norm")) > 3
    for metric, tensors in (
        ("input_norm", step.tensors.x),
        ("shortcut_norm", step.tensors.h),
        ("branch_norm", step.tensors.f),
        ("output_norm", step.tensors.y),
    ):
        assert block_values(step, metric) == close([per_sample(t).mean() for t in tensors])
    gains = [(per_sample(y) / per_sample(x)).mean() for x, y in zip(step.tensors.x, step.tensors.y, strict=True)]
    assert block_values(step, "forward_gain") == close(gains)


def test_branch_ratio_over_kept_samples_only(step):
    left_out = 0
    for i, (h, f) in enumerate(zip(step.tensors.h, step.tensors.f, strict=True)):
        kept = per_sample(f) > 0
        ratio = (per_sample(f) / per_sample(h))[kept]
        left_out += int((~kept).sum())
        assert block_values(step, "branch_ratio_left_out")[i] == (~kept).sum()
        if not kept.any():
            assert block_values(step, "branch_ratio")[i] is None
            continue
        assert block_values(step, "branch_ratio")[i] == close(ratio.mean())
        assert block_values(step, "branch_ratio_q10")[i] == close(np.quantile(ratio, 0.1))
        assert block_values(step, "branch_ratio_q90")[i] == close(np.quantile(ratio, 0.9))
        cosine = torch.cosine_similarity(h.flatten(1), f.flatten(1)).detach().numpy()[kept].mean()
        assert block_values(step, "branch_cosine")[i] == approx(float(cosine), rel=2e-3, abs=1e-5)
    assert (left_out > 0) is step.drops[0]
    if step.drops[0]:
        fractions = [(per_sample(f) > 0).mean() for f in step.tensors.f]
        found = block_values(step, "kept_fraction")
        assert [v for v in found if v is not None] == approx(
            [f for f, v in zip(fractions, found, strict=True) if v is not None]
        )


def test_activation_gradients_and_gains(step):
    norms = {end: [per_sample(g).mean() * len(Y) for g in step.gradients[end]] for end in ("input", "output")}
    for end, expected in norms.items():
        assert block_values(step, f"activation_grad_norm_{end}") == close(expected)
    gains = [a / b for a, b in zip(norms["input"], norms["output"], strict=True)]
    assert block_values(step, "block_gain") == close(gains)
    product = math.prod(block_values(step, "block_gain"))
    assert product == approx(norms["input"][0] / norms["output"][-1], rel=5e-3)


def test_gradients_before_clipping_and_updates_around_the_step(step):
    named = {
        name: (scope, name) for scope, metric in step.rows if metric == "grad_norm" for name in step.rows[scope, metric]
    }
    assert set(named) == set(step.before)
    squares = 0.0
    for name, (scope, _) in named.items():
        grad = step.loss_gradients[name]
        norm = 0.0 if grad is None else math.sqrt(float((grad.double() ** 2).sum()))
        squares += norm**2
        # A bias before a norm has no gradient but rounding.
        assert step.rows[scope, "grad_norm"][name] == approx(norm, rel=5e-3, abs=1e-6), name
        assert step.rows[scope, "grad_rms"][name] == approx(norm / math.sqrt(grad.numel()), rel=5e-3, abs=1e-7)
        before, after = step.before[name].double(), step.after[name].double()
        assert step.rows[scope, "weight_norm"][name] == approx(float(before.norm()), rel=1e-4)
        if before.norm() == 0:
            assert step.rows[scope, "update_ratio"][name] is None
            assert step.reasons[scope, "update_ratio", name] == "‖W(t)‖ = 0"
        else:
            expected = float((after - before).norm() / before.norm())
            assert step.rows[scope, "update_ratio"][name] == approx(expected, rel=1e-3, abs=1e-9)
    assert step.rows["run", "grad_norm_total"]["run"] == close(math.sqrt(squares))
    assert math.sqrt(squares) > 0.1, "clipping is to act"


def test_only_what_does_not_exist_is_null(step):
    allowed = {"‖W(t)‖ = 0"}
    if step.drops[0]:
        allowed |= {"this block has none", "no shortcut signal", "branch or shortcut is 0 on every sample"}
    assert {r for r in step.reasons.values() if r is not None} <= allowed
