"""The report page as text: whole, offline, escaped, and with the numbers of evidence.json."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres import cli
from plainres.analysis.over_time import means
from plainres.analysis.profiles import spread
from plainres.errors import UserError
from plainres.report.build import build_report
from plainres.report.compare import compare
from plainres.report.examine import ReportResult, examine
from plainres.report.page.data import chart_data, thinned
from plainres.report.page.numbers import embedded, short
from plainres.report.page.write import report_page
from plainres.store import Status

pytestmark = pytest.mark.usefixtures("without_figures")
STUDY = FakeStudy(depths=(4, 8), seeds=(0, 1, 2), steps=60, gains=True)
SMALL = FakeStudy(depths=(4, 8), seeds=(0,), steps=60)
EVIL = "<img src=x onerror=alert(1)>"  # no slash: it is part of a folder's name


class Page(HTMLParser):
    """Elements with their attributes, and the text of those scripts that hold data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, object] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or "" if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data[self._inside] = json.loads(data)
            self._inside = ""

    def all(self, name: str) -> Iterator[dict[str, str | None]]:
        return (attributes for tag, attributes in self.elements if tag == name)


@dataclass(frozen=True)
class Built:
    """A study, what its report found, its page as text, and as elements."""

    study: Path
    result: ReportResult
    text: str
    page: Page


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    study = STUDY.write(tmp_path_factory.mktemp("page"))
    with pytest.MonkeyPatch.context() as patch:  # figures take most of a report's time
        patch.setattr("plainres.report.build.paper_figures", lambda tables: [])
        patch.setattr("plainres.report.build.draw_across", lambda result, pool: None)
        result = build_report(study)
    text = (study / "report" / "index.html").read_text()
    return Built(study, result, text, Page(text))


def test_the_page_is_whole_and_asks_for_nothing(built: Built) -> None:
    study, text, page = built.study, built.text, built.page
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "http" not in policy
    assert not [a for a in page.all("script") if "src" in a] and not list(page.all("link"))
    targets = [a["href"] or "" for a in page.all("a")]
    assert all(target.startswith(("#", "../runs/")) for target in targets)
    anchors = {a.get("id") for _, a in page.elements}
    assert {target[1:] for target in targets if target.startswith("#")} <= anchors
    folders = [target for target in targets if target.startswith("../runs/")]
    assert len(folders) == 12 and all((study / "report" / target).is_dir() for target in folders)
    assert len(text) < 12e6


