"""Small settings, networks and runs for all tests. Everything is a fixture, so that no test imports another."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
import yaml

from plainres.data.cache import Stored
from plainres.data.dataset import Dataset, make_dataset
from plainres.flat import FlatParameters
from plainres.job import Outcome
from plainres.job import execute as execute_job
from plainres.models.families import build
from plainres.models.init import Draws
from plainres.models.networks import Network
from plainres.models.rules import rules_of, undecayed
from plainres.options import shortcut_of
from plainres.pair import make_spec
from plainres.schema import DataConf, RunConf
from plainres.store import RunFolder, Study

# Runs started by any test, also in processes of their own, track nothing: tests of tracking say what they want.
os.environ["WANDB_MODE"] = "disabled"

SMALL = {
    "depth": 6,
    "model.width": 6,
    "trainer.device": "cpu",
    "trainer.steps": 12,
    "trainer.batch": 128,
    "trainer.eval_every": 4,
    "trainer.batchstats_every": 4,
    "trainer.checkpoint_every": 1000,
    "schedule.warmup_steps": 2,
    "probe.every": 3,
}
CONF = Path(__file__).parents[1] / "conf"
# What a recipe needs of the model, as its page says.
NEEDS: dict[str, dict[str, Any]] = {
    "fixup": {"model.norm": "none"},
    "deepnorm": {"model.placement": "post_norm", "model.norm": "layer"},
    "layernorm_scaling": {"model.placement": "pre_norm", "model.norm": "layer"},
}


def read_preset(group: str, name: str) -> dict[str, Any]:
    """The leaves that a preset's file sets, by dotted name."""
    return {f"{group}.{k}": v for k, v in yaml.safe_load((CONF / group / f"{name}.yaml").read_text()).items()}


def with_values(conf: Any, values: dict[str, Any]) -> Any:
    """A config dataclass with some of its leaves, by dotted name, replaced."""
    hints = get_type_hints(type(conf))
    changes: dict[str, Any] = {}
    for item in fields(conf):
        now = getattr(conf, item.name)
        if is_dataclass(now):
            prefix = f"{item.name}."
            inner = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
            changes[item.name] = with_values(now, inner)
        elif item.name in values:
            kind, value = hints[item.name], values[item.name]
            convert = isinstance(kind, type) and (isinstance(value, str) or kind is float)
            changes[item.name] = kind(value) if convert else value
            if item.name == "shortcut":  # one of ours, or a user's class
                changes[item.name] = shortcut_of(value)
    return replace(conf, **changes)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_process_wide_leaks() -> Iterator[None]:
    yield
    if torch.are_deterministic_algorithms_enabled():  # a run sets it for its process
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def make_conf() -> Callable[..., RunConf]:
    """make_conf("residual", {"trainer.steps": 5}): small settings with what the test is about."""

    def make(connection: str = "plain", values: dict[str, Any] | None = None) -> RunConf:
        conf: RunConf = with_values(RunConf(), SMALL | read_preset("connection", connection) | (values or {}))
        return conf

    return make


@pytest.fixture(scope="session")
def make_preset() -> Callable[..., RunConf]:
    """make_preset("fixup", "cnn", {"depth": 4}): a connection and a model as their files say, small, and valid.

    A recipe brings what it needs of the model; zero_init's last weight stands in where no norm ends the branch.
    """

    def make(connection: str, model: str = "mlp", values: dict[str, Any] | None = None) -> RunConf:
        tokens = model in ("vit", "transformer")
        family = read_preset("model", model) | {"model.width": 4 if tokens else 6, "model.heads": 2}
        family |= {"model.mlp_ratio": 1.5} if tokens else {}
        small = SMALL | {"depth": {"vit": 2, "transformer": 2, "cifar_resnet": 8, "imagenet_resnet": 18}.get(model, 6)}
        arm = read_preset("connection", connection)
        if tokens and connection == "zero_init":
            arm["connection.zero_init"] = "last_weight"
        if tokens and connection == "rezero":
            arm["connection.shared_scale"] = True
        conf: RunConf = with_values(RunConf(), small | family | NEEDS.get(connection, {}) | arm | (values or {}))
        return conf

    return make


