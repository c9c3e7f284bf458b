"""Curves, profiles and maps against plain computations on small tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.analysis.curves import curves
from plainres.analysis.inside import Inside
from plainres.analysis.load import load_study
from plainres.analysis.profiles import map_steps, maps, moment_steps, profiles, ranked
from plainres.rows import read_table
from plainres.store import RunFolder, Status


def layer_rows(values: dict[str, dict[int, list[float | None]]]) -> pd.DataFrame:
    """run_id -> step -> value per layer; runs are seeds of one plain net of depth 3."""
    rows = [
        (run, step, i, f"l{i}", value)
        for run, steps in values.items()
        for step, layers in steps.items()
        for i, value in enumerate(layers)
    ]
    table = pd.DataFrame(rows, columns=["run_id", "step", "layer_index", "layer_name", "value"])
    return table.assign(connection="plain", depth=3).astype({"value": float})


def test_moments() -> None:
    assert moment_steps([0, 1, 2, 4, 32, 100, 599], 600, 0) == {"start": 0, "early": 32, "end": 599}
    assert moment_steps([0, 1, 2, 4, 32, 100, 599], 600, 1) == {"start": 1, "early": 32, "end": 599}
    assert moment_steps([0, 1], 600, 0) == {"start": 0, "end": 1}
    assert moment_steps([0], 600, 0) == {"start": 0}
    assert moment_steps([], 600, 0) == {}


def test_map_steps_keep_the_ends() -> None:
    steps = list(range(2000))
    thin = map_steps(steps)
    assert len(thin) <= 120 and thin[0] == 0 and thin[-1] == 1999 and thin[:5] == [0, 1, 2, 3, 4]


def test_geometric_mean_zero_and_null() -> None:
    table = layer_rows({"a": {0: [1.0, 0.0, None], 1: [1.0] * 3}, "b": {0: [4.0, 2.0, None], 1: [1.0] * 3}})
    found = profiles(table, {"a": [0, 1], "b": [0, 1]}, {"a": 2, "b": 2}, ())
    start = found[found["moment"] == "start"]
    assert list(start["layer_index"]) == [0, 1]  # a null is a gap
    assert start["value"].to_list() == pytest.approx([2.0, 2.0])
    assert list(start["n"]) == [2, 1] and list(start["n_zero"]) == [0, 1]
    assert (start["low"].iloc[0], start["high"].iloc[0]) == (pytest.approx(1.0), pytest.approx(4.0))


def test_all_zero_layer_has_no_mean() -> None:
    found = maps(layer_rows({"a": {0: [0.0, 1.0]}}))
    assert np.isnan(found["value"].iloc[0]) and found["n_zero"].iloc[0] == 1


def test_start_moves_when_a_run_has_nothing_at_step_0() -> None:
    ones: list[float | None] = [1.0, 1.0]
    table = layer_rows({"a": {0: [None, None], 1: ones, 5: ones}, "b": {0: ones, 1: ones, 5: ones}})
    found = profiles(table, {"a": [0, 1, 5], "b": [0, 1, 5]}, {"a": 6, "b": 6}, ())
    assert set(found.loc[found["moment"] == "start", "step"]) == {1}


def test_an_arm_without_the_metric_does_not_move_the_start() -> None:
    table = layer_rows({"a": {0: [None], 1: [None]}, "b": {0: [1.0], 1: [1.0]}})
    found = profiles(table, {"a": [0, 1], "b": [0, 1]}, {"a": 2, "b": 2}, ())
    assert set(found.loc[found["moment"] == "start", "step"]) == {0}


def test_stopped_runs_end_at_their_own_last_step() -> None:
    table = layer_rows({"a": {0: [1.0], 9: [1.0]}, "b": {0: [1.0], 4: [4.0]}})
    found = profiles(table, {"a": [0, 9], "b": [0, 4]}, {"a": 10, "b": 10}, {"b"})
    end = found[found["moment"] == "end"].iloc[0]
    assert (end["step"], end["n_stopped"], end["value"]) == (9, 1, pytest.approx(2.0))


def test_ranked_is_sorted_descending() -> None:
    table = layer_rows({"a": {0: [1.0, 1.0, 1.0], 9: [2.0, 8.0, 4.0]}})
    found = ranked(profiles(table, {"a": [0, 9]}, {"a": 10}, ()))
    assert list(found.sort_values("rank")["value"]) == pytest.approx([8.0, 4.0, 2.0])


def test_a_layer_that_is_exactly_zero_ranks_last() -> None:
    table = layer_rows({"a": {0: [1.0, 1.0, 1.0], 9: [2.0, 0.0, 4.0]}})
    found = ranked(profiles(table, {"a": [0, 9]}, {"a": 10}, ()))
    assert list(found.sort_values("rank")["layer_index"]) == [2, 0, 1]


def test_the_head_has_no_place_among_the_responses() -> None:
    table = layer_rows({"a": {0: [1.0, 1.0, 1.0], 9: [2.0, 8.0, 4.0]}}).replace({"layer_name": {"l1": "head.weight"}})
    assert list(ranked(profiles(table, {"a": [0, 9]}, {"a": 10}, ()))["layer_index"]) == [0, 2]


def test_curves_average_only_where_two_seeds_are(tmp_path: Path) -> None:
    status = {("plain", 4, 1): Status.DIVERGED, ("plain", 4, 2): Status.FAILED}
    study = FakeStudy(depths=(4,), seeds=(0, 1, 2), connections=("plain",), steps=60, status=status)
    loaded = load_study(study.write(tmp_path))
    table, problems = curves(loaded, loaded.runs)
    assert not problems
    train = table[table["metric"] == "train_error"]
    mean = train[train["series"] == "mean"]
    assert mean["step"].max() == 20 and set(mean["n"]) == {3}
    seeds = train[(train["series"] != "mean") & (train["step"] == 20)]
    assert mean.loc[mean["step"] == 20, "value"].iloc[0] == pytest.approx(seeds["value"].mean())
    assert train[train["stopped"] != ""].set_index("series")["stopped"].to_dict() == {
        "1": "diverged",
        "2": "unfinished",
    }


def test_update_ratios_end_where_the_schedule_stops_moving(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4,), seeds=(0,), connections=("plain",)).write(tmp_path)
    loaded = load_study(study)
    inside = Inside(loaded, loaded.runs, [("layer", "grad_norm"), ("layer", "update_ratio")])
    assert inside.profile("grad_norm")["step"].max() == inside.map("grad_norm")["step"].max() == 599
    assert inside.profile("update_ratio")["step"].max() == inside.map("update_ratio")["step"].max() == 450
    assert inside.profile("update_ratio")["step"].min() == 0


def test_inside_reads_what_the_files_hold(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4, 6, 8), seeds=(0,), connections=("plain",), steps=60).write(tmp_path)
    loaded = load_study(study)
    inside = Inside(loaded, loaded.runs, [("layer", "grad_norm")])
    assert not inside.problems
    found = inside.profile("grad_norm")
    run = loaded.runs.iloc[0]
    raw = read_table(RunFolder(study / "runs" / run["folder"]), "layers", {}).to_pandas()
    raw = raw[(raw["scope"] == "layer") & (raw["metric"] == "grad_norm") & (raw["step"] == 59)]
    mine = found[(found["depth"] == run["depth"]) & (found["moment"] == "end")]
    assert mine["value"].to_list() == pytest.approx(raw["value"].to_list(), rel=1e-6)
    assert set(inside.map("grad_norm")["depth"]) == {6, 8}
