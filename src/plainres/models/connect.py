"""From the settings of a connection to the parts of one block."""

import math
from dataclasses import dataclass

from torch import nn

from plainres.models.block import Connection
from plainres.models.layer import Kit, Layer
from plainres.models.own import OwnShortcut
from plainres.models.parts import Add, Carry, Concat, ConnectionPart, Gate, Keep
from plainres.models.scales import (
    DEPTH_RULES,
    FixedScale,
    FixupBias,
    FixupScale,
    LearnedScale,
    StochasticDepth,
    cait_start,
    survival_of,
)
from plainres.models.shortcuts import DropoutShortcut, Identity, Pad, Projection, Resized
from plainres.options import Boundary, Drop, Merge, Recipe, Scale, Shortcut
from plainres.options import Gate as GateForm
from plainres.schema import ConnectionConf


@dataclass(frozen=True)
class Place:
    """Where a block stands.

    Attributes:
        index: 0-based, out of ``branches``.
        branches: L, the branches joined to the trunk.
        layers: layers as CaiT counts them (Transformer: two branches each).
        width_in, width: channels before and after.
        stride: 2 where the resolution halves.
    """

    index: int
    branches: int
    layers: int
    width_in: int
    width: int
    stride: int = 1

    @property
    def at_boundary(self) -> bool:
        return self.width_in != self.width or self.stride != 1


def connect(conf: ConnectionConf, kit: Kit, place: Place, boundary: Boundary) -> Connection:
    """The connection's parts of one block."""
    if conf.shortcut is Shortcut.none:
        return Connection()
    connection = Connection(
        shortcut=_shortcut(conf, kit, place, boundary),
        merge=_merge(conf, kit, place),
        scale=_scale(conf, kit, place),
        drop=_drop(conf, place),
    )
    if conf.recipe is Recipe.layernorm_scaling:
        # l counts layers from 1: both branches of a Transformer layer share it.
        layer = place.index * place.layers // place.branches + 1
        connection.pre_scale = FixedScale(1 / math.sqrt(layer))
    if conf.gate is not GateForm.none:
        # Of x as it comes in, with the block's stride: g has the shape of the output at a stage boundary, too.
        connection.gate = Gate(kit.pointwise(place.width_in, place.width, place.stride, True), conf.gate_bias)
        connection.carry = None if conf.gate is GateForm.branch_only else Carry()
        connection.keep = None if conf.gate is GateForm.shortcut_only else Keep()
    return connection


def add_fixup_biases(branch: nn.Module) -> None:
    """Fixup's scalar biases before each layer and each activation of a layered branch."""
    for layer in branch.children():
        assert isinstance(layer, Layer)
        layer.before_op = FixupBias()
        if layer.act is not None:
            layer.before_act = FixupBias()


def _shortcut(conf: ConnectionConf, kit: Kit, place: Place, boundary: Boundary) -> ConnectionPart:
    if conf.shortcut is Shortcut.projection:
        return _projection(kit, place)
    if not place.at_boundary:
        return _same_shape(conf, place)
    if boundary is Boundary.projection:
        resize: ConnectionPart = _projection(kit, place)
    else:
        resize = Pad(place.width - place.width_in, place.stride, pool=boundary is Boundary.pool)
    then = _same_shape(conf, place)
    return resize if isinstance(then, Identity) else Resized(resize, then)


def _projection(kit: Kit, place: Place) -> Projection:
    op = kit.pointwise(place.width_in, place.width, place.stride, False)
    return Projection(op, kit.make_norm(place.width))


def _same_shape(conf: ConnectionConf, place: Place) -> ConnectionPart:
    """The shortcut where nothing changes its shape."""
    if conf.recipe is Recipe.deepnorm:
        return FixedScale(DEPTH_RULES["deepnorm_alpha"](place.branches))
    if conf.shortcut is Shortcut.scaled:
        return FixedScale(conf.shortcut_scale)
    if conf.shortcut is Shortcut.dropout:
        return DropoutShortcut(conf.shortcut_dropout, place.index)
    if not isinstance(conf.shortcut, Shortcut):
        return OwnShortcut(conf.shortcut, conf.shortcut_settings, place.width, place.index)
    return Identity()


def _scale(conf: ConnectionConf, kit: Kit, place: Place) -> ConnectionPart | None:
    if conf.recipe is Recipe.depth_mup:
        return FixedScale(DEPTH_RULES["depth_mup"](place.branches))
    if conf.recipe is Recipe.fixup:
        return FixupScale()
    if conf.scale is Scale.none:
        return None
    if conf.scale is Scale.per_channel:
        start = cait_start(place.layers) if conf.alpha is None else conf.alpha
        return LearnedScale(start, kit.per_channel(place.width))
    alpha = 1.0 if conf.alpha is None else conf.alpha
    if conf.scale is Scale.learned:
        return LearnedScale(alpha, ())
    if conf.scale is Scale.depth:
        alpha = alpha * place.branches**-conf.alpha_power
    return FixedScale(alpha, conf.alpha_warmup)


def _drop(conf: ConnectionConf, place: Place) -> ConnectionPart | None:
    if conf.drop is Drop.none:
        return None
    survival = survival_of(place.index, place.branches, conf.survival, conf.drop is Drop.linear)
    return StochasticDepth(survival, conf.drop_unit, conf.drop_scaling, place.index)


def _merge(conf: ConnectionConf, kit: Kit, place: Place) -> ConnectionPart:
    if conf.merge is Merge.concat:
        return Concat(kit.pointwise(2 * place.width, place.width, 1, False), 1 if kit.spatial else -1)
    return Add()
