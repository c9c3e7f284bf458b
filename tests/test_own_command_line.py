"""Users' own configuration folders and modules, from the command line in their own folder."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

import run
from plainres import cli
from plainres.analysis.settings import add_labels
from plainres.launch import pool
from plainres.launch.sweep import Sweep
from plainres.pair import identity_fields
from plainres.schema import ModelConf, RunConf
from plainres.store import Status, Study

EXAMPLE = (Path(__file__).parents[1] / "experiments" / "own-branch-glu" / "my_branches.py").read_text()
SMALL = ["model.width=6", "trainer.steps=12", "schedule.warmup_steps=2", "trainer.device=cpu", "depth=4"]
CONNECTION = """
name: mine
shortcut: my_branches:Leaky
shortcut_settings: {start: 0.8}
"""
SWEEP = """
# @package _global_
defaults: [depth]
study: mine
hydra:
  sweeper:
    params: {depth: "4,6", seed: "0", connection: "plain,residual,mine"}
"""


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """The user stands in a folder with a module and a folder of settings."""
    home = tmp_path / "home"
    for group, text in (("connection", CONNECTION), ("sweep", SWEEP)):
        (home / "confs" / group).mkdir(parents=True)
        (home / "confs" / group / "mine.yaml").write_text(text)
    (home / "my_branches.py").write_text(EXAMPLE)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])  # as of a console script: not the current folder
    monkeypatch.delitem(sys.modules, "my_branches", raising=False)
    yield home
    sys.modules.pop("my_branches", None)


@pytest.fixture
def call(monkeypatch):
    """call("depth=4"): what was planned by a sweep of these words, or trained by a single run."""
    planned = []

    def plan_only(sweep, launch):
        planned.extend(spec.conf for spec in sweep.specs)
        return []

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["run", *words])
        run.main()
        return planned

    monkeypatch.setattr(pool, "worker_pool", lambda *settings: nullcontext())
    monkeypatch.setattr(Sweep, "run", plan_only)
    return call


def test_a_users_sweep_inherits_a_shipped_one(at_home, call):
    confs = call("--config-dir", "confs", "+sweep=mine", "model.width=6")
    assert sorted({(c.depth, c.connection.name, c.seed) for c in confs}) == sorted(
        (depth, name, 0) for depth in (4, 6) for name in ("plain", "residual", "mine")
    )
    mine = next(c for c in confs if c.connection.name == "mine")
    assert mine.connection.shortcut == "my_branches:Leaky" and mine.connection.shortcut_settings == {"start": 0.8}
    assert mine.study == "mine" and (at_home / "results" / "mine").is_dir()


def test_a_users_connection_trains_from_their_folder(at_home, call, capsys):
    branch = ["model.branch=my_branches:GatedLinear", "model.branch_settings.hidden=5"]
    call("--config-dir", "confs", "connection=mine", *branch, "probe.own=[my_branches:TrunkMean]", *SMALL)
    assert "plainres: complete" in capsys.readouterr().out
    (folder,) = Study.open(at_home / "results" / "single").runs()
    record = folder.read()
    assert folder.status() is Status.COMPLETE and record["config"]["model"]["branch_settings"] == {"hidden": 5}
    table = pd.read_parquet(folder.path / "layers.parquet")
    assert {"trunk_mean", "branch_ratio"} <= set(table.metric)
    assert "blocks.0.branch.inner.gate.weight" in set(table.layer_name)


def test_describe_shows_the_users_branch(at_home, capsys):
    branch = ["model.branch=my_branches:DepthwiseConv", "model.branch_settings.kernel=5"]
    cli.main(["describe", "model=cnn", "connection=residual", "model.placement=none", *branch, *SMALL])
    shown = " ".join(capsys.readouterr().out.split())
    assert "F: DepthwiseConv (conv5x5 6→6, batchnorm2d, relu," in shown and "y = x + F(x)" in shown


def test_a_sweep_over_branches(at_home, call):
    confs = call("-m", "model.branch=my_branches:GatedLinear,null", "connection=plain,residual", *SMALL)
    assert sorted((c.model.branch or "", c.connection.name) for c in confs) == [
        ("", "plain"),
        ("", "residual"),
        ("my_branches:GatedLinear", "plain"),
        ("my_branches:GatedLinear", "residual"),
    ]


def test_a_report_calls_what_is_not_set_null():
    rows = [identity_fields(RunConf(model=ModelConf(branch=b))) for b in (None, "my_branches:GatedLinear")]
    table = pd.DataFrame(rows).astype({"model.branch": "str"})  # as text columns are: None is NaN there
    assert list(add_labels(table).setting) == ["branch=null", "branch=my_branches:GatedLinear"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--config-dir", "nowhere", "depth=4"], "nowhere"),
        (["--config-dir", "confs", "connection=mien"], "connection=mien: must be one of"),
        (["model.branch=my_branches:Gated"], "my_branches has no Gated; it has GatedLinear, DepthwiseConv, Leaky"),
        (["model.branch=my_branches:GatedLinear", "model.branch_settings.hiden=3"], "GatedLinear(64, hiden=3) failed"),
    ],
)
def test_a_mistake_is_one_line(at_home, call, capsys, words, line):
    with pytest.raises(SystemExit) as stopped:
        call(*words)
    shown = capsys.readouterr().err
    assert stopped.value.code == 1 and shown.count("\n") == 1 and line in shown and "Traceback" not in shown
    assert not (at_home / "results").exists()
