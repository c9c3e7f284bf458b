"""What a connection, a family or a placement cannot have: one line that names field, value and what is allowed."""

from pathlib import Path

import pytest

from plainres.errors import UserError
from plainres.models.families import build
from plainres.options import Placement
from plainres.validation import validate

PRESETS = sorted(p.stem for p in (Path(__file__).parents[1] / "conf" / "connection").glob("*.yaml"))
FAMILIES = ["mlp", "cnn", "cifar_resnet", "imagenet_resnet", "vit", "transformer"]
NAN, INF = float("nan"), float("inf")
IDENTITY = {"connection.shortcut": "identity"}

BAD = [  # connection, family, settings, the field that is named, its value, what is allowed
    ("fixup", "mlp", {"model.norm": "batch"}, "model.norm", "batch", "none with fixup"),
    ("fixup", "cnn", {"model.norm": "layer"}, "model.norm", "layer", "none with fixup"),
    ("fixup", "vit", {"model.placement": "none"}, "model.name", "vit", "mlp, cnn or a ResNet"),
    ("fixup", "mlp", {"model.branch_layers": 1}, "model.branch_layers", 1, "at least 2"),
    ("fixup", "mlp", {"model.placement": "none"}, "model.placement", "none", "post_activation with fixup"),
    ("deepnorm", "mlp", {"model.norm": "batch"}, "model.norm", "batch", "layer with deepnorm"),
    ("deepnorm", "vit", {"model.placement": "pre_norm"}, "model.placement", "pre_norm", "post_norm with deepnorm"),
    ("layernorm_scaling", "mlp", {"model.norm": "batch"}, "model.norm", "batch", "layer with layernorm_scaling"),
    ("layernorm_scaling", "vit", {"model.placement": "post_norm"}, "model.placement", "post_norm", "pre_norm with"),
    ("fixup", "mlp", {"connection.scale": "learned"}, "connection.recipe", "fixup", "none with another scale"),
    ("deepnorm", "vit", {"connection.gate": "branch_only"}, "connection.recipe", "deepnorm", "none with another"),
    ("depth_mup", "mlp", {"connection.merge": "concat"}, "connection.recipe", "depth_mup", "none with another"),
    ("depth_mup", "mlp", {"connection.shortcut": "scaled"}, "connection.recipe", "depth_mup", "none with another"),
    ("stochastic_depth", "mlp", {"connection.survival": 1.5}, "connection.survival", 1.5, "in (0, 1]"),
    ("stochastic_depth", "mlp", {"connection.survival": -0.1}, "connection.survival", -0.1, "in (0, 1]"),
    ("stochastic_depth", "mlp", {"connection.survival": 0.0}, "connection.survival", 0.0, "in (0, 1]"),
    ("stochastic_depth", "mlp", {"connection.survival": NAN}, "connection.survival", "nan", "in (0, 1]"),
    ("dropout_shortcut", "mlp", {"connection.shortcut_dropout": 1.0}, "connection.shortcut_dropout", 1.0, "[0, 1)"),
    ("dropout_shortcut", "mlp", {"connection.shortcut_dropout": NAN}, "connection.shortcut_dropout", "nan", "[0, 1)"),
    ("scaled", "mlp", {"connection.alpha": NAN}, "connection.alpha", "nan", "a finite number"),
    ("scaled", "mlp", {"connection.alpha": INF}, "connection.alpha", "inf", "a finite number"),
    ("scaled", "mlp", {"connection.alpha": None}, "connection.alpha", None, "a number unless scale=per_channel"),
    ("layerscale", "vit", {"connection.alpha": -INF}, "connection.alpha", "-inf", "a finite number"),
    ("depth_scaled", "mlp", {"connection.alpha_power": NAN}, "connection.alpha_power", "nan", "a finite number"),
    ("constant_scaling", "mlp", {"connection.shortcut_scale": INF}, "connection.shortcut_scale", "inf", "a finite"),
    ("highway", "mlp", {"connection.gate_bias": NAN}, "connection.gate_bias", "nan", "a finite number"),
    ("scaled", "mlp", {"connection.alpha_warmup": -1}, "connection.alpha_warmup", -1, "at least 0"),
    ("skipinit", "mlp", {"connection.alpha_warmup": 5}, "connection.alpha_warmup", 5, "0 unless scale=fixed or depth"),
    ("rezero", "mlp", {"connection.shared_scale": True}, "connection.shared_scale", True, "false but for scale="),
    ("scaled", "vit", {"connection.shared_scale": True}, "connection.shared_scale", True, "false but for"),
    ("highway", "mlp", {"connection.shortcut": "scaled"}, "connection.shortcut", "scaled", "identity with a gate"),
    ("gated", "mlp", {"connection.scale": "learned"}, "connection.scale", "learned", "none with a gate"),
    ("concat", "mlp", {"connection.drop": "linear"}, "connection.merge", "concat", "add with"),
    ("concat", "mlp", {"connection.scale": "fixed"}, "connection.merge", "concat", "add with"),
    ("zero_init", "mlp", {"model.norm": "none"}, "connection.zero_init", "norm_scale", "last_weight where no norm"),
    ("zero_init", "mlp", {"model.placement": "pre_norm"}, "connection.zero_init", "norm_scale", "last_weight where"),
    ("zero_init", "vit", {"connection.zero_init": "norm_scale"}, "connection.zero_init", "norm_scale", "last_weight"),
    ("plain", "mlp", {"connection.alpha": 0.5}, "connection.alpha", 0.5, "at its default in the plain arm"),
    ("plain", "mlp", {"connection.drop": "linear"}, "connection.drop", "linear", "at its default in the plain arm"),
    ("plain", "mlp", {"connection.recipe": "fixup"}, "connection.recipe", "fixup", "at its default in the plain arm"),
    ("plain", "mlp", IDENTITY, "connection.name", "plain", "plain exactly when"),
    ("residual", "vit", {"model.heads": 3}, "model.heads", 3, "a divisor of model.width=4"),
    ("residual", "transformer", {"model.heads": 0}, "model.heads", 0, "at least 1"),
    ("residual", "vit", {"model.patch": 0}, "model.patch", 0, "at least 1"),
    ("residual", "vit", {"model.mlp_ratio": 0.0}, "model.mlp_ratio", 0.0, "above 0"),
    ("residual", "vit", {"model.mlp_ratio": INF}, "model.mlp_ratio", "inf", "above 0"),
    ("residual", "vit", {"model.placement": "post_activation"}, "model.placement", "post_activation", "pre_norm, "),
    ("residual", "transformer", {"model.placement": "pre_activation"}, "model.placement", "pre_activation", "sandwich"),
    ("residual", "vit", {"model.norm": "batch"}, "model.norm", "batch", "layer or none for vit"),
    ("residual", "mlp", {"model.norm": "none", "model.placement": "pre_norm"}, "model.norm", "none", "batch or layer"),
    ("residual", "cnn", {"model.norm": "none", "model.placement": "post_norm"}, "model.norm", "none", "batch or layer"),
    ("residual", "vit", {"model.norm": "none", "model.placement": "sandwich"}, "model.norm", "none", "batch or layer"),
    ("residual", "mlp", {"model.init": "delta_orthogonal"}, "model.init", "delta_orthogonal", "he, xavier or ortho"),
    ("residual", "transformer", {"model.init": "delta_orthogonal"}, "model.init", "delta_orthogonal", "he, xavier"),
    ("residual", "cifar_resnet", {"model.branch_layers": 3}, "model.branch_layers", 3, "2 for cifar_resnet"),
]  # fmt: skip


