"""cifar_resnet and imagenet_resnet against REFERENCE.md's counts, torchvision's own networks, and float64 by hand."""

import pytest
import torch
import torch.nn.functional as F
import torchvision

from plainres.audit import audit
from plainres.data.dataset import make_dataset
from plainres.errors import UserError
from plainres.models.families import build, stage_blocks

OPTION_A = {8: 75_290, 14: 172_506, 20: 269_722, 32: 464_154, 44: 658_586, 50: 755_802, 56: 853_018, 98: 1_533_530,
            104: 1_630_746, 110: 1_727_962, 1202: 19_421_274}  # fmt: skip
OPTION_B = {20: 272_474, 32: 466_906, 44: 661_338, 56: 855_770, 110: 1_730_714, 1202: 19_424_026}


def cifar(make_preset, connection, depth, boundary="zero_pad", values=None):
    conf = make_preset(connection, "cifar_resnet",
                       {"depth": depth, "model.width": 16, "model.boundary": boundary} | (values or {}))  # fmt: skip
    return build(conf.model, conf.connection, conf.depth, (3, 32, 32), 10)


def deepest_slow(table):
    """The depths of a table; the deepest takes as long as all others."""
    return [*list(table)[:-1], pytest.param(max(table), marks=pytest.mark.slow)]


def count(network):
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("depth", deepest_slow(OPTION_A))
def test_plain_and_option_a_have_he_2015s_parameters(make_preset, depth):
    assert count(cifar(make_preset, "plain", depth)) == OPTION_A[depth]
    assert count(cifar(make_preset, "residual", depth)) == OPTION_A[depth]
    assert count(cifar(make_preset, "residual", depth, "pool")) == OPTION_A[depth]


@pytest.mark.parametrize("depth", deepest_slow(OPTION_B))
def test_option_b_adds_2752(make_preset, depth):
    network = cifar(make_preset, "residual", depth, "projection")
    assert count(network) == OPTION_B[depth] == OPTION_A[depth] + 2752
    assert count(cifar(make_preset, "plain", depth, "projection")) == OPTION_A[depth]
    extra = dict(network.named_parameters())
    assert sum(extra[n].numel() for n in network.connection_parameters()) == 2752


def test_stages_and_shapes(make_preset):
    network = cifar(make_preset, "residual", 20)
    assert [type(b.shortcut).__name__ for b in network.blocks] == [*["Identity"] * 3, "Pad", *["Identity"] * 2,
                                                                    "Pad", *["Identity"] * 2]  # fmt: skip
    seen = []
    x = torch.empty(2, 3, 32, 32, device="meta")
    x = network.stem(x)
    for block in network.blocks:
        x = block(x)
        seen.append(tuple(x.shape[1:]))
    assert seen == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3
    strides = [b.branch[0].op.stride[0] for b in network.blocks]
    assert strides == [1, 1, 1, 2, 1, 1, 2, 1, 1] and all(b.branch[1].op.stride == (1, 1) for b in network.blocks)
    assert not any(m.bias is not None for m in network.modules() if isinstance(m, torch.nn.Conv2d))


@pytest.mark.parametrize(("depth", "stages"), [(8, (1, 1, 1)), (10, (2, 1, 1)), (12, (2, 2, 1)), (14, (2, 2, 2)),
                                               (20, (3, 3, 3)), (50, (8, 8, 8)), (100, (17, 16, 16))])  # fmt: skip
def test_even_stages(make_preset, depth, stages):
    conf = make_preset("residual", "cifar_resnet", {"depth": depth, "model.stages": "even"})
    assert stage_blocks(conf.model, depth) == stages
    network = build(conf.model, conf.connection, depth, (1, 8, 8), 3)
    weighted = [n for n, p in network.named_parameters() if p.dim() > 1]
    assert len(weighted) == depth


def test_even_and_thirds_agree_where_both_exist(make_preset):
    same = (
        make_preset("residual", "cifar_resnet", {"depth": 56}),
        make_preset("residual", "cifar_resnet", {"depth": 56, "model.stages": "even"}),
    )
    assert stage_blocks(same[0].model, 56) == stage_blocks(same[1].model, 56) == (9, 9, 9)


@pytest.mark.parametrize(("values", "depth", "nearest"), [
    ({}, 10, "depth=8 or depth=14"), ({}, 7, "depth=8"), ({}, 100, "depth=98 or depth=104"), ({}, 0, "depth=8"),
    ({"model.stages": "even"}, 11, "depth=10 or depth=12"), ({"model.stages": "even"}, 6, "depth=8"),
])  # fmt: skip
def test_a_depth_that_cannot_be_built(make_preset, values, depth, nearest):
    model = make_preset("residual", "cifar_resnet", values).model
    with pytest.raises(UserError) as caught:
        stage_blocks(model, depth)
    message = str(caught.value)
    assert message.startswith(f"depth={depth}: ") and message.endswith(f"nearest is {nearest}") and "\n" not in message
    for near in nearest.split(" or "):
        stage_blocks(model, int(near.removeprefix("depth=")))


@pytest.mark.parametrize(("depth", "nearest"), [(17, 18), (20, 18), (50, 34), (0, 18)])
def test_imagenet_depths(make_preset, depth, nearest):
    with pytest.raises(UserError, match=rf"^depth={depth}: .*nearest is depth={nearest}$"):
        stage_blocks(make_preset("residual", "imagenet_resnet").model, depth)


def test_images_that_are_too_small_are_refused(make_preset):
    for family, shape in (("cifar_resnet", (1, 3, 8)), ("imagenet_resnet", (3, 16, 16))):
        conf = make_preset("residual", family)
        with pytest.raises(UserError, match=rf"^model={family}: .*{shape[1]}x{shape[2]}; use model=cnn") as caught:
            build(conf.model, conf.connection, conf.depth, shape, 3)
        assert "\n" not in str(caught.value)