def test_the_page_holds_evidence_json(built: Built) -> None:
    page = built.page
    assert page.data["evidence-data"] == [json.loads((built.study / "report" / "evidence.json").read_text())]
    claims = [a["data-claim"] for a in page.all("li") if "data-claim" in a]
    assert claims == [c["id"] for c in page.data["evidence-data"][0]["claims"]]  # type: ignore[index]


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_texts_stand_out_from_what_is_behind_them(theme: str) -> None:
    """WCAG 2.2: at least 4.5 to 1 for text."""
    css = (files("plainres.report.page") / "assets" / "page.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", css.split(theme)[1].split("}")[0]))
    pairs = [(ink, paper) for ink in ("ink", "muted", "accent") for paper in ("paper", "card")]
    for ink, paper in [*pairs, *[(name, f"{name}-bg") for name in ("good", "bad", "open", "none")]]:
        light, dark = sorted((luminance(colours[name]) for name in (ink, paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def luminance(colour: str) -> float:
    """Relative luminance of sRGB, as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_same_runs_give_the_same_page(built: Built) -> None:
    assert report_page([examine(built.study)], built.study / "report") == built.text


def test_what_the_charts_draw_is_what_the_tables_say(built: Built) -> None:
    study, result, data = built.study, built.result, built.page.data["chart-data"]
    assert isinstance(data, dict)
    for row in data["degradation"]:
        mine = result.verdict.table.query("depth == @row['depth'] and connection == @row['connection']").iloc[0]
        assert row["train_error_mean"] == pytest.approx(mine["train_error_mean"], rel=1e-4) and row["n"] == mine["n"]
    curve = next(c for c in data["curves"] if (c["connection"], c["depth"], c["seed"]) == ("plain", 8, 1))
    folder = next(study.glob("runs/*plain-d008-s1-*"))
    steps = pd.read_parquet(folder / "steps.parquet").query("kind == 'eval' and metric == 'val_error'")
    assert curve["metrics"]["val_error"][0] == steps["step"].tolist()
    assert curve["metrics"]["val_error"][1] == pytest.approx(steps["value"].tolist(), rel=1e-4)
    cell = next(c for c in data["layers"]["grad_norm"]["cells"] if (c["connection"], c["depth"]) == ("residual", 8))
    layers = [pd.read_parquet(f / "layers.parquet") for f in study.glob("runs/*residual-d008-*")]
    rows = pd.concat(layers).query("metric == 'grad_norm' and scope == 'layer' and step == 4")
    by_hand = rows.groupby("layer_index")["value"].apply(lambda v: float(v.astype(float).prod() ** (1 / len(v))))
    assert cell["values"][cell["steps"].index(4)] == pytest.approx(by_hand.tolist(), rel=1e-4)


def test_names_stay_text(tmp_path: Path) -> None:
    study = replace(STUDY, connections=("plain", EVIL), depths=(4,), seeds=(0,)).write(tmp_path)
    page = Page(report_page([examine(study)], study / "report"))
    assert not list(page.all("img"))
    assert EVIL in [arm["name"] for arm in page.data["chart-data"]["arms"]]  # type: ignore[index]


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded(["</script><!--", "a & b", "\u2028"])
    assert not set("<>&\u2028") & set(text) and json.loads(text) == ["</script><!--", "a & b", "\u2028"]


@pytest.mark.parametrize(
    ("value", "expected"), [(0.123456789, 0.12346), (3.0, 3), (float("nan"), None), (None, None), (1e-40, 1e-40)]
)
def test_short_numbers(value: float | None, expected: float | None) -> None:
    assert short(value) == expected


def test_steps_that_are_left_out_are_named(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [line for line in thinned([built.result]) if "probe steps" in line]
    monkeypatch.setattr("plainres.report.examine.MOST_VALUES", 700)
    few = examine(built.study)
    kept = few.parts[0].over_time
    assert 2 <= kept.kept_steps < kept.num_steps
    assert [line for line in thinned([few]) if f"{kept.kept_steps} of {kept.num_steps} probe steps" in line]
    assert {0, 59} <= set(kept.tables["grad_norm"]["step"])


def test_evaluations_that_are_left_out_are_named(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plainres.report.page.data.MOST_POINTS", 0)
    monkeypatch.setattr("plainres.report.page.data.LEAST_EVALUATIONS", 3)
    assert [line for line in thinned([built.result]) if "at most 3 of up to" in line]
    data = chart_data([built.result])
    assert max(len(c["metrics"]["train_error"][0]) for c in data["curves"]) == 3


def test_spread_keeps_both_ends() -> None:
    assert spread([0, 1, 2, 3], 9) == [0, 1, 2, 3]
    assert spread(list(range(1000)), 5)[:1] + spread(list(range(1000)), 5)[-1:] == [0, 999]


def test_means_over_seeds_by_hand() -> None:
    same = {"connection": "plain", "depth": 4, "step": 0, "layer_index": 0, "layer_name": "stem"}
    rows = pd.DataFrame([same | {"value": v} for v in (1.0, 4.0, 0.0)])
    (geometric,) = means(rows, log=True).to_dict("records")
    assert (geometric["value"], geometric["n"], geometric["n_zero"]) == (pytest.approx(2.0), 2, 1)
    (arithmetic,) = means(rows, log=False).to_dict("records")
    assert (arithmetic["value"], arithmetic["n"], arithmetic["n_zero"]) == (pytest.approx(5 / 3), 3, 0)


def test_a_study_without_an_end_still_has_a_page(tmp_path: Path) -> None:
    status = {("plain", 4, 0): Status.DIVERGED, ("residual", 4, 0): Status.FAILED}
    study = FakeStudy(depths=(4,), seeds=(0,), steps=60, probes=False, status=status).write(tmp_path)
    build_report(study)
    text = (study / "report" / "index.html").read_text()
    assert 'class="state diverged"' in text and 'class="state failed"' in text


# compare


def test_two_studies_on_one_page(tmp_path: Path) -> None:
    one, other = SMALL.write(tmp_path / "a", "one"), replace(SMALL, lrs=(0.1,)).write(tmp_path / "b", "other")
    place, results = compare([one, other], None, lambda line: None)
    assert place == tmp_path / "a" / "compare-one-other.html" and len(results) == 2
    page = Page(place.read_text())
    assert [s["label"] for s in page.data["chart-data"]["sources"]] == ["one", "other"]  # type: ignore[index]
    assert len(page.data["evidence-data"]) == 2  # type: ignore[arg-type]
    folders = [a["href"] or "" for a in page.all("a") if "runs/" in (a["href"] or "")]
    assert len(folders) == 8 and all((place.parent / target).is_dir() for target in folders)
    assert not (one / "report").exists()  # their own reports stay as they are


@pytest.mark.slow
def test_compare_prints_all_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = SMALL.write(tmp_path, "one"), replace(SMALL, depths=(8,)).write(tmp_path, "other")
    cli.main(["compare", str(one), str(other), "--out", str(tmp_path / "new" / "page.html")])
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if re.match(r" 4 +plain", line)]
    assert "%" in out and row.rstrip().endswith("–")
    assert f"page: {tmp_path / 'new' / 'page.html'}" in out and (tmp_path / "new" / "page.html").is_file()


def test_compare_refuses_in_one_line(tmp_path: Path) -> None:
    one, twin = (replace(SMALL, depths=(4,)).write(tmp_path / name, "one") for name in "ab")
    for paths, words in (
        ([one], "two or more"),
        ([one, one], "two or more"),
        ([one, twin], "are called one"),
        ([one, tmp_path / "none"], "no such"),
    ):
        with pytest.raises(UserError, match=words) as refused:
            compare(paths, None, lambda line: None)
        assert "\n" not in str(refused.value)
    blocked = tmp_path / "file"
    blocked.write_text("")
    other = replace(SMALL, depths=(4,)).write(tmp_path, "other")
    with pytest.raises(UserError, match="cannot write"):
        compare([one, other], blocked / "page.html", lambda line: None)
