"""``plainres.evidence``: the same as evidence.json, and its claims by name."""

import json
from pathlib import Path

import pytest

import plainres
from fake_study import FakeStudy


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plainres.report.build.paper_figures", lambda tables: ())
    monkeypatch.setattr("plainres.report.build.draw_across", lambda result, pool: None)


@pytest.fixture(scope="module")
def found(folder: Path) -> plainres.Evidence:
    return plainres.evidence(folder)


def test_equals_the_file_of_the_report(study: plainres.Study, found: plainres.Evidence) -> None:
    assert study.report() == study.path / "report"
    written = json.loads((study.path / "report" / "evidence.json").read_text())
    assert json.loads(json.dumps(found.document)) == written
    assert found.verdict == " ".join(written["verdict"]["sentences"])
    assert found.limits == written["limits"]


@pytest.mark.slow
def test_equals_the_file_with_studies_beside_it(tmp_path: Path) -> None:
    seeds, errors = range(3), {("plain", 6, seed): 0.5 + 0.01 * seed for seed in range(3)}
    path = FakeStudy(depths=(4, 6), seeds=seeds, steps=60, errors=errors).write(tmp_path)
    longer = FakeStudy(depths=(6,), seeds=seeds, steps=120, errors=errors).write(tmp_path, "budget")
    study = plainres.load(path)
    alone, both = study.evidence(), study.evidence(beside=[longer, path, plainres.load(longer)])
    assert alone["not_budget"].status == "not_tested" and both["not_budget"].status == "supported"
    written = json.loads((study.report(beside=[longer]) / "evidence.json").read_text())
    assert json.loads(json.dumps(both.document)) == written


def test_claims_by_name(found: plainres.Evidence) -> None:
    claims = found.document["claims"]
    assert list(found.claims.index) == [claim["id"] for claim in claims]
    for claim in claims:
        assert found[claim["id"]].status == found.claims.loc[claim["id"], "status"] == claim["status"]
        assert found[claim["id"]].sentence == claim["sentence"]
    degradation = found["degradation"]
    assert degradation.status == "supported" and degradation.connection == ""
    assert len(degradation.comparisons) == 2 and set(degradation.comparisons["depth"]) == {6, 8}
    assert repr(degradation).startswith("degradation: supported. ")
    assert list(found.verdicts["connection"]) == ["residual"] and list(found.verdicts["id"]) == ["cured"]


@pytest.fixture(scope="module")
def two_settings(tmp_path_factory: pytest.TempPathFactory) -> plainres.Evidence:
    fake = FakeStudy(
        depths=(4, 6), connections=("plain", "residual"), seeds=(0,), lrs=(0.03, 0.1), steps=60, probes=False
    )
    return plainres.evidence(fake.write(tmp_path_factory.mktemp("results")))


def test_one_of_several_claims_has_to_be_named(two_settings: plainres.Evidence) -> None:
    with pytest.raises(plainres.UserError, match=r"cured: 2 claims .*setting is one of lr=0.03, lr=0.1"):
        two_settings["cured"]
    assert two_settings.claim("cured", setting="lr=0.1").setting == "lr=0.1"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"id": "curd"}, "id=curd: must be one of comparable, degradation"),
        ({"id": "cured", "connection": "highway"}, "connection=highway: must be one of residual"),
        ({"id": "cured", "setting": "lr=1"}, "setting=lr=1: must be one of lr=0.03, lr=0.1"),
    ],
)
def test_a_mistake_is_one_line(two_settings: plainres.Evidence, asked: dict, line: str) -> None:
    with pytest.raises(plainres.UserError) as error:
        two_settings.claim(**asked)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_it_shows_itself_in_a_notebook_with_its_text_escaped(found: plainres.Evidence) -> None:
    verdict = found.document["verdict"] | {"sentences": ["<script>alert(1)</script>", "x"]}
    shown = plainres.Evidence(found.document | {"verdict": verdict})._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "degradation" in shown
    assert repr(found).splitlines()[0] == found.verdict and "degradation" in repr(found).splitlines()[2]
