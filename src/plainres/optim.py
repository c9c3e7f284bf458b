"""Optimizers and learning-rate schedules, counted in steps.

The update rules are torch's own, run on one flat tensor per region instead of one tensor per parameter; both
are elementwise, so the numbers are the same bits (tested).
"""

import math
from typing import Any

import torch

from plainres.flat import FlatParameters
from plainres.options import OptimizerName, ScheduleName
from plainres.schema import OptimizerConf, ScheduleConf


def build_optimizer(conf: OptimizerConf, flat: FlatParameters, fused: bool = False) -> torch.optim.Optimizer:
    """SGD (Nesterov optional) or AdamW on flat storage.

    Args:
        conf: rule and constants.
        flat: its regions become parameter groups with and without weight decay.
        fused: one kernel that can be frozen on the device by ``found_inf`` (the GPU's divergence flag).
    """
    groups: list[dict[str, Any]] = []
    for region in flat.regions:
        tensor = torch.nn.Parameter(flat.data[region.start : region.stop])
        tensor.grad = flat.grad[region.start : region.stop]
        groups.append(
            {
                "params": [tensor],
                "weight_decay": conf.weight_decay if region.decayed else 0.0,
                "lr_factor": region.lr_factor,
            }
        )
    if conf.name is OptimizerName.sgd:
        return torch.optim.SGD(
            groups, conf.lr, momentum=conf.momentum, nesterov=conf.nesterov, fused=fused, foreach=False
        )
    betas = (conf.betas[0], conf.betas[1])
    return torch.optim.AdamW(groups, conf.lr, betas=betas, eps=conf.eps, fused=fused, foreach=False)


def learning_rate(conf: ScheduleConf, base_lr: float, step: int, steps: int) -> float:
    """Learning rate of update ``step`` (0-based) out of ``steps``.

    Warm-up rises linearly and reaches ``base_lr`` with its last step; then constant, a cosine to 0 at the end
    of the budget, or ``base_lr`` times ``factor`` for every milestone passed (step ≥ milestone).
    """
    if step < conf.warmup_steps:
        return base_lr * (step + 1) / conf.warmup_steps
    if conf.name is ScheduleName.cosine:
        progress = (step - conf.warmup_steps) / (steps - conf.warmup_steps)
        return base_lr * 0.5 * (1 + math.cos(math.pi * progress))
    if conf.name is ScheduleName.step:
        passed = sum(step >= milestone for milestone in conf.milestones)
        return base_lr * conf.factor**passed
    return base_lr


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        now = lr * group["lr_factor"]
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(now)
        else:
            group["lr"] = now


def make_recordable(optimizer: torch.optim.Optimizer, device: str) -> None:
    """Keep in tensors on the device what changes from step to step, so that a recorded step sees it: learning rates."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=device)
        if "capturable" in group:  # AdamW counts its steps
            group["capturable"] = True
    optimizer._warned_capturable_if_run_uncaptured = True  # probed steps run so, and torch would warn
