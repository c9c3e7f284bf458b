"""diagnosis.md and .json of a study: what a newcomer reads, what a program reads, and the table that the docs hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_study import FakeStudy
from plainres.analysis.diagnosis_rules import RULES
from plainres.report.build import build_report
from plainres.report.diagnosis import diagnosis_lines, rule_table
from plainres.report.examine import ReportResult
from plainres.rows import read_lines
from plainres.store import Status, Study

pytestmark = pytest.mark.usefixtures("without_figures")
ROOT = Path(__file__).parents[2]
FAR = {"plain": 0.01, "residual": 1.0}  # of a run's gradient at the first quarter of the blocks


def documents(result: ReportResult) -> tuple[dict[str, Any], str]:
    """diagnosis.json, strict about what is no JSON number, and the text of diagnosis.md."""
    text = (result.folder / "diagnosis.json").read_text()
    found: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in diagnosis.json"))
    return found, (result.folder / "diagnosis.md").read_text()


def plant(study: Path, change: Callable[[str, dict[str, Any]], None]) -> None:
    """Change rows of layers of a fake study: its runs get JSON lines in place of tables."""
    import orjson
    import pyarrow.parquet as pq

    for folder in Study.open(study).runs():
        connection = folder.read()["identity"]["connection.name"]
        rows = pq.read_table(folder.path / "layers.parquet").to_pandas()
        lines = []
        for step, at_step in rows.groupby("step"):
            values: dict[str, dict[str, Any]] = {}
            for (scope, metric), part in at_step.groupby(["scope", "metric"]):
                values.setdefault(scope, {})[metric] = [None if v != v else v for v in part["value"].astype(float)]
            change(connection, values)
            lines.append({"step": int(str(step)), "values": values, "reasons": {}})
        (folder.path / "layers.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        assert len(read_lines(folder.path / "layers.jsonl")) == len(lines)


def vanish(connection: str, values: dict[str, dict[str, Any]]) -> None:
    count = len(values["block"]["output_norm"])
    gradient = [1.0] * count
    gradient[: count // 4] = [FAR[connection]] * (count // 4)
    values["block"]["activation_grad_norm_input"] = gradient
    values["layer"]["update_ratio"] = [1e-3] * len(values["layer"]["update_ratio"])


def test_findings_of_all_seeds_stand_together_and_name_layers_steps_and_number(tmp_path: Path) -> None:
    errors = {(arm, 18, seed): 0.8 for arm in ("plain", "residual") for seed in (0, 1)}
    study = FakeStudy(depths=(18,), seeds=(0, 1), errors=errors).write(tmp_path)
    plant(study, vanish)
    result = build_report(study)
    found, text = documents(result)
    assert [(f["rule"], f["connection"], f["seed"]) for f in found["findings"]] == [
        ("vanishing", "plain", 0),
        ("vanishing", "plain", 1),
    ]
    one = found["findings"][0]
    assert one["number"] == pytest.approx(0.01) and one["gravity"] == "warning"
    assert one["layers"] == [{"layer_index": i, "layer_name": f"blocks.{i}"} for i in range(2)]
    assert (one["first_step"], one["last_step"]) == (100, 450), "after a tenth of 600 steps, before the rate is near 0"
    assert one["run"] in text and one["sentence"].startswith("activation_grad_norm_input of early ÷ late")
    assert one["may_mean"] in text and one["try"] in text
    table = "| networks | runs | findings |\n| --- | ---: | --- |\n| plain, depth 18 | 2 | vanishing |"
    head = f"# depth: diagnosis\n\n1 finding on 2 of 4 runs.\n\n{table}\n\n## Warnings\n\n### Gradients vanish"
    assert text.startswith(head)
    assert "**plain, depth 18 (2 of 2 runs)**" in text and "**residual, depth" not in text
    assert set(found["rules"]) == set(RULES) and found["num_runs"] == 4
    first, second = diagnosis_lines(result)
    assert first == f"diagnosis: 1 finding on 2 of 4 runs, see {result.folder}/diagnosis.md"
    assert second.startswith(
        "  plain, depth 18 (2 of 2 runs): gradients vanish toward the input for most of training: 0.0"
    )


def test_shallow_networks_are_looked_at_like_deep_ones(tmp_path: Path) -> None:
    """Maps are drawn of the two deepest only; the diagnosis needs the steps of all."""
    depths = (18, 22, 26)
    errors = {(arm, depth, 0): 0.8 for arm in ("plain", "residual") for depth in depths}
    study = FakeStudy(depths=depths, seeds=(0,), errors=errors).write(tmp_path)
    plant(study, vanish)
    found, _ = documents(build_report(study))
    assert [(f["rule"], f["depth"]) for f in found["findings"]] == [("vanishing", depth) for depth in (26, 22, 18)]


def test_a_study_without_findings_says_so(tmp_path: Path) -> None:
    study = FakeStudy(depths=(8,), seeds=(0,), errors={("plain", 8, 0): 0.0}).write(tmp_path)
    result = build_report(study)
    found, text = documents(result)
    assert found["findings"] == [] and found["unprobed"] == []
    assert "No findings: no number of the 2 runs lies beyond a limit." in text and "## Rules" in text
    assert diagnosis_lines(result) == ["diagnosis: no findings: no number of the 2 runs lies beyond a limit"]


def test_what_was_not_looked_at_is_named(tmp_path: Path) -> None:
    status = {("plain", 8, 0): Status.FAILED, ("residual", 8, 0): Status.DIVERGED}
    result = build_report(FakeStudy(depths=(8,), seeds=(0, 1), steps=60, probes=False, status=status).write(tmp_path))
    found, text = documents(result)
    assert len(found["unfinished"]) == 1 and len(found["unprobed"]) == 3
    assert f"Not looked at, because they have not ended: {found['unfinished'][0]}." in text
    assert "only the rules on whole runs apply" in text
    (one,) = found["findings"]
    assert one["layers"] == [{"layer_index": None, "layer_name": "blocks.1.branch.0.op.weight"}]
    assert "| residual, depth 8 | 2 | diverged (1 of 2) |" in text
    assert one["train_error"] is None and "blocks.1.branch.0; step 19." in text


def test_settings_are_told_apart(tmp_path: Path) -> None:
    status = {("plain", 4, 0): Status.DIVERGED}
    study = FakeStudy(depths=(4,), seeds=(0,), lrs=(0.03, 0.1), steps=60, probes=False, status=status).write(tmp_path)
    _, text = documents(build_report(study))
    assert "plain, depth 4, lr=0.03 (1 of 1 run)" in text and "plain, depth 4, lr=0.1 (1 of 1 run)" in text


def test_no_run_has_ended(tmp_path: Path) -> None:
    every = {(arm, 4, 0): Status.PLANNED for arm in ("plain", "residual")}
    result = build_report(FakeStudy(depths=(4,), seeds=(0,), status=every).write(tmp_path))
    assert "No run has ended" in documents(result)[1] and diagnosis_lines(result) == []


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "diagnosis.md").read_text()
    assert "\n".join(rule_table()) in page, "paste the output of plainres.report.diagnosis.rule_table"
