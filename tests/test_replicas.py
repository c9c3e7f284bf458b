"""Runs that train side by side as one batched network: each is the run that it would be by itself, to rounding."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from plainres import checkpoint
from plainres.data.augment import Augmentation
from plainres.errors import UserError
from plainres.job import Outcome
from plainres.launch.groups import execute_group, grouped
from plainres.models.stacked import Stack
from plainres.pair import make_spec
from plainres.replicas import Group
from plainres.rows import read_table
from plainres.schema import RunConf
from plainres.store import RunFolder, Status, Study
from plainres.tracking.client import Helper
from plainres.validation import validate

Make = Callable[..., RunConf]
SEEDS = (0, 1, 2)


def seeds(make_conf: Make, connection: str = "residual", count: int = 3, **values: Any) -> list[RunConf]:
    """Runs of one cell, with steps enough for two epochs (11 batches each), of which few are probed."""
    own = {"trainer.replicas": 3, "trainer.steps": 14, "probe.every": 7, "trainer.eval_every": 7} | values
    return [make_conf(connection, {"seed": seed} | own) for seed in range(count)]


@pytest.fixture
def train(study: Study) -> Callable[..., tuple[list[Outcome], list[RunFolder]]]:
    """train(confs): outcomes and folders of runs that train together, in a study of its own where one is named."""

    def run(confs: Iterable[RunConf], into: str = "", stop: Callable[[], bool] = lambda: False) -> Any:
        place = Study.create(study.path.parent, into) if into else study
        specs = [make_spec(conf, "cpu") for conf in confs]
        return execute_group(specs, place, stop), [place.run_folder(spec.name) for spec in specs]

    return run


def weights(folder: RunFolder) -> torch.Tensor:
    """Parameters and norm statistics of a run's checkpoint, in one vector."""
    content = checkpoint.read(folder.checkpoint)
    assert content is not None
    return torch.cat([content["parameters"], *(b.flatten() for b in content["buffers"].values())])


def rows(folder: RunFolder) -> tuple[list[dict[str, Any]], ...]:
    layout = folder.read()["layout"]
    return tuple(read_table(folder, name, layout).to_pylist() for name in ("steps", "layers"))


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    assert torch.equal(weights(one), weights(other)) and rows(one) == rows(other)


@pytest.mark.parametrize(
    ("connection", "values"),
    [
        ("plain", {}),
        ("residual", {"optimizer.name": "adamw", "optimizer.eps": 0.01, "optimizer.clip_norm": 0.5}),
        ("highway", {"model.norm": "layer"}),
        ("rezero", {"model.norm": "none"}),
    ],
    ids=["plain", "residual", "highway", "rezero"],
)
def test_replicas_are_the_runs_that_they_would_be_alone(
    make_conf: Make, train: Callable[..., Any], connection: str, values: dict[str, Any]
) -> None:
    outcomes, together = train(seeds(make_conf, connection, **values))
    assert [o.status for o in outcomes] == [Status.COMPLETE] * 3
    for conf, folder in zip(seeds(make_conf, connection, **values | {"trainer.replicas": 1}), together, strict=True):
        _, (alone,) = train([conf])
        assert alone.name != folder.name
        torch.testing.assert_close(weights(folder), weights(alone), rtol=1e-3, atol=1e-5)
        assert not torch.equal(weights(folder), weights(alone)), "the test has compared a run with itself"
        for mine, other in zip(rows(folder), rows(alone), strict=True):
            assert [{**row, "value": 0} for row in mine] == [{**row, "value": 0} for row in other]
            values_of = [torch.tensor([r["value"] for r in t if r["value"] is not None]) for t in (mine, other)]
            torch.testing.assert_close(*values_of, rtol=2e-2, atol=1e-3)
        assert folder.checkpoint.stat().st_size < 1.1 * alone.checkpoint.stat().st_size


