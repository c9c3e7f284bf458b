"""The training loop. One arm, one depth, one seed; everything it needs is handed to it.

Time: a step's readings stand under the step they were taken in, 0 … steps−1; an evaluation stands under the
number of updates made, 0 … steps. A checkpoint is taken at a step boundary before anything of that step, so a
resumed run repeats nothing that was written and misses nothing that was not.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from plainres import checkpoint
from plainres.checkpoint import Position
from plainres.clock import Clock
from plainres.data import Dataset
from plainres.data.augment import Augmentation
from plainres.data.batches import Batches
from plainres.divergence import DeferredGuard, Divergence, ImmediateGuard, first_non_finite_value, name_first_non_finite
from plainres.engine import Graphed, op_by_op
from plainres.errors import Interrupted
from plainres.evaluate import error_with_batch_statistics, evaluate
from plainres.flat import FlatParameters
from plainres.models.networks import Network
from plainres.optim import learning_rate, set_learning_rate
from plainres.pair import RunSpec
from plainres.precision import computing
from plainres.probed import ProbedRows
from plainres.probes.probe import Probe
from plainres.progress import Progress
from plainres.ranks import Ranks, ranks
from plainres.rows import RowWriter, evaluation_row
from plainres.step import Passed, Passes, Shared
from plainres.store import RunFolder


@dataclass(frozen=True)
class Plan:
    """Step numbers at which something beside training happens."""

    probes: frozenset[int]
    evaluations: frozenset[int]
    batchstats: frozenset[int]


@dataclass
class Parts:
    """Everything a training loop works on, on its device."""

    spec: RunSpec
    network: Network
    flat: FlatParameters
    optimizer: torch.optim.Optimizer
    guard: ImmediateGuard | DeferredGuard
    data: Dataset
    batches: Batches
    augment: Augmentation
    probe: Probe
    plan: Plan
    writer: RowWriter
    folder: RunFolder
    place: dict[str, str]
    on_checkpoint: Callable[[dict[str, int]], None]
    together: Shared | None = None


class Training:
    """One run from a position to the end of its budget, to a divergence, or to a request to stop."""

    def __init__(
        self, parts: Parts, position: Position, should_stop: Callable[[], bool], graphed: bool = False
    ) -> None:
        """
        Args:
            parts: of the run.
            position: where it stands.
            should_stop: asked at every step.
            graphed: launch unprobed updates as one CUDA graph.
        """
        self.parts = parts
        self._graphed: dict[bool, Graphed] = {}  # whether it is probed -> the update that is recorded
        if graphed:
            self._graphed[False] = Graphed(self._replayed)
            if not parts.probe.waits:
                self._graphed[True] = Graphed(partial(self._replayed, probe=parts.probe))
        self.position = position
        self._should_stop = should_stop
        conf = parts.spec.conf
        self._steps = conf.trainer.steps
        self._checkpoint_every = conf.trainer.checkpoint_every
        self._clip = conf.optimizer.clip_norm or math.inf
        self._ranks = ranks()
        device = parts.spec.device
        self.passes = Passes(parts.network, parts.flat, conf, device, parts.together)
        if self.passes.scale is not None and position.loss_scale is not None:
            self.passes.scale.restore(position.loss_scale)
        self._wrong = torch.tensor(position.running["wrong"], dtype=torch.float64, device=device)
        self._loss = torch.tensor(position.running["loss"], dtype=torch.float64, device=device)
        self._clock = Clock(position.seconds)
        self._progress = Progress(parts.folder, self._steps, device)
        self._rows = ProbedRows(parts, self._clip_coef, self.passes.scale is not None)
        if isinstance(parts.guard, DeferredGuard):
            parts.guard.start(position.step)

    def run(self) -> Divergence | None:
        """Train to the end of the budget.

        Returns:
            where it diverged, or None when it is complete.

        Raises:
            Interrupted: it was asked to stop; a checkpoint has been written.
            OSError: the disk is full; rows up to the last checkpoint are safe.
        """
        start = self.position.step
        for step in range(start, self._steps + 1):
            self.position.step = step
            stopping = self._should_stop()
            if stopping or (step % self._checkpoint_every == 0 and step > start):
                if (diverged := self._flush()) is not None:
                    return diverged
                self._save()
            if stopping:
                raise Interrupted(step)
            if step in self.parts.plan.evaluations:
                if (diverged := self._flush()) is not None:
                    return diverged
                self._evaluate(step)
            if step < self._steps and (bad := self.update(step)) is not None:
                return self._name(bad)
        if (diverged := self._flush()) is not None:
            return diverged
        # No step after the last update would show what it did: the evaluation of the final weights has to.
        last = self.position.last_eval
        if last is None or last["step"] != self._steps:
            return Divergence(self._steps, "evaluation", first_non_finite_value(self.parts.network))
        return None

    def update(self, step: int) -> int | None:
        """One step, in METRICS.md's order; the step in which training diverged, if it did."""
        began = time.perf_counter()
        parts, conf = self.parts, self.parts.spec.conf
        probing = step in parts.plan.probes
        if probing:
            self._rows.write()  # of the probed step before
        # A probed step is computed whole on every rank: what is read in it is what one device would read.
        shared = None if probing else self._ranks
        x, y = self._batch(step, shared)
        lr = learning_rate(conf.schedule, conf.optimizer.lr, step, self._steps)
        set_learning_rate(parts.optimizer, lr)
        scale = 1.0
        if probing in self._graphed:
            loss = self._graphed[probing](x, y)
        else:
            made = self._apply(step, x, y, parts.probe if probing else None, shared)
            if isinstance(made, int):
                return made
            loss, scale = made.loss, made.scale
            if probing:
                self._rows.collect(made)
        if probing:
            self._rows.send(step, lr, scale)
            if not isinstance(parts.guard, DeferredGuard):  # a GPU is read when it is waited for anyway
                self._rows.write()
        self.position.running["examples"] += parts.batches.batch
        self._clock.step(time.perf_counter() - began, probing)
        self._progress.step(step, loss, self.position.last_eval)
        return None

    def _apply(
        self, step: int, x: torch.Tensor, y: torch.Tensor, probe: Probe | None = None, shared: Ranks | None = None
    ) -> Passed | int:
        """Make the update of a batch; the step in which training diverged, if it did and this can be seen at once."""
        parts = self.parts
        passed = self.passes(step, x, y, probe, shared)
        if (bad := parts.guard.check(step, passed.loss, passed.grad_norm)) is not None:
            return bad
        if self._clip < math.inf:
            parts.flat.grad.mul_(self._clip_coef(passed))
        if probe is not None:
            probe.before_update()
        parts.optimizer.step()
        if probe is not None:
            probe.after_update()
        self._wrong += passed.wrong
        self._loss += passed.loss * parts.batches.batch
        return passed

    def _clip_coef(self, passed: Passed) -> torch.Tensor:
        return torch.clamp(self._clip / (passed.grad_norm + 1e-6), max=1.0)

    def _replayed(self, x: torch.Tensor, y: torch.Tensor, probe: Probe | None = None) -> torch.Tensor:
        """What a graph records: an update of which nothing is a number of the host, and what a probe collects of it."""
        passed = self._apply(0, x, y, probe)
        assert isinstance(passed, Passed), "only a guard on the device lets an update be recorded"
        if probe is not None:
            self._rows.collect(passed)
        return passed.loss

    def _batch(self, step: int, shared: Ranks | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        parts, train = self.parts, self.parts.data.train
        index_N = parts.batches.indices(step, train.home)
        if shared:
            index_N = shared.part(index_N)
        x_NCHW, y_N = train.take(index_N)
        return parts.augment(x_NCHW, index_N, parts.batches.epoch(step)), y_N

    def _evaluate(self, step: int) -> None:
        """Write the evaluation that stands under ``step`` updates, and start the running sums anew."""
        parts, running = self.parts, self.position.running
        conf = parts.spec.conf
        with self._clock.measure("evaluation"), computing(conf.trainer.precision, parts.spec.device):
            parts.network.begin_step(conf.seed, step)  # a rising α, also right after a resume
            values: dict[str, float] = evaluate(parts.network, parts.data)
            if step in parts.plan.batchstats:
                train, batch = parts.data.train, conf.trainer.micro_batch
                values["train_error_batchstats"] = error_with_batch_statistics(parts.network, train, batch)
            examples = running["examples"]
            if examples:
                values["train_error_running"] = self._wrong.item() / examples
                values["train_loss_running"] = self._loss.item() / examples
        self._wrong.zero_()
        self._loss.zero_()
        running["examples"] = 0.0
        parts.writer.write("steps", evaluation_row(step, values))
        if all(map(math.isfinite, values.values())):
            self.position.last_eval = {"step": step} | values
        self._progress.evaluated(step, self.position.last_eval)

    def _flush(self) -> Divergence | None:
        self._rows.write()
        bad = self.parts.guard.flush()
        return None if bad is None else self._name(bad)

    def _name(self, step: int) -> Divergence:
        network, spec = self.parts.network, self.parts.spec
        parts = self.passes.micro_batches(step, *self._batch(step))
        with op_by_op(network), computing(spec.conf.trainer.precision, spec.device):
            return name_first_non_finite(network, self.parts.flat, parts, step)

    def _save(self) -> None:
        parts, position = self.parts, self.position
        with self._clock.measure("store"):
            position.running |= {"wrong": self._wrong.item(), "loss": self._loss.item()}
            position.loss_scale = None if self.passes.scale is None else self.passes.scale.state()
            lengths = position.lengths = parts.writer.sync()
            position.seconds = self._clock.seconds()
            checkpoint.save(parts.folder.checkpoint, parts.network, parts.flat, parts.optimizer, position, parts.place)
        with self._clock.measure("tracker"):
            parts.on_checkpoint(lengths)

    def finish(self, complete: bool) -> dict[str, float]:
        """Write all rows down; the seconds spent, by activity.

        A complete run leaves a checkpoint with the final weights that says that nothing is left to do. A diverged
        one keeps its last regular checkpoint: if it is killed before its status is written, it diverges again.
        """
        if complete:
            self.position.step = self._steps + 1
            self._save()
        self.parts.writer.close()
        return self._clock.seconds()