def label(case):
    connection, family, _, field, value, _ = case
    return f"{connection}-{family}-{field}={value}"


@pytest.mark.parametrize("case", BAD, ids=label)
def test_refused_in_one_line(make_preset, case):
    connection, family, values, field, value, allowed = case
    with pytest.raises(UserError) as caught:
        validate(make_preset(connection, family, values))
    message = str(caught.value)
    assert message.startswith(f"{field}={value}: must be "), message
    assert allowed in message and "\n" not in message


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("connection", PRESETS)
def test_every_preset_that_fits_a_family_is_allowed(make_preset, connection, family):
    conf = make_preset(connection, family)
    if connection == "fixup" and family in ("vit", "transformer"):
        with pytest.raises(UserError):
            validate(conf)
        return
    validate(conf)


GOOD = [
    ("stochastic_depth", "mlp", {"connection.survival": 1.0}),
    ("dropout_shortcut", "mlp", {"connection.shortcut_dropout": 0.0}),
    ("constant_scaling", "mlp", {"connection.shortcut_scale": 0.0, "connection.alpha": 1.0}),
    ("scaled", "mlp", {"connection.alpha": -1.0, "connection.alpha_warmup": 5}),
    ("depth_scaled", "vit", {"connection.alpha_warmup": 5}),
    ("fixup", "cnn", {"model.branch_layers": 3, "depth": 8}),
    ("highway", "cifar_resnet", {"model.boundary": "zero_pad"}),
    ("gated", "imagenet_resnet", {"model.boundary": "pool"}),
    ("highway", "cifar_resnet", {"model.boundary": "projection", "connection.gate": "shortcut_only"}),
    ("skipinit", "mlp", {"connection.shortcut": "scaled", "connection.drop": "constant"}),
    ("residual", "cnn", {"model.init": "delta_orthogonal"}),
    ("residual", "vit", {"model.norm": "none", "model.placement": "none"}),
    ("zero_init", "mlp", {"connection.zero_init": "last_weight", "model.norm": "none"}),
]


