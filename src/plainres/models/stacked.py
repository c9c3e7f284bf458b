"""Several networks of one shape as one: every weight with a replica dimension, every map a batched product.

Only for the mlp, whose parts are few: linear maps, norms, a connection's scalars, and what acts on each element. The
network keeps its structure; its linear maps and norms are replaced by those below, and other parameters get a shape
that meets the values of their own replica only. Nothing is ever summed over replicas, so that a replica's numbers are
the same bits whichever others pass with it (tested).

Shape suffixes: S replicas, N examples, D features, I and O features in and out, K classes, P parameters, M norm
statistics. Examples come last, so that the statistics of a feature are taken over numbers side by side in memory.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from plainres.flat import FlatParameters
from plainres.models.layer import BatchNorm
from plainres.models.networks import Network
from plainres.models.parts import Concat
from plainres.models.scales import FixupBias, FixupScale, LearnedScale

ALIGNED = 16  # float32 numbers, 64 bytes: every replica's weights lie in memory as the first one's do


class StackedLinear(nn.Module):
    """W_s x_s + b_s of every replica s: (S, I, N) -> (S, O, N)."""

    def __init__(self, weight_SOI: nn.Parameter, bias_SO1: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight_SOI, bias_SO1

    def forward(self, x_SIN: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return torch.bmm(self.weight, x_SIN)
        return torch.baddbmm(self.bias, self.weight, x_SIN)


class StackedBatchNorm(nn.Module):
    """Batch norm of every replica over its own examples, in training mode: each feature of each is a channel."""

    def __init__(self, norm: BatchNorm, weight_SD: nn.Parameter, bias_SD: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight_SD, bias_SD
        self.momentum, self.eps = norm.momentum or 0.0, norm.eps
        self.mean_SD = self.var_SD = torch.empty(0)

    def forward(self, x_SDN: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.batch_norm(
            x_SDN.reshape(1, -1, x_SDN.shape[2]),
            self.weight.reshape(-1),
            self.bias.reshape(-1),
            self.mean_SD.view(-1),
            self.var_SD.view(-1),
            True,
            self.momentum,
            self.eps,
            True,
        )
        return y.view(x_SDN.shape)


class StackedLayerNorm(nn.Module):
    """Layer norm over the features of each example, with the scale and shift of its replica."""

    def __init__(self, norm: nn.LayerNorm, weight_SD1: nn.Parameter, bias_SD1: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight_SD1, bias_SD1
        self.eps = norm.eps

    def forward(self, x_SDN: torch.Tensor) -> torch.Tensor:
        normed_SDN = F.layer_norm(x_SDN.mT, x_SDN.shape[1:2], eps=self.eps).mT
        return normed_SDN * self.weight + self.bias


def gather_statistics(network: nn.Module) -> torch.Tensor:
    """Move a network's running means and variances into one (M, D) tensor, and return it; M = 0 without batch norm."""
    norms = [m for m in network.modules() if isinstance(m, BatchNorm)]
    found = [norm._buffers[name] for norm in norms for name in ("running_mean", "running_var")]
    if not found:
        return torch.empty(0, 0)
    statistics_MD = torch.stack([buffer for buffer in found if buffer is not None])
    for norm, (mean_D, var_D) in zip(norms, statistics_MD.unflatten(0, (-1, 2)), strict=True):
        norm._buffers |= {"running_mean": mean_D, "running_var": var_D}
    return statistics_MD


class Stack:
    """The forward and backward pass of a number of networks at once, on copies of their weights.

    Attributes:
        data_SP, grad_SP: parameters of each replica, and their gradients after a pass, in the order of its own buffers.
        statistics_MSD: running statistics of the batch norms, which a pass moves.
    """

    def __init__(self, template: Network, flat: FlatParameters, statistics_MD: torch.Tensor, count: int) -> None:
        """
        Args:
            template: one of the networks; nothing of it is changed, and it needs no values.
            flat, statistics_MD: of that network; their values do not matter either.
            count: S.
        """
        pitch = -(-flat.data.numel() // ALIGNED) * ALIGNED
        data_SP, grad_SP = flat.data.new_zeros(count, pitch), flat.data.new_zeros(count, pitch)
        self.data_SP, self.grad_SP = data_SP[:, : flat.data.numel()], grad_SP[:, : flat.data.numel()]
        self.statistics_MSD = statistics_MD.new_zeros(len(statistics_MD), count, *statistics_MD.shape[1:])
        self._network = copy.deepcopy(template).train()
        shapes = {name: p.shape for name, p in template.named_parameters()}
        ends = flat.numel.cumsum().tolist()
        self._places = {
            name: (slice(end - size, end), shapes[name])
            for name, end, size in zip(flat.names, ends, flat.numel.tolist(), strict=True)
        }
        self._parameters: list[nn.Parameter] = []
        self._gradients: list[torch.Tensor] = []  # where that of each of them goes
        self._replace()

    def __call__(self, x_SNCHW: torch.Tensor, y_SN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Leave the gradient of each replica's mean loss in its row.

        Returns:
            (S,) mean cross-entropy, and (S,) number of wrong answers.
        """
        logits_SKN = self._network(x_SNCHW.flatten(2).mT)
        loss_S = F.cross_entropy(logits_SKN, y_SN, reduction="none").mean(1)
        torch._foreach_copy_(self._gradients, torch.autograd.grad(loss_S.sum(), self._parameters))
        return loss_S.detach(), (logits_SKN.detach().argmax(1) != y_SN).sum(1)

    def _replace(self) -> None:
        """Put the modules above in the place of the network's own."""
        self._network.prepare = nn.Identity()  # inputs come flat
        statistics = iter(self.statistics_MSD)
        for path, module in list(self._network.named_modules()):
            new: nn.Module | None = None
            if isinstance(module, nn.Linear):
                bias = None if module.bias is None else self._parameter(f"{path}.bias", column=True)
                new = StackedLinear(self._parameter(f"{path}.weight"), bias)
            elif isinstance(module, BatchNorm):
                new = StackedBatchNorm(module, self._parameter(f"{path}.weight"), self._parameter(f"{path}.bias"))
                new.mean_SD, new.var_SD = next(statistics), next(statistics)
            elif isinstance(module, nn.LayerNorm):
                scale, shift = (self._parameter(f"{path}.{name}", column=True) for name in ("weight", "bias"))
                new = StackedLayerNorm(module, scale, shift)
            elif isinstance(module, Concat):
                module.dim = 1
            elif module._parameters:
                assert isinstance(module, (LearnedScale, FixupBias, FixupScale)), path
                for name in module._parameters:
                    module._parameters[name] = self._parameter(f"{path}.{name}", column=True)
            if new is not None:
                parent, _, name = path.rpartition(".")
                setattr(self._network.get_submodule(parent), name, new)

    def _parameter(self, name: str, column: bool = False) -> nn.Parameter:
        """A parameter of all replicas: (S, shape); as a ``column`` (S, D, 1), or (S, 1, 1) for a scalar."""
        span, shape = self._places[name]
        shape_S = (len(self.data_SP), *((-1, 1) if column else shape))
        parameter = nn.Parameter(self.data_SP[:, span].view(shape_S))
        self._parameters.append(parameter)
        self._gradients.append(self.grad_SP[:, span].view(shape_S))
        return parameter
