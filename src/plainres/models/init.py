"""Initial values, drawn by name.

Every parameter is drawn on the CPU in float32 by a generator seeded with SHA-256(seed, its name), multiplied by the
factor that the connection declares for it, and then moved: both arms, and every device, begin with the same bits.

he                normal, std = √(2 / fan_in) (He 2015, arXiv 1502.01852), for stem, branches and head alike
xavier            normal, std = √(2 / (fan_in + fan_out)) (Glorot 2010)
orthogonal        semi-orthogonal rows or columns (Saxe 2014), times √2 before ReLU, leaky ReLU and GELU, 1 before tanh
delta_orthogonal  the same at the centre of each filter and 0 around it (Xiao 2018, arXiv 1806.05393)

Norm scales start at 1; norm shifts and biases at 0; class token and positions normal with std 0.02.
"""

import hashlib
import math

import torch
from torch import nn

from plainres.models.layer import NORMS, BatchNorm
from plainres.models.own import OwnBranch, OwnShortcut
from plainres.models.parts import Gate
from plainres.models.rules import JOINT, Rules
from plainres.models.scales import FixupScale, LearnedScale
from plainres.options import Activation, Init
from plainres.schema import ModelConf
from plainres.seeding import generator

TOKEN_STD = 0.02


class Draws:
    """The initial value of every parameter of a network, by its name."""

    def __init__(self, network: nn.Module, model: ModelConf, rules: Rules, seed: int) -> None:
        self._network = network
        self._model = model
        self._rules = rules
        self._seed = seed
        self._constants = _constants(network)
        self._own = {path: m for path, m in network.named_modules() if isinstance(m, (OwnBranch, OwnShortcut))}
        self._fresh: dict[str, nn.Module] = {}

    def draw(self, name: str, shape: torch.Size) -> torch.Tensor:
        """The value before declared factors: float32 on the CPU."""
        path, _, inner = name.partition(".inner.")
        if path in self._own:
            return self._instance(path).get_parameter(inner).detach().clone()
        if name in self._constants:
            return torch.full(shape, self._constants[name])
        if name.endswith(("cls_token", "pos_embed")):
            return self._normal(name, shape) * TOKEN_STD
        if len(shape) < 2:
            return torch.zeros(shape)
        if name.endswith(JOINT):  # three maps in one: each is drawn as one
            third = torch.Size((shape[0] // 3, *shape[1:]))
            return torch.cat([self._weight(f"{name}.{part}", third) for part in "qkv"])
        return self._weight(name, shape)

    def value(self, name: str, shape: torch.Size) -> torch.Tensor:
        """The initial value: the draw times the declared factor."""
        value = self.draw(name, shape)
        if name.endswith(JOINT):
            value[2 * shape[0] // 3 :] *= self._rules.value_factor()
        factor = self._rules.draw_factor(name, shape)
        return value if factor == 1 else value * factor

    def hashes(self) -> dict[str, str]:
        """Hash of the draw of every parameter before declared factors; a meta-device network will do."""
        return {
            name: hashlib.sha256(self.draw(name, p.shape).numpy().tobytes()).hexdigest()[:16]
            for name, p in self._network.named_parameters()
        }

    def materialise(self, device: str) -> None:
        """Give the meta-device network storage on ``device``, its initial values, and fresh norm statistics."""
        self._network.to_empty(device=device)
        for module in self._network.modules():
            if isinstance(module, BatchNorm):
                module.reset_statistics()
        with torch.no_grad():
            for name, parameter in self._network.named_parameters():
                parameter.copy_(self.value(name, parameter.shape))
            for path, own in self._own.items():
                for name, buffer in own.inner.named_buffers():
                    buffer.copy_(self._instance(path).get_buffer(name))

    def _instance(self, path: str) -> nn.Module:
        """A user's module with the values of its own constructor."""
        if path not in self._fresh:
            self._fresh[path] = self._own[path].fresh(self._seed)
        return self._fresh[path]

    def _normal(self, name: str, shape: torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator(self._seed, "init", name))

    def _weight(self, name: str, shape: torch.Size) -> torch.Tensor:
        normal, rule = self._normal(name, shape), self._model.init
        fan_in = math.prod(shape[1:])
        if rule is Init.he:
            return normal * math.sqrt(2 / fan_in)
        if rule is Init.xavier:
            fan_out = shape[0] * math.prod(shape[2:])
            return normal * math.sqrt(2 / (fan_in + fan_out))
        gain = 1.0 if self._model.activation is Activation.tanh else math.sqrt(2)
        if rule is Init.orthogonal or len(shape) == 2:
            return gain * _orthogonal(normal.flatten(1)).view(shape)
        value = torch.zeros(shape)
        row, column = shape[2] // 2, shape[3] // 2
        value[..., row, column] = gain * _orthogonal(normal[..., row, column])
        return value


def _orthogonal(normal: torch.Tensor) -> torch.Tensor:
    """Uniformly distributed semi-orthogonal matrix from a normal one: QR with the signs of R made positive."""
    tall = normal if normal.shape[0] >= normal.shape[1] else normal.T
    q, r = torch.linalg.qr(tall)
    q = q * torch.sign(r.diagonal())
    drawn: torch.Tensor = q if normal.shape[0] >= normal.shape[1] else q.T
    return drawn.contiguous()


def _constants(network: nn.Module) -> dict[str, float]:
    """Parameters that start at a number, by name."""
    found = {}
    for path, module in network.named_modules():
        if isinstance(module, NORMS):
            found[f"{path}.weight"] = 1.0
        elif isinstance(module, (LearnedScale, FixupScale)):
            found[f"{path}.alpha"] = module.start
        elif isinstance(module, Gate):
            found[f"{path}.op.bias"] = module.bias
    return found
