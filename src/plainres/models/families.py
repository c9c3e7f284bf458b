"""Network families and their depth rules.

mlp, cnn          one width, m weighted layers a branch, stem and head counted: depth = m·B + 2
cifar_resnet      three stages of n two-layer blocks with widths w, 2w, 4w (He 2015, section 4.2): depth = 6n + 2;
                  with stages=even, blocks are spread as evenly as they go and depth = 2B + 2
imagenet_resnet   18 or 34 layers of two-layer blocks in four stages (He 2015, table 1)
vit, transformer  depth counts layers, each with two branches: attention and feed-forward
"""

from collections.abc import Callable

import torch
from torch import nn

from plainres.errors import UserError
from plainres.models.block import Block
from plainres.models.branches import Attention, FeedForward, final_part, frame, layered_branch
from plainres.models.connect import Place, add_fixup_biases, connect
from plainres.models.layer import Kit, Layer, conv_kit, linear_kit
from plainres.models.networks import (
    ChannelsLast,
    ClassToken,
    GlobalAveragePool,
    ImageStem,
    MeanOverTokens,
    Network,
    PatchStem,
    RowStem,
)
from plainres.models.own import OwnBranch
from plainres.models.parts import ConnectionPart
from plainres.models.scales import FixupBias
from plainres.options import Family, Placement, Recipe, Stages
from plainres.schema import ConnectionConf, ModelConf

