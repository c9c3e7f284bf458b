"""Floating-point operations of a forward pass, against closed forms."""

from collections.abc import Callable

import pytest

from plainres.models.families import build
from plainres.schema import RunConf
from plainres.signature import record_operations

BATCH, CLASSES = 6, 3
MakeConf = Callable[..., RunConf]


def flops(conf: RunConf, shape: tuple[int, ...]) -> float:
    network = build(conf.model, conf.connection, conf.depth, shape, CLASSES)
    return record_operations(network, BATCH, shape).flops / BATCH


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_a_matrix_product_counts_two_for_each_weight(make_conf: MakeConf, connection: str) -> None:
    conf = make_conf(connection, {"model.name": "mlp", "depth": 6, "model.width": 5})
    assert flops(conf, (1, 4, 4)) == 2 * (16 * 5 + 4 * 5 * 5 + 5 * CLASSES)


def test_a_convolution_counts_its_kernel_at_every_place(make_conf: MakeConf) -> None:
    conf = make_conf("plain", {"model.name": "cnn", "depth": 4, "model.width": 5})
    places = 7 * 6  # stride 1, padded
    assert flops(conf, (2, 7, 6)) == 2 * (places * 9 * (2 * 5 + 2 * 5 * 5) + 5 * CLASSES)


def test_a_gate_is_part_of_the_cost(make_conf: MakeConf) -> None:
    given = {"model.name": "mlp", "depth": 6, "model.width": 5}
    highway, plain = (flops(make_conf(name, given), (1, 4, 4)) for name in ("highway", "plain"))
    assert highway - plain == 2 * 2 * 5 * 5  # a gate's weights in each of two blocks


def test_attention_counts_both_of_its_products(make_conf: MakeConf) -> None:
    width, tokens, ratio = 8, 5, 4  # 4 patches and the class token
    given = {"model.name": "vit", "depth": 1, "model.width": width, "model.heads": 2, "model.patch": 2}
    conf = make_conf("residual", given | {"model.placement": "pre_norm", "model.norm": "layer"})
    weights = 4 * width * width + 2 * ratio * width * width  # q, k, v, out; the feed-forward branch
    products = 2 * tokens * tokens * width  # scores, and the weighted sum of values
    patches = 4 * 4 * width
    assert flops(conf, (1, 4, 4)) == 2 * (tokens * weights + products + patches + width * CLASSES)