# The audit.


@pytest.fixture(scope="module")
def images():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 1, 8, 8, generator=draw), torch.randint(0, 3, (40,), generator=draw)
    return make_dataset(x[:30], y[:30], x[30:], y[30:])


@pytest.mark.parametrize(("boundary", "words"), [
    ("zero_pad", "in blocks 1, 2 the shortcut is not the identity but subsampling and zero channels (option A)"),
    ("pool", "in blocks 1, 2 the shortcut is not the identity but average pooling and zero channels"),
    ("projection", "in blocks 1, 2 the shortcut is not the identity but a learned projection, with 432 parameters: "
                   "what it shows is no longer about identity shortcuts alone"),
])  # fmt: skip
@pytest.mark.parametrize("connection", ["residual", "constant_scaling"])
def test_the_audit_says_which_blocks_are_not_the_identity(make_preset, images, connection, boundary, words):
    conf = make_preset(connection, "cifar_resnet", {"model.boundary": boundary, "trainer.batch": 8})
    report = audit(conf, images)
    assert report["clean"], report["undeclared"]
    assert [c["why"] for c in report["checks"] if c["check"] == "connection_rules"] == [words]


@pytest.mark.parametrize(
    "placement", ["post_activation", "pre_activation", "pre_norm", "post_norm", "sandwich", "none"]
)
@pytest.mark.parametrize("family", ["mlp", "cnn", "cifar_resnet"])
def test_plain_under_each_placement_does_the_same_as_residual(make_preset, images, family, placement):
    conf = make_preset("residual", family, {"model.placement": placement, "trainer.batch": 8})
    report = audit(conf, images)
    assert report["clean"], report["undeclared"]
    found = {c["check"]: c["result"] for c in report["checks"]}
    assert found["operations"] == found["draws"] == found["parameters"] == "equal"
    declared = {"connection_operations", "connection_rules"} if family == "cifar_resnet" else {"connection_operations"}
    assert {c for c, result in found.items() if result == "declared"} == declared


# torchvision.

NAMES = {"stem.layer.op": "conv1", "stem.layer.norm": "bn1", "head": "fc"}


def copy_from_torchvision(network, theirs, stages):
    """Weights and norm parameters, by the place that they have in the network."""
    modules = dict(network.named_modules())
    pairs = [(modules[mine], getattr(theirs, other)) for mine, other in NAMES.items()]
    index = 0
    for stage, blocks in enumerate(stages, start=1):
        for i in range(blocks):
            block, other = network.blocks[index], getattr(theirs, f"layer{stage}")[i]
            pairs += [(block.branch[0].op, other.conv1), (block.branch[0].norm, other.bn1)]
            pairs += [(block.branch[1].op, other.conv2), (block.branch[1].norm, other.bn2)]
            if other.downsample is not None:
                pairs += [(block.shortcut.op, other.downsample[0]), (block.shortcut.norm, other.downsample[1])]
            index += 1
    assert sum(p.numel() for m, _ in pairs for p in m.parameters()) == count(network)
    with torch.no_grad():
        for mine, other in pairs:
            for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                a.copy_(b)
    return {n: p for (m, o) in pairs for n, p in zip(mine_names(m), o.parameters(), strict=True)}


def mine_names(module):
    return [id(p) for p in module.parameters()]


@pytest.mark.parametrize("depth", [18, 34])
def test_imagenet_parameters_equal_torchvisions(make_preset, depth):
    conf = make_preset("residual", "imagenet_resnet", {"depth": depth, "model.width": 64})
    assert conf.model.boundary == "projection"
    network = build(conf.model, conf.connection, depth, (3, 224, 224), 1000)
    with torch.device("meta"):
        theirs = getattr(torchvision.models, f"resnet{depth}")(weights=None)
    assert count(network) == count(theirs) == {18: 11_689_512, 34: 21_797_672}[depth]
    plain = make_preset("plain", "imagenet_resnet", {"depth": depth, "model.width": 64})
    extra = sum(p.numel() for n, p in network.named_parameters() if "shortcut" in n)
    assert count(build(plain.model, plain.connection, depth, (3, 224, 224), 1000)) == count(theirs) - extra


@pytest.mark.parametrize("training", [True, False])
def test_resnet18_equals_torchvisions_in_forward_and_gradients(make_preset, make_network, training):
    conf = make_preset("residual", "imagenet_resnet", {"depth": 18, "model.width": 64})
    network = make_network(conf, (3, 64, 64), 10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torchvision.models.resnet18(num_classes=10)
    partners = copy_from_torchvision(network, theirs, (2, 2, 2, 2))
    x = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    network.train(training)
    theirs.train(training)
    mine, other = network(x), theirs(x)
    assert torch.allclose(mine, other, rtol=1e-4, atol=1e-5)
    for y in (mine, other):
        F.cross_entropy(y, torch.arange(4)).backward()
    for name, p in network.named_parameters():
        expected = partners[id(p)].grad
        assert (p.grad - expected).norm() <= 1e-3 * expected.norm() + 1e-7, name


@pytest.mark.parametrize("training", [True, False])
def test_resnet34_equals_torchvisions_in_forward(make_preset, make_network, training):
    conf = make_preset("residual", "imagenet_resnet", {"depth": 34, "model.width": 64})
    network = make_network(conf, (3, 64, 64), 10).train(training)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torchvision.models.resnet34(num_classes=10).train(training)
    copy_from_torchvision(network, theirs, (3, 4, 6, 3))
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mine, other = network(x), theirs(x)
    assert torch.allclose(mine, other, rtol=1e-4, atol=1e-4 * other.abs().max().item()) and other.std() > 0