def test_a_replica_says_what_it_is(make_conf: Make, train: Callable[..., Any]) -> None:
    _, folders = train(seeds(make_conf, count=2))
    for seed, folder in enumerate(folders):
        record = folder.read()
        assert record["identity"]["trainer.replicas"] == 3 and record["identity"]["seed"] == seed
        assert record["environment"]["engine"] == "stacked replicas"
        assert record["audit"]["clean"]
        assert not folder.read_progress() and not folder.is_locked()
    (alone,) = seeds(make_conf, count=1, **{"trainer.replicas": 1})
    assert make_spec(alone, "cpu").pair_id != folders[0].read()["pair_id"]
    (plain,) = seeds(make_conf, "plain", count=1)
    assert make_spec(plain, "cpu").pair_id == folders[0].read()["pair_id"]


def test_company_changes_no_bit(make_conf: Make, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    confs = seeds(make_conf)
    _, three = train(confs)
    _, two = train(confs[1:], "two")
    for one, other in zip(three[1:], two, strict=True):
        assert_same_run(one, other)
    _, (alone,) = train(confs[:1], "alone")
    assert_same_run(three[0], alone)
    monkeypatch.setattr("plainres.launch.groups.make_group", lambda spec: Group(4))  # with stand-ins, as on a GPU
    _, stood_in = train(confs[:2], "stood in")
    for one, other in zip(three, stood_in, strict=False):
        assert_same_run(one, other)


def test_one_that_diverges_leaves_the_others_alone(
    make_conf: Make, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sound = train(seeds(make_conf))
    original = Augmentation.__call__

    def ill(self: Augmentation, x: torch.Tensor, index: torch.Tensor, epoch: int) -> torch.Tensor:
        x = original(self, x, index, epoch)
        return x * torch.nan if self.seed == 1 and epoch == 1 else x

    monkeypatch.setattr(Augmentation, "__call__", ill)
    outcomes, folders = train(seeds(make_conf), "ill")
    assert [o.status for o in outcomes] == [Status.COMPLETE, Status.DIVERGED, Status.COMPLETE]
    assert folders[1].read()["diverged"]["step"] == 11
    assert_same_run(folders[0], sound[0])
    assert_same_run(folders[2], sound[2])


def test_interrupted_replicas_go_on_to_the_same_bits(make_conf: Make, train: Callable[..., Any]) -> None:
    _, undisturbed = train(seeds(make_conf))
    asked = [0]

    def stop() -> bool:  # in the middle of a round: some are a step further than others
        asked[0] += 1
        return asked[0] > 20

    outcomes, stopped = train(seeds(make_conf), "disturbed", stop)
    assert [o.status for o in outcomes] == [Status.INTERRUPTED] * 3
    contents = [checkpoint.read(folder.checkpoint) for folder in stopped]
    assert len({content["position"]["step"] for content in contents if content}) == 2
    outcomes, folders = train(seeds(make_conf), "disturbed")
    assert [o.status for o in outcomes] == [Status.COMPLETE] * 3
    for one, other in zip(folders, undisturbed, strict=True):
        assert one.read()["attempts"] == 2
        assert_same_run(one, other)


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError("no kernel"), Status.FAILED), (torch.OutOfMemoryError("full"), Status.OOM)],
    ids=["failed", "oom"],
)
def test_a_pass_that_fails_ends_all_that_were_part_of_it(
    make_conf: Make, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception, status: Status
) -> None:
    def fail(*batch: Any) -> None:
        raise error

    monkeypatch.setattr(Stack, "__call__", fail)
    before = set(threading.enumerate())
    outcomes, _ = train(seeds(make_conf))
    assert [o.status for o in outcomes] == [status] * 3
    assert set(threading.enumerate()) <= before


