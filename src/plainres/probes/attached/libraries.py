"""Where the blocks of torchvision, timm and Hugging Face transformers add their branches, by the class of a block.

No library is imported: a class is known by its full name, and only if its forward method is the library's own. A
subclass that overrides it is another block, to be given by paths. What is written here is checked in the first
measured step: the total has to be shortcut + branch.
"""

from collections.abc import Callable

from torch import nn

from plainres.errors import UserError
from plainres.probes.attached.sites import Site

Describe = Callable[[str, nn.Module], list[Site]]


def _inside(path: str, name: str) -> str:
    """The path of a part of the block at ``path``; the model itself is at the empty path."""
    return f"{path}.{name}" if path else name


def _last(block: nn.Module, *names: str) -> str:
    """The last of these parts that the block has."""
    return [name for name in names if getattr(block, name, None) is not None][-1]


def _resnet(activation: str, call: int | None, *ends: str) -> Describe:
    """out = end(...); out += x or downsample(x), in place; out = activation(out), in place."""

    def describe(path: str, block: nn.Module) -> list[Site]:
        projection = getattr(block, "downsample", None) is not None
        at = "" if call is None else f"#{call}"
        site = Site(
            branch=_inside(path, _last(block, *ends)),
            shortcut=_inside(path, "downsample") if projection else f"{path}:input",
            total=_inside(path, f"{activation}{at}:input"),
            output=path,
            input=f"{path}:input",
            name=path,
            scales=(_inside(path, "downsample"),) if projection else (),
        )
        return [site]

    return describe


def _transformer(branches: tuple[str, str], second: str, scales: tuple[str, str] | None = None) -> Describe:
    """x = x + first(...); x = x + second(...); ``second`` is the module that receives the first sum."""

    def describe(path: str, block: nn.Module) -> list[Site]:
        middle = _inside(path, f"{second}:input")
        attention_scale, mlp_scale = ((_inside(path, name),) for name in scales) if scales else ((), ())
        first, last = (_inside(path, branch) for branch in branches)
        return [
            Site(first, f"{path}:input", middle, name=_inside(path, "attn"), scales=attention_scale),
            Site(last, middle, path, name=_inside(path, "mlp"), scales=mlp_scale),
        ]

    return describe


def _hf_vit(path: str, block: nn.Module) -> list[Site]:
    if hasattr(block, "intermediate"):  # before transformers 5 the second addition stood in ViTOutput
        return _transformer(("attention", "output.dropout"), "layernorm_after")(path, block)
    return _transformer(("dropout#0", "dropout#1"), "layernorm_after")(path, block)


def _gpt2(path: str, block: nn.Module) -> list[Site]:
    if hasattr(block, "crossattention"):
        raise UserError(
            f"{path}: a GPT2Block with cross-attention has three additions, which attach does not know; "
            "give their (branch, shortcut) paths as blocks="
        )
    return _transformer(("attn", "mlp"), "ln_2")(path, block)


def _refuse(path: str, block: nn.Module) -> list[Site]:
    raise UserError(
        f"{path}: attach does not know where a {type(block).__name__} adds its branches; "
        "give the (branch, shortcut) paths as blocks="
    )


_TIMM_VIT = "timm.models.vision_transformer"
KNOWN: dict[str, Describe] = {
    "torchvision.models.resnet.BasicBlock": _resnet("relu", 1, "bn2"),
    "torchvision.models.resnet.Bottleneck": _resnet("relu", 2, "bn3"),
    "timm.models.resnet.BasicBlock": _resnet("act2", None, "bn2", "se", "drop_path"),
    "timm.models.resnet.Bottleneck": _resnet("act3", None, "bn3", "se", "drop_path"),
    f"{_TIMM_VIT}.Block": _transformer(("drop_path1", "drop_path2"), "norm2", ("ls1", "ls2")),
    f"{_TIMM_VIT}.ResPostBlock": _transformer(("drop_path1", "drop_path2"), "mlp"),
    f"{_TIMM_VIT}.ParallelScalingBlock": _refuse,
    f"{_TIMM_VIT}.DiffParallelScalingBlock": _refuse,
    f"{_TIMM_VIT}.ParallelThingsBlock": _refuse,
    "transformers.models.vit.modeling_vit.ViTLayer": _hf_vit,
    "transformers.models.gpt2.modeling_gpt2.GPT2Block": _gpt2,
}


def _describe(block: nn.Module) -> Describe | None:
    forward = getattr(type(block), "forward", None)
    for cls in type(block).__mro__:
        found = KNOWN.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None and forward is vars(cls).get("forward"):
            return found
    return None


def find_sites(model: nn.Module) -> list[Site]:
    """The additions of all blocks of a known kind, in the order of ``named_modules``.

    Raises:
        UserError: there is none, or one whose additions are not known.
    """
    sites: list[Site] = []
    for path, module in model.named_modules():
        describe = _describe(module)
        if describe is not None:
            sites += describe(path, module)
    if not sites:
        names = [name.split(".") for name, describe in KNOWN.items() if describe is not _refuse]
        known = ", ".join(f"{parts[0]} {parts[-1]}" for parts in names)
        raise UserError(
            f"{type(model).__name__}: no block of a known kind found ({known}); "
            "give the (branch, shortcut) paths as blocks="
        )
    return sites
