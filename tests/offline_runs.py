"""Comparing W&B's offline runs, read back by W&B's own reader, with the files of the runs."""

import math

import numpy as np

from plainres.rows import read_table
from plainres.store import RunFolder, Status, Study
from plainres.tracking.history import PROFILES
from plainres.tracking.wandb_sink import EXIT_CODES


def check_run(folder: RunFolder, found) -> int:
    """Compare an offline run with the run's files; the number of values that were compared."""
    record = folder.read()
    config, last = record["config"], record["final"] or record["last_finite"]
    assert (found.run["run_id"], found.run["job_type"]) == (record["run_id"], config["connection"]["name"])
    assert found.run["run_group"].endswith(record["pair_id"]) and f"d{config['depth']:03d}" in found.run["run_group"]
    assert found.run["display_name"] == record["name"].removesuffix(f"-{record['run_id']}")
    assert found.run["tags"] == [record["study"], config["model"]["name"], config["data"]["name"]]
    top = {name: found.config[name] for name in ("depth", "seed", "connection", "model", "steps", "lr")}
    assert top == {"depth": config["depth"], "seed": config["seed"], "connection": config["connection"]["name"],
                   "model": config["model"]["name"], "steps": config["trainer"]["steps"],
                   "lr": config["optimizer"]["lr"]}  # fmt: skip
    assert found.config["settings"] == config and found.config["environment"] == record["environment"]
    assert found.summary["status"] == record["status"]
    assert found.exit_code == EXIT_CODES.get(Status(record["status"]), 1)
    assert {name: found.summary[name] for name in last if name != "step"} | {"step": last["step"]} == last
    return check_steps(folder, record, found) + check_profiles(folder, record, found)


def check_steps(folder: RunFolder, record, found) -> int:
    table = read_table(folder, "steps", record["layout"]).to_pylist()
    count = 0
    for metric in {row["metric"] for row in table} - {"clip_coef"}:
        ours = {row["step"]: row["value"] for row in table if row["metric"] == metric and row["value"] is not None}
        assert found.scalars(metric) == ours
        count += len(ours)
    return count


def check_profiles(folder: RunFolder, record, found) -> int:
    table = read_table(folder, "layers", record["layout"]).to_pandas()
    steps = record["config"]["trainer"]["steps"]
    count = 0
    for metric, scope in PROFILES.items():
        mine = table[(table["metric"] == metric) & (table["scope"] == scope)].dropna(subset="value")
        profiles = dict(list(mine.groupby("step")))
        functions = {"first": lambda v: v[0], "last": lambda v: v[-1], "min": np.min, "max": np.max}
        for name, function in functions.items():
            ours = {step: float(function(p["value"].to_numpy())) for step, p in profiles.items()}
            assert found.scalars(f"{metric}/{name}") == ours
            count += len(ours)
        sent = [step for step, values in found.history.items() if f"profile/{metric}_table.path" in values]
        assert set(sent) >= ({0, steps - 1} if profiles else set()) and len(sent) <= 4
        for step in sent:
            ours = profiles[step][["layer_index", "value"]].to_numpy(float)
            assert np.array_equal(np.array(found.profile(metric, step)), ours)
            count += len(ours)
    slopes = found.scalars("grad_norm/log_slope")
    grad = table[(table["metric"] == "grad_norm") & (table["scope"] == "layer") & (table["value"] > 0)]
    for step, profile in grad.groupby("step"):
        expected = np.polyfit(profile["layer_index"], np.log(profile["value"].astype(float)), 1)[0]
        assert math.isclose(slopes[step], expected, rel_tol=1e-6, abs_tol=1e-9)
    return count


def check_study(study: Study, read_back, report: bool = True) -> int:
    runs = list(study.runs())
    count = sum(check_run(run, read_back(study, run.read()["run_id"])) for run in runs)
    folders = [p.name for p in (study.path / "wandb").glob("offline-run-*")]
    assert len(folders) == len(runs) + report, "one folder a run, and one for the report"
    assert not list(study.path.rglob("untracked-*"))
    return count
