"""The styles: widths in inches, embedded fonts, whole texts; one drawing for all of them."""

import re

import numpy as np
import pandas as pd
import pytest

from drawing import check_texts, draw, drawn_of, drawn_texts, table_of, tables_of
from fake_study import FakeStudy
from plainres.figures.paper import FIGURES, FigureTables
from plainres.figures.save import images
from plainres.figures.styles import BASE, POINTS, REPORT, STYLES, Style
from plainres.store import Status

STATUS = {("plain", 50, 0): Status.DIVERGED, ("residual", 20, 1): Status.FAILED}
STUDY = FakeStudy(depths=(10, 20, 50), seeds=(0, 1), steps=150, status=STATUS, gains=True)
FURTHER = [style for style in STYLES.values() if style is not REPORT]
DRAWN = [name for name in FIGURES if name != "shortcut_table"]  # test_shortcuts.py draws it
QUICK = {("neurips", name) for name in ("degradation", "paired_gap", "profiles_grad_norm")} | {
    ("he2015", "plain_curves")
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> FigureTables:
    return tables_of(STUDY.write(tmp_path_factory.mktemp("styles")))


@pytest.mark.parametrize(
    ("style", "name"),
    [
        pytest.param(style, name, marks=() if (style.name, name) in QUICK else pytest.mark.slow)
        for style in FURTHER
        for name in DRAWN
    ],
    ids=lambda part: part.name if isinstance(part, Style) else part,
)
def test_texts_are_whole_in_every_style(tables: FigureTables, style: Style, name: str) -> None:
    drawn = draw(tables, name, style)
    check_texts(drawn)
    assert drawn.figure.get_size_inches()[0] <= style.page + 1e-6


def test_widths_are_those_of_the_style(tables: FigureTables) -> None:
    for style in STYLES.values():
        assert draw(tables, "degradation", style).figure.get_size_inches()[0] == pytest.approx(style.column)
    assert (STYLES["icml"].column, STYLES["icml"].page, STYLES["neurips"].page) == (3.25, 6.75, 5.5)


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_fonts_are_embedded_and_none_is_type_3(tables: FigureTables, style: Style) -> None:
    """Type 3 fonts are refused by IEEE and ACM. Text is embedded TrueType (FontFile2); no other kind is there."""
    pdf = images("degradation", table_of(tables, "degradation"), style)["pdf"]
    assert b"/Type3" not in pdf and b"/FontFile2" in pdf
    names = {name.decode() for name in re.findall(rb"/BaseFont /(?:[A-Z]{6}\+)?(\w+)", pdf)}
    assert names and all(name.startswith(style.params["font.family"][0].replace(" ", "")) for name in names), names
    (width,) = {float(found) for found in re.findall(rb"/MediaBox \[ 0 0 (\S+) \S+ \]", pdf)}
    assert width == pytest.approx(72 * style.column, abs=0.01)


def test_lines_and_fonts_follow_the_style(tables: FigureTables) -> None:
    table = table_of(tables, "degradation")
    report, poster = (drawn_of("degradation", table, STYLES[name]) for name in ("report", "poster"))
    for one, other in zip(report.figure.axes[0].lines, poster.figure.axes[0].lines, strict=True):
        assert other.get_linewidth() == pytest.approx(STYLES["poster"].lines * one.get_linewidth())
        assert other.get_markersize() == pytest.approx(STYLES["poster"].lines * one.get_markersize())
        assert np.array_equal(one.get_ydata(), other.get_ydata()), "the data are the same"
    assert poster.figure.axes[0].yaxis.label.get_size() == STYLES["poster"].points
    assert REPORT.params["font.size"] == POINTS and REPORT.params["axes.linewidth"] == BASE["axes.linewidth"]


def test_the_look_of_he_2015(tables: FigureTables) -> None:
    drawn = draw(tables, "plain_curves", STYLES["he2015"])
    left, right = drawn.figure.axes
    assert left.spines["top"].get_visible() and left.spines["right"].get_visible()
    assert (left.get_ylabel(), right.get_ylabel()) == ("training error (%)", "validation error (%)")
    assert {ax.get_xlabel() for ax in (left, right)} == {"iterations"}
    for ax in (left, right):
        low, high = ax.get_xlim()
        assert 3 <= sum(low <= tick <= high for tick in ax.get_xticks()) <= 5
    assert draw(tables, "plain_curves").figure.axes[0].get_xlabel() == "updates"
    assert not any(drawn.figure.get_suptitle() or ax.get_title() for ax in drawn.figure.axes), (
        "the caption is the title"
    )


def test_every_pair_and_its_mean_stand_in_the_gap(tables: FigureTables) -> None:
    """The pairs are those of the CSV: plain − residual, by hand from the fake study's errors."""
    table = table_of(tables, "paired_gap")
    seeds = (
        table_of(tables, "degradation").query("series == 'seed'").set_index(["connection", "depth", "seed"])["value"]
    )
    pairs = table[table["series"] == "pair"]
    assert len(pairs) == 5, "three depths of two seeds; a failed run has no pair"
    for row in pairs.to_dict("records"):
        cell = row["depth"], row["seed"]
        expected = seeds[("plain", *cell)] - seeds[("residual", *cell)]
        assert row["value"] == pytest.approx(expected, abs=1e-6)
    for (depth,), own in table.groupby(["depth"]):
        mean = own[own["series"] == "mean"].iloc[0]
        assert mean["value"] == pytest.approx(own.loc[own["series"] == "pair", "value"].mean(), abs=1e-6)
        assert mean["n"] == (1 if depth == 20 else 2)
    drawn = drawn_of("paired_gap", table)
    marks = [line for line in drawn.figure.axes[0].lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in marks] == [[100 * pairs.loc[pairs["diverged"], "value"].iloc[0]]]
    assert "one of a pair diverged" in [text for text, _ in drawn_texts(drawn)]


def test_zeros_stand_at_a_floor_that_says_so(tables: FigureTables) -> None:
    table = table_of(tables, "training_curves_log")
    last = table["step"] == table["step"].max()
    zero = table.assign(value=table["value"].where(~last, 0.0))
    drawn = drawn_of("training_curves_log", zero)
    ax, count = drawn.figure.axes[0], int(table["num_train"].max())
    floor = min(ax.get_yticks())
    assert floor == pytest.approx(100 / count / table["n"].max() / 2), "half of the least mean that is not 0"
    curves = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert min(min(line.get_ydata()) for line in curves) == floor
    assert (100 / count) in [line.get_ydata()[0] for line in ax.lines], "the line 1/N"
    texts = [text for text, _ in drawn_texts(drawn)]
    assert "0" in texts and "0: no example wrong" in texts and f"1/N, N = {count:,}" in texts


def test_a_run_that_stopped_has_a_mark_where_it_ended(tables: FigureTables) -> None:
    for name in ("training_curves", "training_curves_log", "plain_curves"):
        table = table_of(tables, name)
        ends = table[(table["stopped"] != "") & (table["metric"] == "train_error")]
        assert set(ends["stopped"]) <= {"diverged", "unfinished"} and len(ends)
        drawn = drawn_of(name, table)
        marks = {
            (line.get_xdata()[0], round(line.get_ydata()[0], 6))
            for ax in drawn.figure.axes for line in ax.lines if line.get_marker() in ("x", "|")
        }  # fmt: skip
        assert {(row.step, round(100 * row.value, 6)) for row in ends.itertuples()} <= marks
        # Panels share one axis of time: that a run is short is to be seen.
        assert {ax.get_xlim()[1] for ax in drawn.figure.axes} == {table["step"].max()}


def test_means_are_over_two_seeds_at_least_and_their_number_is_shown(tables: FigureTables) -> None:
    table = table_of(tables, "training_curves")
    means = table[table["series"] == "mean"]
    assert means["n"].min() == 2
    assert "training, mean of\n2 seeds" in [text for text, _ in drawn_texts(drawn_of("training_curves", table))]
    more = table.assign(n=table["n"].where(~((table["series"] == "mean") & (table["step"] == 0)), 3))
    assert "training, mean of\n2 to 3 seeds" in [text for text, _ in drawn_texts(drawn_of("training_curves", more))]


@pytest.mark.parametrize("early", [0.3, None])
def test_a_diverged_run_is_not_dropped_from_near_identity(early: float | None) -> None:
    rows = [{"connection": arm, "depth": 50, "seed": seed, "early": 0.2 + seed / 10, "end": -1.0, "chance": 2.3,
             "diverged": False, "lr": 0.3}
            for arm in ("residual", "skipinit") for seed in (0, 1, 2)]  # fmt: skip
    table = pd.DataFrame(rows)
    table.loc[5, ["early", "end", "diverged"]] = [early, 0.36, True]
    drawn = drawn_of("near_identity", table.astype({"early": float, "end": float, "diverged": bool}))
    check_texts(drawn)
    texts = [text for text, _ in drawn_texts(drawn)]
    assert "diverged (counts at chance level)" in texts
    assert ("skipinit: 1 not drawn (no loss)" in texts) == (early is None)
    crosses = [x for line in drawn.figure.axes[0].lines if line.get_marker() == "x" for x in line.get_xdata()]
    assert crosses == ([pytest.approx(10**early)] if early else [])


def test_settings_mark_cells_with_a_diverged_run() -> None:
    rows = [{"setting": f"lr={lr}", "connection": arm, "depth": depth, "n": 3, "train_error_mean": 0.2,
             "train_error_low": 0.1, "train_error_high": 0.3, "n_diverged": int(lr == 0.1 and depth == 50),
             "chance_error": 0.9}
            for lr in (0.01, 0.1) for arm in ("plain", "residual") for depth in (10, 50)]  # fmt: skip
    drawn = drawn_of("settings", pd.DataFrame(rows))
    check_texts(drawn)
    crosses = [[len(line.get_xdata()) for line in ax.lines if line.get_marker() == "x"] for ax in drawn.figure.axes]
    assert crosses == [[0, 0], [1, 1]]
    assert "diverged" in [text for text, _ in drawn_texts(drawn)]
