"""The report page in headless Chromium: charts follow their controls, tables sort, nothing is asked of a network."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import Tab, chromium, open_page
from fake_study import FakeStudy
from plainres.report.examine import examine
from plainres.report.page.write import report_page
from plainres.store import Status

EVIL = "<img src=x onerror=alert(1)>"
STUDY = FakeStudy(
    depths=(4, 8), seeds=(0, 1, 2), steps=60, gains=True, starts=((4, 0.0),), status={("plain", 8, 1): Status.DIVERGED}
)
PANELS = ("degradation", "curves", "layers", "heatmaps", "chain", "construction")


def write(study: Path) -> Path:
    page = study / "report" / "index.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text(report_page([examine(study)], page.parent))
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(STUDY.write(tmp_path_factory.mktemp("browser")))


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Tab]:
    with open_page(browser, page) as found:
        yield found
        assert found.said == [] and found.asked == []


def drawn(tab: Tab, panel: str) -> str:
    return json.dumps(tab.traces(panel))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_every_panel_is_drawn_within_the_window(browser: Any, page: Path, width: int, scheme: str) -> None:
    with open_page(browser, page, width, scheme) as tab:
        for panel in PANELS:
            tab.show("overview" if panel == "degradation" else panel)
            assert tab.traces(panel), panel
        assert tab.page.evaluate("document.scrollingElement.scrollWidth") <= width
        paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        buttons = tab.page.evaluate("[...document.querySelectorAll('.modebar-btn')].map(n => n.dataset.title)")
        assert buttons and not [name for name in buttons if "hare" in name or "loud" in name]
        assert tab.said == [] and tab.asked == []


def test_the_first_screen_says_what_evidence_json_says(tab: Tab) -> None:
    found = json.loads(tab.page.locator("#evidence-data").text_content())[0]
    for sentence in found["verdict"]["sentences"]:
        assert sentence in tab.page.locator(".verdicts").inner_text()
    for claim in found["claims"]:
        line = tab.page.locator(f'.claims li[data-claim="{claim["id"]}"]').inner_text()
        assert claim["status"].replace("_", " ") in line
        if claim["effect"] is not None and claim["unit"] != "share":
            ends = "" if claim["low"] is None else f" [{claim['low']:+.2f}, {claim['high']:+.2f}]"
            assert f"{claim['effect']:+.2f}" in line and ends in line


def test_toggles_change_what_is_drawn(tab: Tab) -> None:
    tab.show("curves")
    everything = tab.traces("curves")
    tab.page.locator('.chip[data-filter="depth"][data-value="8"]').click()
    fewer = tab.traces("curves")
    assert 0 < len(fewer) < len(everything)
    tab.page.locator('.chip[data-filter="connection"][data-value="residual"]').click()
    plain = tab.traces("curves")
    assert 0 < len(plain) < len(fewer) and len({t["line"]["color"] for t in plain if t["line"]}) == 1
    seeds = tab.page.locator('[data-panel="curves"] [data-control="seeds"]')
    seeds.select_option("2")
    (one,) = tab.traces("curves")
    seeds.select_option("mean")
    (mean,) = tab.traces("curves")
    assert mean["line"]["width"] > 2 > one["line"]["width"] and mean["y"] != one["y"]
    tab.page.locator('[data-panel="curves"] [data-control="x"]').select_option("epochs")
    assert tab.traces("curves")[0]["x"] != mean["x"]
    tab.page.locator('[data-panel="curves"] [data-control="metric"]').select_option("train_loss")
    assert tab.traces("curves")[0]["y"] != mean["y"]


@pytest.mark.slow
def test_a_run_that_diverged_keeps_its_last_point(tab: Tab) -> None:
    tab.show("curves")
    assert [t for t in tab.traces("curves") if t["mode"] == "markers" and len(t["x"]) == 1]


def test_the_slider_moves_through_the_steps_and_takes_keys(tab: Tab) -> None:
    tab.show("layers")
    slider = tab.page.locator('[data-panel="layers"] input[type="range"]')
    at_start, words = drawn(tab, "layers"), tab.page.locator('[data-panel="layers"] output')
    said = words.inner_text()
    slider.focus()
    tab.page.keyboard.press("Home")
    assert words.inner_text() == "step 0" != said and drawn(tab, "layers") != at_start
    tab.page.locator('[data-panel="layers"] [data-control="metric"]').select_option("output_norm")
    layout = tab.page.evaluate("JSON.stringify(document.querySelector('#layers .plot').layout)")
    assert "block (0 = first)" in layout and "layer (0 = stem)" not in layout


@pytest.mark.slow
def test_heat_maps_share_one_scale(tab: Tab) -> None:
    tab.show("heatmaps")
    assert len(tab.traces("heatmaps")) >= 2
    shared = tab.page.evaluate("document.querySelector('[data-panel=\"heatmaps\"] .plot').data.map(t => t.coloraxis)")
    assert set(shared) == {"coloraxis"}


def test_tables_sort_and_filter(tab: Tab) -> None:
    tab.show("runs")
    table = tab.page.locator("#runs-table")
    heads = [text.strip() for text in table.locator("th").all_inner_texts()]
    column = heads.index("training loss")

    def values() -> list[str]:
        return [row.locator("td").nth(column).inner_text() for row in table.locator("tbody tr").all()]

    table.locator("th button").nth(column).click()
    known = [float(v) for v in values() if v]
    assert known == sorted(known) and values()[-1] == ""  # a run without a value comes last, whichever way
    table.locator("th button").nth(column).click()
    again = [float(v) for v in values() if v]
    assert again == sorted(known, reverse=True) and values()[-1] == ""
    tab.page.locator("#runs-filter").fill("plain d004")
    visible = [row for row in table.locator("tbody tr").all() if row.is_visible()]
    assert len(visible) == 3 and tab.page.locator("#runs-count").inner_text() == "3 of 18 runs"


@pytest.mark.slow
def test_the_theme_switches(tab: Tab) -> None:
    before = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.locator("#theme").click()
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.slow
def test_a_link_opens_its_claim(tab: Tab) -> None:
    link = tab.page.locator('.claims li[data-claim="degradation"] a')
    link.focus()
    tab.page.keyboard.press("Enter")
    details = tab.page.locator(link.get_attribute("href"))
    details.locator("table").first.wait_for()
    assert details.evaluate("node => node.open")


@pytest.mark.slow
def test_names_stay_text_in_the_browser_too(browser: Any, tmp_path: Path) -> None:
    study = replace(STUDY, connections=("plain", EVIL), depths=(4,), seeds=(0,), starts=(), status={}).write(tmp_path)
    with open_page(browser, write(study)) as tab:
        tab.show("curves")
        assert EVIL in tab.page.locator("#curves .legend").inner_text()
        titles = tab.page.locator("#curves .annotation-text").all_text_contents()
        assert EVIL in titles and tab.page.locator("img").count() == 0
        assert tab.said == [] and tab.asked == []


@pytest.mark.slow
def test_it_prints(tab: Tab, tmp_path: Path) -> None:
    tab.page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes())) > 3
    tab.page.emulate_media(media="print")
    assert not tab.page.locator("#filters").is_visible()