IMAGENET_STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def stage_blocks(model: ModelConf, depth: int) -> tuple[int, ...]:
    """Blocks in each stage of a network of this depth (Transformers: layers).

    Raises:
        UserError: no network of this family has this depth; names the nearest depths that can be built.
    """
    if model.name in (Family.vit, Family.transformer):
        if depth < 1:
            raise UserError(f"depth={depth}: a {model.name} has at least 1 layer; the nearest is depth=1")
        return (depth,)
    if model.name is Family.imagenet_resnet:
        if depth not in IMAGENET_STAGES:
            nearest = min(IMAGENET_STAGES, key=lambda d: abs(d - depth))
            raise UserError(f"depth={depth}: imagenet_resnet has depth 18 or 34; the nearest is depth={nearest}")
        return IMAGENET_STAGES[depth]
    if model.name is Family.cifar_resnet and model.stages is Stages.thirds:
        return (_whole(model.name, depth, 6, "6n + 2 with n ≥ 1 (or set model.stages=even)"),) * 3
    m = model.branch_layers
    if model.name is Family.cifar_resnet:
        least = 3 * m + 2
        if depth < least:
            raise UserError(f"depth={depth}: three stages need at least depth={least}; the nearest is depth={least}")
    blocks = _whole(model.name, depth, m, f"{m}·B + 2 with B ≥ 1 blocks of model.branch_layers={m}")
    if model.name is Family.cifar_resnet:
        return tuple((blocks + extra) // 3 for extra in (2, 1, 0))
    return (blocks,)


def _whole(family: Family, depth: int, step: int, rule: str) -> int:
    count, rest = divmod(depth - 2, step)
    if rest or count < 1:
        below = step * max(count, 1) + 2
        nearest = [below] if count < 1 else [below, below + step]
        raise UserError(
            f"depth={depth}: {family} depths are {rule}; the nearest is depth={' or depth='.join(map(str, nearest))}"
        )
    return count


def num_branches(model: ModelConf, depth: int) -> int:
    """L: branches joined to the trunk, two in a Transformer layer."""
    blocks = sum(stage_blocks(model, depth))
    return 2 * blocks if model.name in (Family.vit, Family.transformer) else blocks


def build(
    model: ModelConf, connection: ConnectionConf, depth: int, input_shape: tuple[int, ...], num_classes: int
) -> Network:
    """A network on the meta device: shapes without storage. ``materialise`` gives it values.

    Args:
        model: family, width, placement, norm, …
        connection: how each block's branch joins the trunk.
        depth: as the family counts it.
        input_shape: (C, H, W) of an example.
        num_classes: size of the output.

    Raises:
        UserError: the depth, or the image size, cannot be built.
    """
    makers: dict[Family, Callable[..., Network]] = {
        Family.mlp: _isotropic,
        Family.cnn: _isotropic,
        Family.cifar_resnet: _staged,
        Family.imagenet_resnet: _staged,
        Family.vit: _tokens,
        Family.transformer: _tokens,
    }
    stages = stage_blocks(model, depth)
    with torch.device("meta"):
        return makers[model.name](model, connection, stages, input_shape, num_classes)


def _kit(model: ModelConf, spatial: bool, sides: tuple[int, ...] = ()) -> Kit:
    if not spatial:
        return linear_kit(model.norm, model.activation)
    return conv_kit(model.norm, model.activation, sides)


def _stem(kit: Kit, model: ModelConf, connection: ConnectionConf, op: nn.Module) -> Layer:
    """op-norm-act; before pre-activation blocks op alone, because the first of them begins with norm and activation."""
    if model.placement is Placement.pre_activation:
        return Layer(op, None, None)
    layer = Layer(op, kit.make_norm(model.width), kit.make_act())
    layer.before_act = _fixup_bias(connection)
    return layer


def _fixup_bias(connection: ConnectionConf) -> FixupBias | None:
    """Fixup's scalar biases outside the blocks: between the stem's layer and its activation, and before the head."""
    return FixupBias() if connection.recipe is Recipe.fixup else None


def _block(kit: Kit, model: ModelConf, connection: ConnectionConf, place: Place) -> Block:
    branch = _branch(kit, model, place)
    if connection.recipe is Recipe.fixup:
        add_fixup_biases(branch)
    around = frame(kit, model.placement, place.width_in, place.width)
    return Block(place.index, branch, around, connect(connection, kit, place, model.boundary))


def _branch(kit: Kit, model: ModelConf, place: Place) -> nn.Module:
    if model.branch is not None:
        return OwnBranch(model.branch, model.branch_settings, place.width, place.index)
    return layered_branch(kit, model.placement, model.branch_layers, place.width_in, place.width, place.stride)


def _isotropic(
    model: ModelConf, connection: ConnectionConf, stages: tuple[int, ...], shape: tuple[int, ...], classes: int
) -> Network:
    channels, height, wide = shape
    spatial = model.name is Family.cnn
    kit = _kit(model, spatial, (height, wide))
    features = channels if spatial else channels * height * wide
    stem = _stem(kit, model, connection, kit.op(features, model.width, 1))
    (count,) = stages
    places = [Place(i, count, count, model.width, model.width) for i in range(count)]
    return Network(
        prepare=ChannelsLast() if spatial else nn.Flatten(),
        stem=stem,
        blocks=[_block(kit, model, connection, place) for place in places],
        final=final_part(kit, model.placement, model.width),
        pool=GlobalAveragePool() if spatial else nn.Identity(),
        head=nn.Linear(model.width, classes),
        before_head=_fixup_bias(connection),
    )


def _staged(
    model: ModelConf, connection: ConnectionConf, stages: tuple[int, ...], shape: tuple[int, ...], classes: int
) -> Network:
    kit = _kit(model, True, shape[1:])
    halvings = len(stages) - 1 + (2 if model.name is Family.imagenet_resnet else 0)
    if min(shape[1:]) < 2**halvings:
        raise UserError(
            f"model={model.name}: halves the resolution {halvings} times, and the images are "
            f"{shape[1]}x{shape[2]}; use model=cnn, or larger images"
        )
    if model.name is Family.imagenet_resnet:
        op = nn.Conv2d(shape[0], model.width, kernel_size=7, stride=2, padding=3, bias=False)
        stem = _stem(kit, model, connection, op)
        after: nn.Module | None = nn.MaxPool2d(3, stride=2, padding=1)
    else:
        stem = _stem(kit, model, connection, kit.op(shape[0], model.width, 1))
        after = None
    places, index, total, width_in = [], 0, sum(stages), model.width
    for stage, count in enumerate(stages):
        width = model.width * 2**stage
        for i in range(count):
            places.append(Place(index, total, total, width_in, width, 2 if stage and i == 0 else 1))
            index, width_in = index + 1, width
    return Network(
        prepare=ChannelsLast(),
        stem=ImageStem(stem, after) if after is not None else stem,
        blocks=[_block(kit, model, connection, place) for place in places],
        final=final_part(kit, model.placement, width_in),
        pool=GlobalAveragePool(),
        head=nn.Linear(width_in, classes),
        before_head=_fixup_bias(connection),
    )


def _tokens(
    model: ModelConf, connection: ConnectionConf, stages: tuple[int, ...], shape: tuple[int, ...], classes: int
) -> Network:
    kit = _kit(model, False)
    vit = model.name is Family.vit
    if vit and (shape[1] % model.patch or shape[2] % model.patch):
        raise UserError(
            f"model.patch={model.patch}: must divide the image's sides, {shape[1]} and {shape[2]}; choose another"
        )
    stem = PatchStem(shape, model.patch, model.width) if vit else RowStem(shape, model.width)
    (layers,) = stages
    blocks: list[Block] = []
    for index in range(2 * layers):
        place = Place(index, 2 * layers, layers, model.width, model.width)
        hidden = round(model.mlp_ratio * model.width)
        branch: nn.Module = Attention(model.width, model.heads)
        if index % 2:  # a user's own branch takes the place of the feed-forward one
            own = model.branch is not None
            branch = _branch(kit, model, place) if own else FeedForward(kit, model.width, hidden)
        joined = connect(connection, kit, place, model.boundary)
        if connection.shared_scale and index % 2:
            joined.scale = _shared(blocks[-1])
        blocks.append(Block(index, branch, frame(kit, model.placement, model.width, model.width), joined))
    return Network(
        prepare=nn.Identity(),
        stem=stem,
        blocks=blocks,
        final=final_part(kit, model.placement, model.width),
        pool=ClassToken() if vit else MeanOverTokens(),
        head=nn.Linear(model.width, classes),
    )


def _shared(attention: Block) -> ConnectionPart | None:
    """ReZero's one scalar for both branches of a Transformer layer."""
    assert attention.scale is None or isinstance(attention.scale, ConnectionPart)
    return attention.scale
