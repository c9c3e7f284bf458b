"""``attach(model)``: the probes of this project on a model that is not ours, in the user's own loop."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from plainres.errors import UserError
from plainres.probes.attached.activation_grad import SiteGradients
from plainres.probes.attached.branch import SiteNorms, put_site_norms
from plainres.probes.attached.grad_norm import ParameterGradients
from plainres.probes.attached.libraries import find_sites
from plainres.probes.attached.parameters import ParameterList
from plainres.probes.attached.sites import Site, as_sites, find_places
from plainres.probes.attached.taps import Taps
from plainres.probes.attached.update_ratio import ParameterUpdates
from plainres.probes.cadence import is_due
from plainres.probes.readings import Readings

REDUCTIONS = ("mean", "sum")


class Attached:
    """Probes on one model. Hooks exist only inside ``measure``; no number of the training changes.

    Attributes:
        sites: the additions that are measured, in the order of ``layer_index`` in scope ``block``.
        layout: scope -> names of its members, in the order of ``layer_index``.
    """

    def __init__(
        self, model: nn.Module, sites: list[Site], every: int, reduction: str, scaler: torch.amp.GradScaler | None
    ) -> None:
        """Use ``attach``."""
        self.sites = sites
        self._every = every
        self._scaler = scaler
        self._taps = Taps(model)
        places = [find_places(model, site) for site in sites]
        self._norms = [SiteNorms(site, p, model, self._taps) for site, p in zip(sites, places, strict=True)]
        self._activations = SiteGradients(places, self._taps, reduction == "mean")
        used = {p: site.label for site, all_of in zip(sites, places, strict=True) for p in all_of if p is not None}
        self._labels = used
        parameters = ParameterList(model, [path for site in sites for path in site.scales])
        self._grads = ParameterGradients(parameters)
        self._updates = ParameterUpdates(parameters)
        self.layout = parameters.layout | {"block": [site.label for site in sites], "run": ["run"]}
        self._rows: list[dict[str, Any]] = []
        self._measuring = False
        self._removed = False

    def due(self, step: int) -> bool:
        """Whether ``measure(step)`` measures: step 0, powers of two below ``every``, and every ``every`` steps."""
        return is_due(step, self._every)

    @contextmanager
    def measure(self, step: int, loss_weight: float = 1.0) -> Iterator[None]:
        """Measure what happens inside this context: one forward and backward pass, and the optimizer's step.

        Under gradient accumulation the step's last micro-batch is enough; with all of them inside, activations and
        their gradients are those of the last one. Outside a due step this does nothing at all.

        Args:
            step: 0-based number of the update that is about to be made.
            loss_weight: what the loss was multiplied by before its backward pass, as 1/k for k micro-batches.

        Raises:
            UserError: a site that was never passed, or whose output is not shortcut + branch; use after ``remove``.
        """
        if self._removed:
            raise UserError("measure(): these probes were removed; attach(model) again")
        if self._measuring:
            raise UserError(f"measure({step}): a measured step is under way; leave it before the next begins")
        if not loss_weight > 0 or math.isinf(loss_weight):
            raise UserError(f"loss_weight={loss_weight}: give what the loss was multiplied by, above 0")
        if not self.due(step):
            yield
            return
        # A compiled graph passes no hook that came after it, so a measured step runs the same modules uncompiled. The
        # compiler is imported (in seconds) by the first torch.compile only; where it is not, nothing is compiled.
        compiled = "torch._dynamo" in sys.modules
        try:
            self._arm(loss_weight)
            with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
                yield
        finally:
            self._disarm()
        if not self._removed:  # by the loop, inside this context
            self._read(step)

    def rows(self) -> list[dict[str, Any]]:
        """All measured values so far, for ``pandas.DataFrame``: a row each.

        Returns:
            dicts of step, scope, layer_index, layer_name, metric, value (None where there is none) and reason (why).
        """
        return list(self._rows)

    def remove(self) -> None:
        """Take off whatever is on the model; what was measured stays."""
        self._disarm()
        self._removed = True

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def _arm(self, loss_weight: float) -> None:
        self._measuring = True
        scale = None if self._scaler is None else self._scaler.get_scale()
        for site in self._norms:
            site.begin()
        self._activations.arm((scale or 1.0) * loss_weight)
        self._grads.arm(scale)
        self._updates.arm()
        self._taps.arm()

    def _disarm(self) -> None:
        self._measuring = False
        self._taps.disarm()
        self._grads.disarm()
        self._updates.disarm()

    def _read(self, step: int) -> None:
        self._taps.check(self._labels)
        readings = Readings()
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes a null with its reason
            put_site_norms(self._norms, readings)
            self._activations.read(readings)
            self._grads.read(readings)
            self._updates.read(readings)
        for scope, metrics in readings.values.items():
            for metric, values in metrics.items():
                reasons = readings.reasons.get(scope, {}).get(metric, {})
                for i, name in enumerate(self.layout[scope]):
                    value = None if str(i) in reasons else float(values[i])
                    row = {"step": step, "scope": scope, "layer_index": i, "layer_name": name, "metric": metric}
                    self._rows.append(row | {"value": value, "reason": reasons.get(str(i))})


def attach(
    model: nn.Module,
    blocks: list[Site | tuple[str, str]] | None = None,
    *,
    every: int = 1,
    reduction: str = "mean",
    scaler: torch.amp.GradScaler | None = None,
) -> Attached:
    """Probes on any model with residual additions; ``docs/attach.md`` says what is measured, and how.

        probes = attach(model, every=50)
        with probes.measure(step):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        table = pandas.DataFrame(probes.rows())

    Args:
        model: blocks of torchvision's and timm's ResNets, timm's vision transformer, and Hugging Face's ViT and GPT-2
            are found; the first dimension of what they receive is the batch.
        blocks: for any other model, each addition as the pair of paths (branch, shortcut), or as a Site. A path is
            the output of that module, ``path:input`` what it receives.
        every: 1 or more; ``measure`` acts at step 0, at powers of two below it, and every ``every`` steps.
        reduction: ``mean`` for a loss that is the mean over the batch's examples, ``sum`` for their sum.
        scaler: the gradient scaler of a mixed-precision loop; its factor is divided out.

    Raises:
        UserError: no known block, a path that names no module, a model spread over processes or devices.
    """
    if reduction not in REDUCTIONS:
        raise UserError(f"reduction={reduction!r}: give one of {', '.join(REDUCTIONS)}")
    if every < 1:
        raise UserError(f"every={every}: give 1 or more; 1 measures whatever is inside measure()")
    spread = isinstance(model, nn.DataParallel) or len({p.device for p in model.parameters()}) > 1
    if spread or (torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1):
        raise UserError(
            "attach: this model is trained by more than one device, and gradients are read before they are summed over "
            "them; measure in a run of one process and device"
        )
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile wraps
    sites = find_sites(model) if blocks is None else as_sites(blocks)
    return Attached(model, sites, every, reduction, scaler)
