"""One run on several devices: ``torchrun --nproc-per-node=2 -m run ...``.

Rank 0 has the run's folder, as any run has. The others train the same run with it in a folder that is thrown away: they
begin where its checkpoint is, and every decision to stop is taken together.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from tempfile import TemporaryDirectory

import torch
from torch import distributed

from plainres.errors import UserError, require
from plainres.job import Outcome, execute
from plainres.launch.prepare import prepare, resolve_device
from plainres.launch.stopping import StopRequest, stop_on_signals
from plainres.options import Compile, Drop, Shortcut, TrackerName
from plainres.pair import RunSpec
from plainres.ranks import LostRank, Ranks, ranks
from plainres.schema import RunConf, TrackerConf
from plainres.store import RunFolder, Status, Study, write_atomic

SILENCE = timedelta(minutes=10)  # longer than one rank may take alone: a checkpoint, the tables of a long run


def num_processes() -> int:
    """How many processes torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank_here() -> int:
    """Of this process among them."""
    return int(os.environ.get("RANK", "0"))


def check_shared(conf: RunConf) -> None:
    """
    Raises:
        UserError: a batch that cannot be shared, or a part that would see a share of it and do something else.
    """
    devices, batch = conf.trainer.devices, conf.trainer.batch
    require(batch % devices == 0, "trainer.batch", batch, f"a multiple of trainer.devices={devices}")
    alone = "one device trains it"
    require(conf.trainer.accumulate == 1, "trainer.accumulate", conf.trainer.accumulate, "1 on several devices", alone)
    off = conf.trainer.compile is Compile.off
    require(off, "trainer.compile", conf.trainer.compile, "off on several devices", alone)
    graph = conf.trainer.cuda_graph
    require(not graph, "trainer.cuda_graph", graph, "false on several devices", alone)
    replicas = conf.trainer.replicas
    require(replicas == 1, "trainer.replicas", replicas, "1 on several devices", alone)
    connection = conf.connection
    require(connection.drop is Drop.none, "connection.drop", connection.drop, "none on several devices", alone)
    ours = isinstance(connection.shortcut, Shortcut) and connection.shortcut is not Shortcut.dropout
    require(ours, "connection.shortcut", connection.shortcut, "neither dropout nor a class on several devices", alone)
    require(conf.model.branch is None, "model.branch", conf.model.branch, "null on several devices", alone)
    depth = conf.start.depth
    require(depth is None, "start.depth", depth, "null on several devices", "train the source on one, and this on one")


@contextmanager
def gathered() -> Iterator[None]:
    """Within, the processes of the run are connected.

    Raises:
        UserError: they do not find each other.
    """
    kind = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        distributed.init_process_group(kind, timeout=SILENCE)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"torchrun: the {num_processes()} processes do not find each other ({error})") from error
    try:
        yield
    finally:
        distributed.destroy_process_group()


def own_device(wanted: str) -> str:
    """This process's device, from ``trainer.device``."""
    device = resolve_device(wanted)
    return f"cuda:{os.environ['LOCAL_RANK']}" if device.startswith("cuda") else device


class Leader:
    """Asked by rank 0's training at every step whether to stop; the first time it lets the others begin."""

    def __init__(self, asked: StopRequest, folder: RunFolder, here: Ranks) -> None:
        self._asked = asked
        self._folder = folder
        self._here = here
        self._told = False

    def __call__(self) -> bool:
        if not self._told:
            self._tell(self._folder.checkpoint.read_bytes() if self._folder.checkpoint.exists() else b"")
        return self._here.any(self._asked())

    def end(self) -> None:
        """Send the others home if there was nothing to train."""
        if not self._told:
            with suppress(RuntimeError):  # they are gone
                self._tell(None)

    def _tell(self, checkpoint: bytes | None) -> None:
        self._told = True
        distributed.broadcast_object_list([checkpoint], src=0, device=torch.device("cpu"))


def follow_leader(conf: RunConf) -> Outcome:
    """What every rank but 0 does.

    Raises:
        UserError: the run cannot be run; rank 0 says so as well.
        LostRank: rank 0 is gone before it began.
    """
    here = ranks()
    assert here is not None
    with TemporaryDirectory(prefix="plainres-rank-") as place, stop_on_signals() as asked:
        own = replace(conf, results_dir=place, tracker=TrackerConf(name=TrackerName.none))
        study, (spec,) = prepare([own], own_device)
        told: list[bytes | None] = [None]
        try:
            distributed.broadcast_object_list(told, src=0, device=torch.device("cpu"))
        except RuntimeError as error:
            raise LostRank(f"rank 0 died before it began ({error})") from error
        if told[0] is None:
            return Outcome(spec.name, Status.PLANNED, True, "", 0.0)
        if told[0]:
            _without_rows(study, spec, told[0])
        return execute(spec, study, _agreed(here, asked))


def _agreed(here: Ranks, asked: StopRequest) -> Callable[[], bool]:
    return lambda: here.any(asked())


def _without_rows(study: Study, spec: RunSpec, checkpoint: bytes) -> None:
    """Rank 0's checkpoint, of which this rank has no rows and needs none."""
    content = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)
    content["position"]["lengths"] = None
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomic(study.run_folder(spec.name).checkpoint, buffer.getvalue())
