"""All quantities of a probed step, read together.

Order inside the step (METRICS.md): ``arm`` → forward → loss → backward → ``after_backward`` → clip →
``before_update`` → optimizer.step() → ``after_update`` → ``collect``. Reading changes no number: every probe works
on detached tensors, and training is bit-identical with probes on and off (tested).
"""

from collections.abc import Sequence

import torch

from plainres.flat import FlatParameters
from plainres.models.block import Block, Tap
from plainres.models.networks import Network, layer_sites
from plainres.models.own import OwnModule
from plainres.probes.activation_grad import ActivationGradNorm
from plainres.probes.branch import BranchNorms
from plainres.probes.collected import Collected
from plainres.probes.connection import ConnectionValues
from plainres.probes.grad_norm import GradNorm
from plainres.probes.jacobian import TRUNK, JacobianSpectra
from plainres.probes.own import OwnProbe
from plainres.probes.parameters import parameter_scopes
from plainres.probes.responses import LayerOutputs
from plainres.probes.update_ratio import UpdateRatio


class Probe:
    """The default probes on one network. Hooks exist only between ``arm`` and ``after_backward``.

    Attributes:
        waits: whether something in a probed step reads numbers on the host, or may: users' probes, Jacobians.
    """

    def __init__(self, network: Network, flat: FlatParameters, own: Sequence[OwnProbe] = (), jacobian: int = 0) -> None:
        """
        Args:
            network, flat: of the run.
            own: users' probes, read after ours.
            jacobian: examples of the step's batch whose Jacobians are read; 0 reads none.
        """
        self._own = list(own)
        self._jacobian = JacobianSpectra(network, jacobian) if jacobian else None
        self._blocks = [b for b in network.blocks if isinstance(b, Block)]
        self.waits = bool(own or jacobian)  # for the device, within a probed step
        sites = layer_sites(network)
        scopes = parameter_scopes(network, flat)
        blocks = [f"blocks.{b.index}" for b in self._blocks]
        self.layout: dict[str, list[str]] = scopes.names | {"block": blocks} | ({TRUNK: [TRUNK]} if jacobian else {})
        self.response_labels = [site.response_label for site in sites]
        # A user's module may write to what another has put out, as nn.ReLU(inplace=True) does: nothing is kept of it.
        at_once = any(isinstance(module, OwnModule) for module in network.modules())
        self._branch = BranchNorms(self._blocks, at_once)
        self._activations = ActivationGradNorm(self._blocks)
        self._outputs = LayerOutputs(sites, at_once)
        self._connection = ConnectionValues(self._blocks, flat.data.device)
        self._grads = GradNorm(flat, scopes)
        self._updates = UpdateRatio(flat, scopes)
        self._quantities = (
            self._grads,
            self._updates,
            self._outputs,
            self._branch,
            self._activations,
            self._connection,
        )

    def arm(self, num_examples: int, loss_factor: float = 1.0) -> None:
        """Begin a probed step.

        Args:
            num_examples: in the loss's mean.
            loss_factor: what that mean is multiplied by before the backward pass.
        """
        self._tap(self._on_block)
        self._activations.arm(num_examples / loss_factor)
        self._outputs.arm()
        self._connection.arm()
        if self._jacobian is not None:
            self._jacobian.arm()
        for probe in self._own:
            probe.arm(num_examples)

    def after_backward(self) -> None:
        """Take the gradients, before clipping, and the hooks off."""
        self._tap(None)
        self._branch.flush()
        self._activations.after_backward()
        self._outputs.disarm()
        self._connection.disarm()
        self._grads.after_backward()
        if self._jacobian is not None:
            self._jacobian.after_backward()
        for probe in self._own:
            probe.after_backward()

    def _tap(self, listener: Tap | None) -> None:
        for block in self._blocks:
            object.__setattr__(block, "tap", listener)  # torch's own way looks for parameters and modules first

    def _on_block(self, index: int, x: torch.Tensor, h: torch.Tensor | None, f: torch.Tensor, y: torch.Tensor) -> None:
        self._branch.on_block(index, x, h, f, y)
        self._activations.on_block(index, x, y)

    def before_update(self) -> None:
        self._updates.before_update()
        for probe in self._own:
            probe.before_update()

    def after_update(self) -> None:
        self._updates.after_update()
        for probe in self._own:
            probe.after_update()

    def collect(self, *more: torch.Tensor) -> Collected:
        """What the step gave, on its way to its row; the probe may begin another step.

        Args:
            more: scalars of the step that are wanted with it.

        Raises:
            RuntimeError: a layer or block was never seen.
            UserError: a user's probe gave what cannot be kept.
        """
        quantities = self._quantities if self._jacobian is None else (*self._quantities, self._jacobian)
        return Collected(quantities, self._own, self.layout, more)
