"""The command that adds what is missing."""

import shlex
from pathlib import Path

import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.analysis.commands import enough_seeds, missing_cells, run_command
from plainres.analysis.load import load_study
from plainres.config import compose


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    fake = FakeStudy(depths=(4, 6), seeds=(0, 1), steps=60, probes=False, missing=[("plain", 6, 1)])
    return load_study(fake.write(tmp_path_factory.mktemp("commands"))).runs


def test_what_is_missing(runs: pd.DataFrame) -> None:
    assert missing_cells(runs) == [(6, "plain", 1)]
    residual = runs[runs["connection"] == "residual"]
    assert missing_cells(residual) == [(d, "plain", s) for d in (4, 6) for s in (0, 1)]


def test_seeds_go_on_from_those_at_hand(runs: pd.DataFrame) -> None:
    assert enough_seeds(runs, 4) == [0, 1, 2, 3]
    assert enough_seeds(runs.assign(seed=runs["seed"] + 100), 3) == [100, 101, 102]
    assert "'seed=range(0,40)'" in run_command("x", runs, seeds=enough_seeds(runs, 40))


def test_a_connection_with_a_part_of_its_own(runs: pd.DataFrame) -> None:
    altered = runs.assign(
        **{"connection": runs["connection"].replace("residual", "residual(alpha=0.5)"), "connection.alpha": 0.5}
    )
    text = run_command("x", altered, connections=["residual(alpha=0.5)"], depths=[4], seeds=[0])
    assert text.startswith("python -m run depth=4 connection=residual seed=0 ") and "connection.alpha=0.5" in text


def test_groups_come_before_their_fields(tmp_path: Path, runs: pd.DataFrame) -> None:
    other = runs.assign(**{"model.name": "cnn", "model.width": 8, "data.name": "mnist1d", "trainer.device": "cuda"})
    text = run_command("x", other, depths=[4], seeds=[0], connections=["plain"])
    assert text.index("model=cnn") < text.index("model.width=8")
    conf = compose(text.split()[3:])
    assert (conf.model.name, conf.model.width, conf.data.name, conf.trainer.device) == ("cnn", 8, "mnist1d", "cuda")


def test_a_printed_command_makes_the_same_runs_again(runs: pd.DataFrame) -> None:
    """What is recorded and where files are is said; hashes, which are measured, are not."""
    settings = [{"kernel": 5, "kind": "wide"}] * len(runs)
    other = runs.assign(**{
        "data.name": "image_folder", "data.root": "/my pictures.zip", "data.content": "abc", "data.size": 32,
        "model.branch": "mine:Mine", "model.branch_settings": settings, "model.branch_code": "def",
        "trainer.eval_every": 20, "probe.own": [["mine:Probe"]] * len(runs),
    })  # fmt: skip
    conf = compose(shlex.split(run_command("x", other, depths=[4], seeds=[0], connections=["plain"]))[3:])
    assert (conf.data.root, conf.data.content, conf.data.size) == ("/my pictures.zip", None, 32)
    assert (conf.model.branch, conf.model.branch_settings) == ("mine:Mine", settings[0])
    assert (conf.model.branch_code, conf.trainer.eval_every, conf.probe.own) == (None, 20, ["mine:Probe"])
