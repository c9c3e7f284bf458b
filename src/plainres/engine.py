"""How updates are executed: op by op, with compiled blocks, as one CUDA graph; and why not, where a machine cannot.

What a setting cannot be combined with is refused (validation.py). What a machine lacks is no reason to refuse: the run
goes on op by op, says so in one line, and records it, so that it is never paired with one that had what it lacks.
"""

import importlib
import os
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from plainres.models.block import Block
from plainres.models.layer import Chain
from plainres.models.networks import Network
from plainres.options import Compile
from plainres.pair import RunSpec

MOST_KINDS = 4096  # of blocks that are compiled in one process
WARM_UP = 3  # updates before a graph is recorded: memory is taken, kernels are chosen


@dataclass(frozen=True)
class Engine:
    """What a run is executed by.

    Attributes:
        compiled: blocks by torch's compiler.
        graphed: unprobed updates as one CUDA graph.
        stacked: unprobed updates as one network with those of other replicas.
        notes: one line for every setting that this machine cannot follow.
    """

    compiled: bool
    graphed: bool
    stacked: bool
    notes: tuple[str, ...]

    @property
    def words(self) -> str:
        """For run.json: ``eager``, ``stacked replicas``, ``compiled blocks``, ``cuda graph``, or both of these."""
        parts = ["compiled blocks"] * self.compiled + ["cuda graph"] * self.graphed
        parts += ["stacked replicas"] * self.stacked
        return ", ".join(parts) or "eager"


def engine_of(spec: RunSpec) -> Engine:
    """What this machine executes a run by."""
    trainer, on_gpu = spec.conf.trainer, spec.device.startswith("cuda")
    notes = []
    missing = _missing_compiler(on_gpu) if trainer.compile is Compile.blocks else ""
    if missing:
        notes.append(f"trainer.compile=blocks: {missing}; blocks are executed op by op")
    if trainer.cuda_graph and not on_gpu:
        notes.append(f"trainer.cuda_graph=true: needs a CUDA device; on {spec.device} updates are executed op by op")
    compiled = trainer.compile is Compile.blocks and not missing
    return Engine(compiled, trainer.cuda_graph and on_gpu, trainer.replicas > 1, tuple(notes))


def engine_notes(specs: Sequence[RunSpec]) -> list[str]:
    """What these runs ask for and this machine lacks, each once."""
    return list(dict.fromkeys(note for spec in specs for note in engine_of(spec).notes))


def _missing_compiler(on_gpu: bool) -> str:
    """What torch's compiler needs and does not find; empty when it is there."""
    if on_gpu:
        return "" if find_spec("triton") else "there is no triton, which torch compiles for a GPU with"
    compiler = os.environ.get("CXX", "g++")  # as torch looks for it
    return "" if shutil.which(compiler) else f"there is no C++ compiler {compiler} (CXX names another)"