def test_one_that_cannot_train_is_not_waited_for(make_conf: Make, train: Callable[..., Any], study: Study) -> None:
    confs = seeds(make_conf)
    held = study.run_folder(make_spec(confs[0], "cpu").name)
    assert held.acquire()
    train(confs[1:2])
    outcomes, _ = train(confs)
    held.release()
    assert [(o.status, o.skipped) for o in outcomes] == [
        (Status.RUNNING, True), (Status.COMPLETE, True), (Status.COMPLETE, False),
    ]  # fmt: skip


def test_sinks_hear_of_one_replica_after_the_other(
    make_conf: Make, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []

    class Listener(Helper):
        def __init__(self, name: str) -> None: ...

        def send(self, message: dict[str, Any]) -> None:
            heard.append(message)

    monkeypatch.setattr("plainres.tracking.client.Helper", Listener)
    monkeypatch.setattr("plainres.tracking.client._helpers", {})
    _, folders = train(seeds(make_conf, **{"tracker.own": ["some:Sink"]}))
    assert [set(message) for message in heard] == [{"open"}, {"covered"}, {"end"}] * 3
    assert sorted(m["open"] for m in heard if "open" in m) == sorted(str(f.path) for f in folders)


def test_groups_are_seeds_of_one_cell(make_conf: Make) -> None:
    confs = [c for connection in ("plain", "residual") for c in seeds(make_conf, connection, count=5)]
    confs += seeds(make_conf, count=2, **{"trainer.replicas": 1})
    specs = [make_spec(conf, "cpu") for conf in confs]
    found = grouped(specs)
    assert [[s.conf.seed for s in group] for group in found] == [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4], [0], [1]]
    assert {s.run_id for group in found for s in group} == {s.run_id for s in specs}
    assert all(len({(s.conf.connection.name, s.conf.trainer.replicas) for s in group}) == 1 for group in found)


REFUSED = [
    ("residual", {"trainer.replicas": 0}, "trainer.replicas=0: must be a whole number of at least 1"),
    ("residual", {"model.name": "cnn"}, "model=cnn: must be mlp with trainer.replicas=3"),
    ("residual", {"model.branch": "mine:Branch"}, "model.branch=mine:Branch: must be null"),
    ("residual", {"connection.shortcut": "mine:Path"}, "connection.shortcut=mine:Path: must be neither dropout nor"),
    ("dropout_shortcut", {}, "connection.shortcut=dropout: must be neither dropout nor"),
    ("stochastic_depth", {}, "connection.drop=linear: must be none"),
    ("scaled", {"connection.alpha_warmup": 5}, "connection.alpha_warmup=5: must be 0"),
    ("residual", {"start.depth": 4}, "start.depth=4: must be null"),
    ("residual", {"trainer.precision": "bf16"}, "trainer.precision=bf16: must be float32"),
    ("residual", {"trainer.accumulate": 2}, "trainer.accumulate=2: must be 1"),
    ("residual", {"trainer.checkpoint_blocks": 1}, "trainer.checkpoint_blocks=1: must be 0"),
    ("residual", {"trainer.compile": "blocks"}, "trainer.compile=blocks: must be off"),
    ("residual", {"trainer.cuda_graph": True}, "trainer.cuda_graph=True: must be false"),
    ("residual", {"trainer.threads": 2}, "trainer.threads=2: must be 1"),
    ("residual", {"trainer.devices": 2}, "trainer.devices=2: must be 1"),
]


@pytest.mark.parametrize(("connection", "values", "line"), REFUSED, ids=[line.split(":")[0] for *_, line in REFUSED])
def test_what_cannot_be_stacked_is_refused(
    make_preset: Make, connection: str, values: dict[str, Any], line: str
) -> None:
    conf = make_preset(connection, values={"trainer.replicas": 3} | values)
    with pytest.raises(UserError) as refused:
        validate(conf)
    assert line in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("connection", ["plain", "residual", "fixup", "deepnorm", "layernorm_scaling", "concat"])
def test_what_can_be_stacked_is_not(make_preset: Make, connection: str) -> None:
    validate(make_preset(connection, values={"trainer.replicas": 3}))
