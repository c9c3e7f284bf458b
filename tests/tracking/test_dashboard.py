"""The workspace is built and validated offline; what W&B would be sent has the panels and groups that it should."""

import warnings

import pytest


@pytest.fixture(scope="module")
def spec():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wandb-workspaces is written for an older pydantic
        pytest.importorskip("wandb_workspaces")
        from plainres.tracking.dashboard import build_workspace, spec_of
    return spec_of(build_workspace("depth", "plainres", "someone"))


def panels(spec, section):
    bank = spec["spec"]["section"]["panelBankConfig"]
    (found,) = [s for s in bank["sections"] if s["name"] == section]
    return found["panels"]


def test_it_belongs_to_the_study(spec):
    assert (spec["entity"], spec["project"], spec["displayName"]) == ("someone", "plainres", "plainres depth")
    (runs,) = spec["spec"]["section"]["runSets"]
    assert [key["name"] for key in runs["grouping"]] == ["depth.value", "connection.value"]
    filters = [(f["key"]["section"], f["key"]["name"], f["op"], f["value"]) for f in runs["filters"]["filters"]]
    assert filters == [("config", "study", "=", "depth"), ("run", "jobType", "!=", "report")]


def test_degradation_is_final_error_against_depth_by_connection(spec):
    line, points = (panel["config"] for panel in panels(spec, "degradation"))
    assert (line["xAxis"], line["metrics"], line["groupBy"]) == (
        "final/depth",
        ["final/train_error"],
        "connection.value",
    )
    assert (line["groupAgg"], line["groupArea"]) == ("mean", "minmax")
    assert (points["xAxis"], points["yAxis"]) == ("config:depth.value", "summary:train_error")


def test_trajectories_have_range_bands(spec):
    found = [panel["config"] for panel in panels(spec, "trajectories")]
    assert {(c["metrics"][0], c["groupBy"]) for c in found} == {
        (metric, by)
        for metric in ("train_error", "train_loss", "val_error")
        for by in ("connection.value", "cell.value")
    }
    assert all(c["xAxis"] == "_step" and c["groupArea"] == "minmax" for c in found)


@pytest.mark.parametrize(
    ("section", "metric"), [("gradients", "grad_norm"), ("updates", "update_ratio"), ("branch ratios", "branch_ratio")]
)
def test_each_profile_has_a_section(spec, section, metric):
    chart, *lines = panels(spec, section)
    assert f"profile/{metric}_table" in str(chart["config"]) and chart["viewType"] == "Vega2"
    shown = [panel["config"]["metrics"][0] for panel in lines]
    assert shown[:4] == [f"{metric}/{member}" for member in ("first", "last", "min", "max")]