@pytest.mark.parametrize(("connection", "family", "values"), GOOD)
def test_allowed(make_preset, connection, family, values):
    validate(make_preset(connection, family, values))


@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("family", FAMILIES)
def test_placements_that_a_family_has(make_preset, family, placement):
    conf = make_preset("residual", family, {"model.placement": str(placement)})
    if family in ("vit", "transformer") and placement.endswith("activation"):
        with pytest.raises(UserError, match=rf"^model\.placement={placement}: "):
            validate(conf)
    else:
        validate(conf)


ONE = {"mlp": 4, "cnn": 4, "cifar_resnet": 8, "vit": 1, "transformer": 1}


@pytest.mark.parametrize("family", ONE)
@pytest.mark.parametrize("connection", PRESETS)
def test_the_shallowest_network_is_defined_under_every_depth_rule(make_preset, make_network, connection, family):
    if connection == "fixup" and family in ("vit", "transformer"):
        pytest.skip("refused")
    conf = make_preset(connection, family, {"depth": ONE[family], "optimizer.name": "adamw"})
    validate(conf)
    network = make_network(conf, (1, 8, 8))
    assert all(p.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize(("family", "shape", "values", "start"), [
    ("vit", (1, 8, 8), {"model.patch": 3}, "model.patch=3: must divide"),
    ("cifar_resnet", (1, 2, 2), {}, "model=cifar_resnet: "),
    ("imagenet_resnet", (1, 8, 8), {}, "model=imagenet_resnet: "),
    ("imagenet_resnet", (1, 64, 64), {"depth": 20}, "depth=20: "),
    ("cifar_resnet", (1, 8, 8), {"depth": 9}, "depth=9: "),
    ("mlp", (1, 8, 8), {"depth": 5}, "depth=5: "),
    ("vit", (1, 8, 8), {"depth": 0}, "depth=0: "),
])  # fmt: skip
def test_what_only_the_data_or_the_depth_shows_is_refused_when_built(make_preset, family, shape, values, start):
    conf = make_preset("residual", family, values)
    with pytest.raises(UserError) as caught:
        build(conf.model, conf.connection, conf.depth, shape, 3)
    assert str(caught.value).startswith(start) and "\n" not in str(caught.value)
