"""Warnings about running jobs: their numbers, when they are there, and what looking costs."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest

from plainres.job import Outcome, execute
from plainres.launch import watch
from plainres.launch.prepare import prepare
from plainres.launch.watch import WATCHED, Watch
from plainres.pair import RunSpec
from plainres.schema import RunConf
from plainres.store import RunFolder, Study

Make = Callable[..., RunConf]
LN_10 = math.log(10)


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)


@pytest.fixture
def job(tiny: Make) -> tuple[Watch, RunSpec, RunFolder]:
    """A planned job of 100 steps on data of 10 classes, and the watch on it."""
    study, (spec,) = prepare([tiny(steps=100)])
    folder = study.run_folder(spec.name)
    folder.update(data={"num_classes": 10})
    return Watch(study, [spec]), spec, folder


def looked(job: tuple[Watch, RunSpec, RunFolder], step: int, loss: float | None) -> list[str]:
    now = {"step": step, "steps": 100, "loss": loss, "train_error": 0.9}
    return [w.line for w in job[0].look({job[1].name: now})]


def write(folder: RunFolder, step: int, metric: str, values: list[float | None], scope: str = "layer") -> None:
    row = {"step": step, "values": {scope: {metric: values}}, "reasons": {}}
    torn = b'{"step": 99, "values": {"la'
    (folder.path / "layers.jsonl").write_bytes(b'{"step": 0, "values": {}}\n' + orjson.dumps(row) + b"\n" + torn)


def test_chance_level_for_a_quarter_of_the_budget(job: tuple[Watch, RunSpec, RunFolder]) -> None:
    assert looked(job, 10, 1.0) == looked(job, 20, 2.29) == looked(job, 44, 2.31) == []
    (line,) = looked(job, 45, 2.2954)
    assert line == "mlp-plain-d004-s0: loss 2.30 is at chance level (ln 10 = 2.303) since step 20"
    assert looked(job, 60, 0.969 * LN_10) == [], "below 97 % of ln C"
    assert looked(job, 61, 18.7) == [], "the count begins anew"
    assert looked(job, 90, 18.7) == [
        "mlp-plain-d004-s0: loss 18.70 is above chance level (ln 10 = 2.303) since step 61"
    ]


def test_a_warm_up_at_chance_level_does_not_count(tiny: Make) -> None:
    conf = tiny(steps=100)
    study, (spec,) = prepare([replace(conf, schedule=replace(conf.schedule, warmup_steps=30))])
    study.run_folder(spec.name).update(data={"num_classes": 10})
    job = Watch(study, [spec]), spec, study.run_folder(spec.name)
    assert all(looked(job, step, 2.31) == [] for step in (0, 15, 29, 30, 54))
    (line,) = looked(job, 55, 2.31)
    assert line.endswith("since step 30")


def test_a_loss_that_is_not_finite(job: tuple[Watch, RunSpec, RunFolder]) -> None:
    assert looked(job, 0, None) == [], "not known yet"
    assert looked(job, 5, 2.5) == []
    assert looked(job, 6, None) == ["mlp-plain-d004-s0: loss is not finite at step 6"]


@pytest.mark.parametrize(
    ("metric", "scope", "past", "fine", "says"),
    [
        ("activation_grad_norm_input", "block", [0.04, 9.0, 1.0, 1.0], [0.06, 9.0, 1.0, 1.0], "vanishing: "),
        ("activation_grad_norm_input", "block", [21.0, 9.0, 1.0, 1.0], [19.0, 9.0, 1.0, 1.0], "exploding: "),
        ("update_ratio", "layer", [2.9e-5, 2.9e-5, 1.0], [3.1e-5, 3.1e-5, 1e-9], "update small: "),
        ("update_ratio", "layer", [0.031, 0.031, None], [0.029, 0.029, None], "update large: "),
        ("dead_fraction", "layer", [0.0, 0.91, None], [0.0, 0.89, None], "dead: "),
    ],
)
def test_rules_on_layers_read_the_last_whole_row(
    job: tuple[Watch, RunSpec, RunFolder], metric: str, scope: str, past: list[Any], fine: list[Any], says: str
) -> None:
    folder = job[2]
    write(folder, 40, metric, past, scope)
    (line,) = looked(job, 41, 2.0)
    assert line.startswith(f"mlp-plain-d004-s0: {says}") and " at step 40 (limit: " in line
    assert looked(job, 41, 0.1) == [], "it has learned its data"
    write(folder, 9, metric, past, scope)
    assert looked(job, 41, 2.0) == [], "the first tenth is no long time"
    write(folder, 90, metric, past, scope)
    assert looked(job, 91, 2.0) == [], "the learning rate is near 0"
    write(folder, 40, metric, fine, scope)
    assert looked(job, 41, 2.0) == []


def test_every_watched_rule_is_tested_here() -> None:
    assert set(WATCHED) == {"vanishing", "exploding", "update_small", "update_large", "dead"}


def test_before_a_run_has_written_anything_there_is_nothing_to_say(tiny: Make) -> None:
    study, (spec,) = prepare([tiny(steps=100)])
    mine = Watch(study, [spec])
    assert mine.look({}) == mine.look({spec.name: {}}) == []
    now = {"step": 90, "steps": 100, "loss": 9.0}
    assert mine.look({spec.name: now}) == [], "the number of classes is not known"
    study.run_folder(spec.name).update(data={"num_classes": 10})
    assert mine.look({spec.name: now}) == [], "there are no rows of layers (probe=off)"


def test_rows_are_read_every_few_seconds_only(
    job: tuple[Watch, RunSpec, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(watch, "read_last_line", lambda path: reads.append(path))
    for step in range(50):
        looked(job, step, 2.0)
    assert len(reads) == 1


def test_a_real_run_is_warned_of_with_the_number_of_its_table(
    make_conf: Callable[..., RunConf], study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at from within, while its files are being written; read again from its table at the end."""
    monkeypatch.setattr("plainres.progress.PROGRESS_SECONDS", 0.0)
    conf = make_conf("residual", {"optimizer.lr": 20.0, "trainer.checkpoint_every": 2})
    _, (spec,) = prepare([replace(conf, study=study.name, results_dir=str(study.path.parent))])
    folder, mine, seen = study.run_folder(spec.name), Watch(study, [spec]), {}

    def look() -> bool:
        seen.update({w.rule: w.line for w in mine.look({spec.name: folder.read_progress()})})
        return False

    outcome: Outcome = execute(spec, study, look)
    layers = pd.read_parquet(folder.path / "layers.parquet")
    rows = layers[(layers["scope"] == "layer") & (layers["metric"] == "update_ratio")]
    line, step = seen["update_large"], int(seen["update_large"].split("at step ")[1].split()[0])
    assert f"{rows.loc[rows['step'] == step, 'value'].median():#.3g} at step" in line and not outcome.message
