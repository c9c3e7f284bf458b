"""The short way of composing many jobs gives what Hydra's own way gives."""

import pytest
from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode

from plainres.config import conf_dir, register, to_conf
from plainres.errors import UserError
from plainres.grid import compose_jobs

JOBS = [
    ["depth=10", "connection=plain", "seed=0"],
    ["depth=20", "connection=residual", "seed=1"],
    ["model=cnn", "depth=20", "model.width=12", "optimizer=adamw", "optimizer.lr=1e-2"],
    ["model.width=12", "model=cnn"],
    ["schedule=step", "schedule.milestones=[3,5]", "trainer.device=cpu"],
    ["optimizer.clip_norm=1", "optimizer.decay=matrices", "study=a-b"],
    ["optimizer.clip_norm=null", "data.name=digits", "fail_fast=true"],
]


@pytest.fixture
def context():
    register()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        config = hydra.compose_config("config", ["+sweep=smoke"], RunMode.MULTIRUN)
        yield HydraContext(hydra.config_loader, Callbacks()), config


def test_equals_hydras_own_composition(context):
    loader, config = context[0].config_loader, context[1]
    slow = [to_conf(loader.load_sweep_config(config, job)) for job in JOBS]
    assert compose_jobs(*context, JOBS) == slow


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (["depth=x"], ["depth=x", "Integer"]),
        (["optimizer.decay=most"], ["optimizer.decay=most", "all, matrices"]),
        (["model.widht=3"], ["model.widht", "did you mean model.width"]),
        (["seed=[1,2]"], ["seed=[1,2]"]),
    ],
)
def test_a_wrong_value_is_named(context, job, words):
    with pytest.raises(UserError) as error:
        compose_jobs(*context, [["depth=4"], job])
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)
