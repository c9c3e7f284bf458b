"""A figure's CSV alone gives the figure again; the published pictures are what this code draws from their CSVs."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from plainres.errors import UserError
from plainres.figures.gallery import KINDS
from plainres.figures.redraw import Source, chosen, published, redraw, redraw_published, sources
from plainres.figures.save import csv_bytes, images, read_csv, save
from plainres.figures.styles import REPORT, STYLES

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
ALL = published(PUBLISHED)
SMALL = {"paired_gap", "shortcut_table", "lesion_delete", "error_by_steps"}  # a moment each; the others are slow


def test_every_published_csv_is_a_figure_of_the_gallery() -> None:
    shown = {source.path for source in ALL}
    assert len(ALL) > 60 and all(path in shown for path in PUBLISHED.rglob("figures/*.csv"))
    assert {source.kind for source in ALL} == set(KINDS), "each figure of docs/figures.md has a picture"
    for source in ALL:
        assert source.path.with_suffix(".png").exists() and source.path.with_suffix(".pdf").exists()


def test_the_gallery_shows_every_figure() -> None:
    page = PUBLISHED.parents[1] / "docs" / "figures.md"
    text = page.read_text()
    pictures = re.findall(r"^\*\*`(\w+)`\*\* \S.*\n\n!\[\1\]\(([^)]+)\)$", text, re.M)
    assert [name for name, _ in pictures] and {name for name, _ in pictures} == set(KINDS)
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(links) == len(pictures) + 4 and all((page.parent / link).resolve().is_file() for link in links)


@pytest.mark.parametrize(
    "source",
    [pytest.param(s, marks=() if s.kind in SMALL else pytest.mark.slow) for s in ALL],
    ids=lambda source: f"{source.path.parents[1].name}-{source.style.name}-{source.name}",
)
def test_the_published_picture_is_what_its_csv_gives(source: Source) -> None:
    """Byte for byte, with the versions of constraints.txt."""
    drawn = images(source.kind, read_csv(source.path.read_bytes()), source.style)
    for suffix in ("png", "pdf"):
        stale = drawn[suffix] != source.path.with_suffix(f".{suffix}").read_bytes()
        assert not stale, f"{source.path}: the {suffix} is not what this code draws; `make figures` and look at it"


def test_a_csv_survives_reading(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "connection": ["NA", "none", "1"], "series": ["0", "mean", "1"], "stopped": ["", "diverged", ""],
            "seed": pd.array([0, None, 1], dtype="Int64"), "value": [0.1, float("nan"), 1e-9],
            "diverged": [True, None, False],
        }
    )  # fmt: skip
    again = read_csv(csv_bytes(table))
    for name in ("connection", "series", "stopped"):
        assert list(again[name]) == list(table[name]), "text stays text, whatever it reads like"
    assert again["value"].isna().tolist() == [False, True, False] and again["value"][2] == 1e-9
    assert again["diverged"].tolist() == [True, False, False]


def test_redraw_gives_the_bytes_of_the_report(tmp_path: Path) -> None:
    """Also when it draws from the CSV what the report drew from memory, with more digits."""
    table = read_csv((PUBLISHED / "depth-digits-mlp" / "figures" / "paired_gap.csv").read_bytes())
    digits = table.assign(value=table["value"] * (1 + 1e-13))
    first = {path.suffix: path.read_bytes() for path in save("paired_gap", digits, tmp_path / "figures", "paired_gap")}
    (source,) = sources(tmp_path)
    for path in redraw(source, REPORT):
        assert path.read_bytes() == first[path.suffix] and path.parent == tmp_path / "figures"
    other = redraw(source, STYLES["poster"], tmp_path / "figures-poster")
    assert {path.name for path in other} == {"paired_gap.csv", "paired_gap.pdf", "paired_gap.png"}
    assert other[0].read_bytes() == first[".csv"] and other[1].read_bytes() != first[".png"]


def test_names_and_settings_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "lesion").mkdir()
    for name in ("training_curves_log", "training_curves-lr=0.1", "settings", "mine", "degradation_of_mine"):
        (tmp_path / "figures" / f"{name}.csv").touch()
    (tmp_path / "lesion" / "swap.csv").touch()
    found = [(s.kind, s.setting) for s in sources(tmp_path)]
    assert found == [("training_curves", "lr=0.1"), ("training_curves_log", ""), ("settings", ""), ("lesion_swap", "")]
    names = [s.name for s in chosen(sources(tmp_path), ["training_curves", "lesion_swap"])]
    assert names == ["training_curves-lr=0.1", "lesion_swap"]
    with pytest.raises(UserError, match=r"--only nope: no such figure here; there are: training_curves, ") as error:
        chosen(sources(tmp_path), ["nope"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "connection,depth\nplain,10\n", "\x00\xff"])
def test_a_csv_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "paired_gap.csv").write_text(text)
    with pytest.raises(UserError, match=r"paired_gap.csv: cannot be drawn \(.*\); make it anew") as error:
        redraw_published(tmp_path)
    assert "\n" not in str(error.value) and len(list((tmp_path / "figures").iterdir())) == 1


def test_redrawing_published_folders_writes_the_same_csvs(tmp_path: Path) -> None:
    for name in ("one", "deep/two"):
        (tmp_path / name / "figures").mkdir(parents=True)
        shutil.copy(PUBLISHED / "depth-digits-mlp" / "figures" / "paired_gap.csv", tmp_path / name / "figures")
    written = redraw_published(tmp_path)
    assert len(written) == 6
    published = (PUBLISHED / "depth-digits-mlp" / "figures" / "paired_gap.png").read_bytes()
    assert all(path.read_bytes() == published for path in written if path.suffix == ".png")
