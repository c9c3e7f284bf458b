"""audit.csv: a clean pair is clean; each way of not matching shows."""

from pathlib import Path
from typing import Any

import pytest

from fake_study import CHECKS, FakeStudy
from plainres.analysis.audit import audit_in_words, audit_table
from plainres.analysis.load import LoadedStudy, load_study
from plainres.store import Status


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedStudy:
    return load_study(FakeStudy(depths=(4,), seeds=(0, 1), steps=60).write(tmp_path))


def arm(loaded: LoadedStudy, connection: str = "residual") -> dict[str, Any]:
    return next(r for r in loaded.records.values() if r["identity"]["connection.name"] == connection)


def test_clean_pairs(loaded: LoadedStudy) -> None:
    table = audit_table(loaded.runs, loaded.records)
    assert len(table) == 2 and table["clean"].all()
    assert (table[list(CHECKS)] == "equal").all(axis=None)
    assert set(table["declared"]) == {"adds the identity to the branch"}
    words = audit_in_words(table)
    assert words[0].startswith("2 of 2") and len(words) == 2


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"environment": {"code_hash": "other"}}, "stored_code_hash"),
        ({"environment": {"threads": 2}}, "stored_threads"),
        ({"environment": {"versions": {"torch": "0"}}}, "stored_versions"),
        ({"data": {"sha256": "other"}}, "stored_data"),
        ({"audit": {"partner_signature": {"draws": "other"}}}, "stored_signature"),
    ],
)
def test_stored_runs_that_differ(loaded: LoadedStudy, change: dict[str, Any], column: str) -> None:
    record = arm(loaded)
    for part, values in change.items():
        record[part] = record[part] | values
    table = audit_table(loaded.runs, loaded.records).set_index("run_id")
    assert table.loc[record["run_id"], column] == "different"
    assert not table.loc[record["run_id"], "clean"] and table["clean"].sum() == 1


def test_another_commit_with_the_same_code_is_clean(loaded: LoadedStudy) -> None:
    record = arm(loaded)
    record["environment"] = record["environment"] | {"commit": "other"}
    table = audit_table(loaded.runs, loaded.records).set_index("run_id")
    assert table.loc[record["run_id"], "stored_commit"] == "different" and table["clean"].all()


def test_undeclared_difference(loaded: LoadedStudy) -> None:
    audit = arm(loaded)["audit"]
    audit["checks"][1] = audit["checks"][1] | {"result": "undeclared"}
    table = audit_table(loaded.runs, loaded.records)
    assert list(table["undeclared"]).count("draws") == 1 and table["clean"].sum() == 1
    assert any("draws: undeclared in 1 of 2" in line for line in audit_in_words(table))


def test_planned_partner_forms_no_pair(tmp_path: Path) -> None:
    loaded = load_study(FakeStudy(depths=(4,), seeds=(0,), status={("plain", 4, 0): Status.PLANNED}).write(tmp_path))
    table = audit_table(loaded.runs, loaded.records)
    assert table.empty and audit_in_words(table) == ["No matched pair: nothing was compared."]
