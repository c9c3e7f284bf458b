"""What a connection declares for parameters by their name: factors on draws and learning rate, and no decay."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from plainres.models.families import num_branches
from plainres.models.own import last_weight
from plainres.models.parts import Gate
from plainres.models.scales import DEPTH_RULES, FixupBias, FixupScale, LearnedScale
from plainres.options import Init, OptimizerName, Recipe, ZeroInit
from plainres.schema import ConnectionConf, RunConf

_FIXUP_SCALARS = (".before_op.bias", ".before_act.bias", "before_head.bias", ".scale.alpha", ".scale.bias")

# Depth-µP: an adaptive step moves every number by about lr, whatever its gradient; L branches of weight 1/√L that move
# together change the trunk by L·lr/√L, so lr/√L keeps the change independent of depth. The paper states it for weights;
# the argument is the same for biases and for the norms of a branch, and CompleteP (arXiv 2505.01618) treats them so.
JOINT = ".branch.qkv.weight"  # of attention: query, key and value in one
_IN_BRANCH = re.compile(r"blocks\.\d+\.(pre|branch|out)\.")


def _is_branch_weight(name: str) -> bool:
    return re.fullmatch(r"blocks\.\d+\.branch\..*weight", name) is not None


def rules_of(conf: RunConf) -> "Rules":
    """The rules of a run's connection."""
    branches = num_branches(conf.model, conf.depth)
    own_last = last_weight(conf.model.branch) if conf.model.branch else None
    return Rules(conf.connection, branches, conf.model.branch_layers, conf.model.init, conf.optimizer.name, own_last)


def undecayed(network: nn.Module) -> frozenset[str]:
    """Names of the parameters that weight decay never acts on: α of every kind, gates, Fixup's scalars."""
    held = [m for m in network.modules() if isinstance(m, (LearnedScale, FixupScale, FixupBias, Gate))]
    ids = {id(p) for module in held for p in module.parameters()}
    return frozenset(name for name, p in network.named_parameters() if id(p) in ids)


@dataclass(frozen=True)
class Rules:
    """What a connection declares for parameters by their name: factors on draws, on the learning rate, no decay.

    Attributes:
        conf: the connection.
        branches: L.
        branch_layers: m, weighted layers of a branch.
        init: Fixup's factor depends on it.
        optimizer: learning-rate rules of depth_mup depend on it.
        own_last: name of the last weight of a user's own branch, where its class says which.
    """

    conf: ConnectionConf
    branches: int
    branch_layers: int
    init: Init
    optimizer: OptimizerName
    own_last: str | None = None

    def draw_factor(self, name: str, shape: Sequence[int]) -> float:
        """The declared factor on the initial draw of a parameter of this shape."""
        conf, last = self.conf, self._is_last_weight(name)
        if conf.zero_init is ZeroInit.last_weight and last:
            return 0.0
        if conf.zero_init is ZeroInit.norm_scale and self._is_last_norm_scale(name):
            return 0.0
        if conf.recipe is Recipe.fixup:
            if last or name == "head.weight":
                return 0.0
            inner = _is_branch_weight(name)
            return self._fixup_factor() * self._to_fan_out(shape) if inner else 1.0
        matrix = _is_branch_weight(name) and len(shape) > 1
        if conf.recipe is Recipe.deepnorm and matrix and not name.endswith(JOINT):
            return DEPTH_RULES["deepnorm_beta"](self.branches)
        return 1.0

    def _fixup_factor(self) -> float:
        return float(self.branches ** (-1 / (2 * self.branch_layers - 2)))

    def _to_fan_out(self, shape: Sequence[int]) -> float:
        """What makes √(2/fan_in) the paper's √(2/fan_out) = √(2/(k²·C_out)); 1 where a block keeps its width.

        Both arms share the draw, so the paper's choice is a factor on it. Other rules of init are not by fan_in.
        """
        return math.sqrt(shape[1] / shape[0]) if self.init is Init.he else 1.0

    def value_factor(self) -> float:
        """DeepNorm's β on the value rows of a joint query-key-value weight."""
        return DEPTH_RULES["deepnorm_beta"](self.branches) if self.conf.recipe is Recipe.deepnorm else 1.0

    def lr_factor(self, name: str) -> float:
        """The declared factor on the learning rate of a parameter."""
        if self.conf.recipe is Recipe.fixup and name.endswith(_FIXUP_SCALARS):
            return 0.1
        slowed = self.conf.recipe is Recipe.depth_mup and self.optimizer is OptimizerName.adamw
        return DEPTH_RULES["depth_mup"](self.branches) if slowed and _IN_BRANCH.match(name) else 1.0

    def declared(self) -> list[str]:
        """What differs from the partner beside parts and operations, in words."""
        conf, words = self.conf, []
        if conf.zero_init is not ZeroInit.none:
            what = "last weight" if conf.zero_init is ZeroInit.last_weight else "scale of the last norm"
            words.append(f"zero_init: the {what} of every branch starts at 0")
        if conf.recipe is Recipe.fixup:
            wider = " (× √(fan_in/fan_out) where the width changes)" if self.init is Init.he else ""
            words.append(
                f"fixup: branch draws × {self._fixup_factor():.4g}{wider}, last weight of each branch and head × 0, "
                "scalars at lr × 0.1"
            )
        if conf.recipe is Recipe.deepnorm:
            words.append(f"deepnorm: branch draws × {self.value_factor():.4g} (in attention those of value and output)")
        if conf.recipe is Recipe.depth_mup:
            lr = DEPTH_RULES["depth_mup"](self.branches)
            adamw = self.optimizer is OptimizerName.adamw
            words.append(
                f"depth_mup: {f'branches at lr × {lr:.4g}' if adamw else 'with sgd no learning rate of its own'}"
            )
        return words

    def _is_last_weight(self, name: str) -> bool:
        if self.own_last is not None and name.endswith(f".branch.inner.{self.own_last}"):
            return True
        last = rf"blocks\.\d+\.branch\.({self.branch_layers - 1}\.op|proj|fc2)\.weight"
        return re.fullmatch(last, name) is not None

    def _is_last_norm_scale(self, name: str) -> bool:
        last = rf"blocks\.\d+\.(branch\.{self.branch_layers - 1}\.norm|out)\.weight"
        return re.fullmatch(last, name) is not None
