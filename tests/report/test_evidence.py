"""evidence.json and evidence.md: what is in them, bad input, the published study, and the page that explains them."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_study import FakeStudy
from plainres.analysis import simulation
from plainres.analysis.audit import audit_table
from plainres.analysis.conclusion import VERDICTS
from plainres.analysis.evidence import gather
from plainres.analysis.load import load_study
from plainres.analysis.rules import RULES
from plainres.config import compose
from plainres.pair import identity_fields
from plainres.report.build import build_report
from plainres.report.evidence_text import WORDS, rule_table
from plainres.report.terminal import evidence_lines
from plainres.store import Status, write_json

pytestmark = pytest.mark.usefixtures("without_figures")
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "published" / "depth-digits-mlp"
STALE = "the published evidence is not what this code finds: see 'The published study' in docs/evidence.md"
DEPTHS, SEEDS = (4, 6, 8), (0, 1, 2)
BROKEN = {("plain", 8, seed): 0.6 + 0.01 * seed for seed in SEEDS}


def evidence_of(tmp_path: Path, **options: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"depths": DEPTHS, "seeds": SEEDS, "steps": 60, "probes": False, "errors": BROKEN}
    return report(FakeStudy(**(settings | options)).write(tmp_path))


def report(study: Path) -> dict[str, Any]:
    """evidence.json of a study, after checking what must hold of every one."""
    result = build_report(study)
    text = (study / "report" / "evidence.json").read_text()
    found: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in evidence.json"))
    assert list(found) == ["format", "verdict", "limits", "claims", "rules", "provenance"]
    assert len(found["verdict"]["sentences"]) == 2 and all(found["verdict"]["sentences"])
    for claim in found["claims"]:
        assert claim["status"] in {str(s) for s in WORDS} and claim["sentence"].strip().endswith((".", "stay."))
        assert (claim["low"] is None) == bool(claim["null_reason"]), claim
        assert all(math.isfinite(x) for x in numbers(claim))
        for comparison in claim["comparisons"]:
            assert (comparison["low"] is None) == bool(comparison["null_reason"])
            assert (comparison["p"] is None) == bool(comparison["p_null_reason"])
    page = (study / "report" / "evidence.md").read_text()
    assert "nan" not in page.replace("sidual", "") and "None" not in page
    assert evidence_lines(result) in ([], found["verdict"]["sentences"])
    return found


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, float):
        yield value


def status(found: dict[str, Any], connection: str | None = "residual") -> dict[str, str]:
    return {c["id"]: c["status"] for c in found["claims"] if c["connection"] in (None, connection)}


def command(found: dict[str, Any], id_: str) -> str:
    return str(next(c["command"] for c in found["claims"] if c["id"] == id_))


def test_a_clear_study(tmp_path: Path) -> None:
    found = evidence_of(tmp_path, probes=True)
    assert [c["id"] for c in found["claims"]] == list(RULES)
    assert status(found)["degradation"] == status(found)["cured"] == "supported"
    assert found["verdict"]["parts"][0]["id"] == "cured"
    assert status(found)["scales"] == "supported" and status(found)["signal"] == "undecided"  # fakes have no block_gain
    origin = found["provenance"]
    assert len(origin["run_ids"]) == 18 and len(origin["tables_sha256"]) == 36
    assert origin["commits"] and origin["versions"]["torch"] and origin["hardware"]["device_name"] == ["Fake CPU"]
    degradation = next(c for c in found["claims"] if c["id"] == "degradation")
    assert degradation["unit"] == "percentage points" and degradation["n"] == 3 and degradation["num_comparisons"] == 2
    assert list(degradation["comparisons"][0]["values"]) == ["0", "1", "2"]
    assert set(degradation["run_ids"]) <= set(origin["run_ids"])


@pytest.mark.parametrize("arm", ["plain", "residual"])
def test_one_arm_missing(tmp_path: Path, arm: str) -> None:
    found = evidence_of(tmp_path, connections=(arm,))
    if arm == "plain":
        assert status(found, "")["degradation"] == "supported" and "cured" not in status(found, "")
        return
    assert status(found)["degradation"] == "not_tested" and status(found)["comparable"] == "undecided"
    assert command(found, "degradation").startswith("python -m run -m depth=4,6,8 connection=plain seed=0,1,2")
    assert "connection=plain" in command(found, "comparable")


def test_one_seed(tmp_path: Path) -> None:
    found = evidence_of(tmp_path, seeds=(0,))
    assert status(found)["degradation"] == status(found)["not_overfitting"] == "undecided"
    assert "seed=0,1,2" in command(found, "degradation")
    assert found["verdict"]["parts"][0]["id"] == "undecided"


def test_unequal_seeds_and_unfinished_runs(tmp_path: Path) -> None:
    states = {("plain", 6, 0): Status.FAILED, ("residual", 6, 1): Status.PLANNED, ("plain", 4, 2): Status.INTERRUPTED}
    errors = BROKEN | {("plain", 8, 3): 0.61}
    found = evidence_of(tmp_path, seeds=(0, 1, 2, 3), missing=[("residual", 8, 3)], status=states, errors=errors)
    comparable = next(c for c in found["claims"] if c["id"] == "comparable")
    assert comparable["status"] == "undecided" and "4 runs of the grid" in comparable["sentence"]
    assert comparable["command"].startswith("python -m run -m depth=4,6,8 connection=plain,residual seed=0,1,2,3")
    assert status(found)["degradation"] == "supported"
    assert "provisional" in found["verdict"]["sentences"][0]
    assert any("3 runs have not ended" in line for line in found["limits"])


def test_mixed_budgets_are_judged_apart(tmp_path: Path) -> None:
    study = FakeStudy(depths=DEPTHS, seeds=SEEDS, steps=60, probes=False, errors=BROKEN).write(tmp_path)
    FakeStudy(depths=(4,), seeds=SEEDS, steps=120, probes=False).write(tmp_path)
    found = report(study)
    by_setting = {c["setting"]: c["status"] for c in found["claims"] if c["id"] == "degradation"}
    assert by_setting == {"steps=60": "supported", "steps=120": "not_tested"}
    assert "trainer.steps=120" in next(
        c["command"] for c in found["claims"] if c["id"] == "degradation" and c["setting"] == "steps=120"
    )
    assert "steps=120" in found["verdict"]["sentences"][0]


def edit(study: Path, change: Callable[[dict[str, Any]], None], name: str) -> None:
    path = next((study / "runs").glob(f"{name}*")) / "run.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_missing_values_and_foreign_fields(tmp_path: Path) -> None:
    study = FakeStudy(depths=DEPTHS, seeds=SEEDS, steps=60, probes=False, errors=BROKEN).write(tmp_path)
    edit(study, lambda r: r["final"].update(train_error=None), "mlp-plain-d008-s0")
    edit(study, lambda r: r["final"].update(train_loss=None), "mlp-residual-d004-s0")
    edit(study, lambda r: r["final"].pop("train_error_running"), "mlp-residual-d008-s1")
    edit(study, lambda r: r.update(mine={"x": [1]}) or r["identity"].update({"mine.x": 3}), "mlp-plain-d004-s1")
    edit(study, lambda r: r.update(environment=None), "mlp-residual-d006-s0")
    found = report(study)
    assert status(found)["degradation"] == "undecided"  # two pairs are left at depth 8
    assert status(found)["comparable"] == "contradicted"  # a run without its environment is no clean pair


def test_no_finished_run(tmp_path: Path) -> None:
    every = {(arm, 4, 0): Status.PLANNED for arm in ("plain", "residual")}
    found = evidence_of(tmp_path, depths=(4,), seeds=(0,), status=every)
    assert set(status(found).values()) == {"not_tested", "undecided"}


def test_a_study_without_runs(tmp_path: Path) -> None:
    assert evidence_of(tmp_path, depths=())["verdict"]["sentences"] == ["The study holds no runs.", "Nothing is shown."]


def test_several_connections(tmp_path: Path) -> None:
    found = evidence_of(tmp_path, connections=("plain", "residual", "highway"))
    assert [part["connection"] for part in found["verdict"]["parts"]] == ["highway", "residual"]
    assert sum(c["id"] == "cured" for c in found["claims"]) == 2
    assert any("corrected for its own comparisons only" in line for line in found["limits"])


def test_commands_are_understood(tmp_path: Path) -> None:
    """The command that adds a run gives that very run: its identity is the one that is missing."""
    study = FakeStudy(depths=(4, 6), seeds=SEEDS, lrs=(0.1,), steps=60, probes=False, missing=[("residual", 6, 1)])
    found = report(study.write(tmp_path))
    words = command(found, "comparable").split()
    assert words[:3] == ["python", "-m", "run"]
    conf = compose([*words[3:], "trainer.device=cpu"])
    assert identity_fields(conf) == study.spec("depth", 0.1, "residual", 6, 1).identity


def published_evidence() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / "evidence.json").read_text())
    return found


def test_the_published_study() -> None:
    found = published_evidence()
    expected = dict.fromkeys(["comparable", "degradation", "not_overfitting", "cured", "not_statistics"], "supported")
    expected |= {"signal": "undecided", "scales": "supported"}
    expected |= dict.fromkeys(["not_budget", "not_tuning", "near_identity", "solution_exists"], "not_tested")
    assert status(found) == expected, STALE
    effects = {c["id"]: c["effect"] for c in found["claims"]}
    assert effects["degradation"] == pytest.approx(63.97, abs=0.005), STALE
    assert effects["signal"] == pytest.approx(1.97, abs=0.005), STALE
    assert found["verdict"]["parts"][0]["id"] == "cured", STALE


def test_published_records_give_the_published_claims(tmp_path: Path) -> None:
    """Whatever rests on run.json alone is found again from the published records."""
    shutil.copytree(PUBLISHED / "runs", tmp_path / "depth" / "runs")
    write_json(tmp_path / "depth" / "study.json", {"format": 1, "study": "depth"})
    loaded = load_study(tmp_path / "depth")
    import pandas as pd

    nothing = pd.DataFrame({"run_id": [], "quantity": [], "value": []})
    audit = audit_table(loaded.runs, loaded.records)
    again = {c.id: c for c in gather("depth", loaded.runs, audit, {}, {"all": nothing}).claims}
    for claim in published_evidence()["claims"]:
        if claim["id"] not in ("signal", "scales"):
            mine = again[claim["id"]]
            assert (claim["status"], claim["sentence"]) == (mine.status, mine.sentence), STALE
            assert claim["low"] == pytest.approx(mine.shown.low if mine.shown else None), STALE


def test_the_page_has_the_tables_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    assert "\n".join(rule_table()) in page, "paste the output of plainres.report.evidence_text.rule_table"
    for row in VERDICTS:
        columns = [
            "or ".join(f"{WORDS[s]} " for s in part).strip() for part in (row.comparable, row.degradation, row.cured)
        ]
        cells = ["any" if len(c.split(" or ")) == 4 else c for c in columns]
        assert f"| {' | '.join(cells)} | {row.id} | {row.words} |" in page
    simulation.main()
    for line in capsys.readouterr().out.strip().splitlines():
        assert line in page, "paste the output of python -m plainres.analysis.simulation"