class Compiled:
    """Passes blocks through one compiled forward method: of blocks that are built alike, however many there are.

    Hooks inside a compiled block would see nothing. In a probed step another compiled method also returns what they
    are to see, and they are called with it, and so are taps.
    """

    def __init__(self, blocks: Sequence[torch.nn.Module], own_probes: bool = False) -> None:
        """
        Args:
            blocks: of the network.
            own_probes: whether there are probes of the user's, whose hooks may read more than outputs: probed steps run
                op by op.
        """
        self._blocks = [block for block in blocks if isinstance(block, Block)]
        self._own_probes = own_probes
        for module in (m for block in self._blocks for m in block.modules() if isinstance(m, Chain)):
            module.parts()  # looked up now: a block that has not done so yet would be compiled as another kind
        # A worker trains many networks: by torch's limits of 8 kinds the next ones would run op by op, unsaid.
        dynamo: Any = importlib.import_module("torch._dynamo.config")
        dynamo.recompile_limit, dynamo.accumulated_recompile_limit = MOST_KINDS, MOST_KINDS
        # Workers that begin at once would share a header that one of them is still precompiling.
        options: dict[str, Any] = {"cpp_cache_precompile_headers": False}
        self._forward = torch.compile(Block.forward, dynamic=False, options=options)
        self._seen = torch.compile(_seen_joined, dynamic=False, options=options)
        # torch 2.14 looks at .grad of its own stand-ins for parameters, and warns of it.
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", module="torch")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        passed: Callable[[Block, torch.Tensor], torch.Tensor] = self._forward
        if self._blocks[0].tap is not None:
            passed = Block.__call__ if self._own_probes else self._probed
        for block in self._blocks:
            x = passed(block, x)
        return x

    def _probed(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        watched = [module for module in block.modules() if module is not block and module._forward_hooks]
        hooks = [module._forward_hooks for module in watched]
        for i, module in enumerate(watched):
            module._forward_hooks = OrderedDict({0: _keeper(i)})
        try:
            h, f, y, seen = self._seen(block, x, tuple(range(len(watched))))
        finally:
            for module, before in zip(watched, hooks, strict=True):
                module._forward_hooks = before
        for i, out in seen.items():
            for hook in tuple(hooks[i].values()):
                hook(watched[i], (), out)
        assert block.tap is not None
        block.tap(block.index, x, h, f, y)
        return y


_kept: dict[int, torch.Tensor] = {}  # what the hooks of one compiled pass through a block have seen


def _keeper(i: int) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
    def keep(module: torch.nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        _kept[i] = out.detach()

    return keep


def _seen_joined(
    block: Block, x: torch.Tensor, places: tuple[int, ...]
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, dict[int, torch.Tensor]]:
    """What a tap is told of, and the outputs of hooked modules by their place; a block that is hooked at other places
    is compiled anew."""
    h, f, y = block.joined(x)
    seen = {i: _kept[i] for i in places}
    _kept.clear()
    return None if h is None else h.detach(), f.detach(), y, seen


@contextmanager
def op_by_op(network: Network) -> Iterator[None]:
    """Within, blocks are not compiled, so that hooks inside them are called."""
    kept = network.passage
    if isinstance(kept, Compiled):
        network.passage = None
    try:
        yield
    finally:
        network.passage = kept


Body = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Record = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], None], torch.Tensor]]


def record_graph(body: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """Capture what a function launches: how to launch it again, and the tensor that then holds what it returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = body()
    return graph.replay, out


def aside(body: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Run on a stream of its own, as what will be captured has to be warmed up."""
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        out = body()
    here.wait_stream(side)
    return out


class Graphed:
    """An update that is recorded once and then launched as a whole, on batches copied to where it was recorded."""

    def __init__(
        self,
        body: Body,
        record: Record = record_graph,
        warm_up: Callable[[Callable[[], torch.Tensor]], torch.Tensor] = aside,
    ) -> None:
        """
        Args:
            body: the update of a batch (images, labels); returns its loss. It may not wait for the device, and whatever
                changes from step to step has to be in tensors.
            record, warm_up: how it is captured and run before.
        """
        self._body = body
        self._record = record
        self._warm_up = warm_up
        self._eager_left = WARM_UP
        self._recorded: tuple[Callable[[], None], torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def __call__(self, x_NCHW: torch.Tensor, y_N: torch.Tensor) -> torch.Tensor:
        """The loss of the batch, whose update is made; overwritten by the next."""
        if self._eager_left:
            self._eager_left -= 1
            return self._warm_up(lambda: self._body(x_NCHW, y_N))
        if self._recorded is None:  # recording computes nothing
            x, y = x_NCHW.clone(), y_N.clone()
            self._recorded = (*self._record(lambda: self._body(x, y)), x, y)
        replay, loss, x, y = self._recorded
        x.copy_(x_NCHW)
        y.copy_(y_N)
        replay()
        return loss
