"""activation_grad_norm at the input and output of every site, and block_gain.

Definitions and arithmetic are those of ``plainres.probes.activation_grad``. Tensor hooks see a gradient before the
loss's scale and weight are taken out, so both are divided out here; under accumulation the last pass is kept.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from plainres.probes.activation_grad import mean_sample_grad_norm, put_block_gain
from plainres.probes.attached.sites import Places
from plainres.probes.attached.taps import Taps
from plainres.probes.readings import Readings

NO_BACKWARD = "no backward pass reached this place in the measured step"
NO_OUTPUT = "this site names no place for its output"


class SiteGradients:
    """Hooks on the tensors at the sites' inputs and outputs."""

    def __init__(self, places: list[Places], taps: Taps, mean_reduced: bool) -> None:
        """
        Args:
            places: of every site.
            taps: where the tensors come from.
            mean_reduced: whether the loss is the mean over the examples of the batch, not their sum.
        """
        self._mean_reduced = mean_reduced
        self._divisor = 1.0
        self._norms: dict[tuple[str, int], torch.Tensor] = {}
        self._no_output = [site.y is None for site in places]
        for i, site in enumerate(places):
            taps.listen(site.x, self._watch("input", i))
            if site.y is not None:
                taps.listen(site.y, self._watch("output", i))

    def arm(self, divisor: float) -> None:
        """
        Args:
            divisor: what the loss was multiplied by before the backward pass: loss scale times weight.
        """
        self._divisor = divisor
        self._norms = {}

    def _watch(self, end: str, index: int) -> Callable[[torch.Tensor], None]:
        def listener(tensor: torch.Tensor) -> None:
            if not tensor.requires_grad:
                return
            norms = self._norms  # a backward pass after this measured step must not write into the next one

            def keep(grad: torch.Tensor) -> None:
                examples = len(grad) if self._mean_reduced else 1
                norms[end, index] = mean_sample_grad_norm(grad, examples / self._divisor)

            tensor.register_hook(keep)

        return listener

    def read(self, readings: Readings) -> None:
        count = len(self._no_output)
        found = (
            dict(zip(self._norms, torch.stack(list(self._norms.values())).tolist(), strict=True)) if self._norms else {}
        )
        values = {end: np.array([found.get((end, i), math.nan) for i in range(count)], np.float32) for end in ENDS}
        readings.put("block", "activation_grad_norm_input", values["input"], NO_BACKWARD)
        missing = [NO_OUTPUT if none else NO_BACKWARD for none in self._no_output]
        readings.put("block", "activation_grad_norm_output", values["output"], missing)
        put_block_gain(readings, values["input"], values["output"])


ENDS = ("input", "output")