@pytest.fixture(scope="session")
def set_values() -> Callable[..., RunConf]:
    """set_values({"optimizer.lr": 1.0}): the schema's defaults but for these."""
    return lambda values: with_values(RunConf(), values)


@pytest.fixture(scope="session")
def tiny_data() -> Dataset:
    """50 and 20 random examples of 1x4x4 in 3 classes."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(70, 1, 4, 4, generator=draw), torch.randint(0, 3, (70,), generator=draw)
    return make_dataset(x[:50], y[:50], x[50:], y[50:])


@pytest.fixture(scope="session")
def make_network() -> Callable[..., Network]:
    """A network with its initial draws on the CPU, in training mode."""

    def make(conf: RunConf, input_shape: tuple[int, ...] = (1, 4, 4), num_classes: int = 3) -> Network:
        network = build(conf.model, conf.connection, conf.depth, input_shape, num_classes)
        Draws(network, conf.model, rules_of(conf), conf.seed).materialise("cpu")
        return network.train()

    return make


@pytest.fixture(scope="session")
def make_flat() -> Callable[[Network, RunConf], FlatParameters]:
    def make(network: Network, conf: RunConf) -> FlatParameters:
        return FlatParameters(network, conf.optimizer.decay, undecayed(network), rules_of(conf).lr_factor)

    return make


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path, "tests")


@pytest.fixture
def execute(study: Study) -> Callable[..., tuple[Outcome, RunFolder]]:
    """execute(conf): the run's outcome and folder. ``stop_at``: the first step at which it is asked to stop."""

    def run(conf: RunConf, stop_at: int | None = None, into: Study = study) -> tuple[Outcome, RunFolder]:
        spec = make_spec(conf, "cpu")
        asked = -1

        def should_stop() -> bool:
            nonlocal asked
            asked += 1
            return stop_at is not None and asked >= stop_at

        return execute_job(spec, into, should_stop), into.run_folder(spec.name)

    return run


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """own_module("mine", text): mine.py in a folder of its own, importable, and forgotten after the test."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    written: list[str] = []

    def write(name: str, text: str) -> Path:
        written.append(name)
        path = folder / f"{name}.py"
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def trained_study(tmp_path_factory: pytest.TempPathFactory, make_conf: Callable[..., RunConf]) -> Path:
    """A study that was really trained: depths 4 and 6, plain and residual, one seed. Copy it; change a copy."""
    study = Study.create(tmp_path_factory.mktemp("trained"), "depth")
    for connection in ("plain", "residual"):
        for depth in (4, 6):
            execute_job(make_spec(make_conf(connection, {"depth": depth}), "cpu"), study, lambda: False)
    return study.path


@pytest.fixture
def pool_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps train in the test's process: starting workers takes longer than tiny runs. The bits are the same."""

    @contextmanager
    def here(*settings: Any) -> Iterator[Callable[..., list[Outcome]]]:
        yield lambda sweep: [execute_job(spec, sweep.study, lambda: False) for spec in sweep.specs]

    monkeypatch.setattr("plainres.launch.pool.worker_pool", here)


SIDES = {"cifar10": (3, 32), "cifar100": (3, 32), "svhn": (3, 32), "imagenet": (3, 256), "image_folder": (3, 32)}


@pytest.fixture
def stand_in_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random images of the right shape for data sets that need files; the real readers have tests of their own."""

    def read(data: DataConf) -> Stored:
        channels, side = SIDES.get(str(data.name), (1, 28))
        count, classes = (200, 10) if side < 200 else (300, 5)  # more than a batch
        draw = np.random.default_rng(0)
        x = draw.integers(0, 256, (count, channels, side, side), np.uint8)
        y = np.arange(count) % classes
        names = [str(i) for i in range(classes)]
        return Stored(x, y, x[:10], y[:10], names, "stand-in", True, [127.5] * channels, [73.9] * channels)

    monkeypatch.setattr("plainres.data.images.load_images", read)
    monkeypatch.setattr("plainres.data.archives.load_archives", read)
    monkeypatch.setattr("plainres.data.dataset._last", None)
