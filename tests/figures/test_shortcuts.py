"""The shortcuts of He et al. 2016, table 1: every preset is its row, and the figure has the paper's order."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from drawing import check_texts, drawn_of, drawn_texts
from plainres.analysis.shortcuts import FAIL, PAPER, PLAIN_ROW, row_of, rows_of
from plainres.figures.canvas import NothingToDraw
from plainres.figures.save import csv_bytes, read_csv
from plainres.figures.shortcuts import shortcut_rows
from plainres.figures.styles import STYLES, Style
from plainres.pair import identity_fields
from plainres.report.paper_tables import shortcut_text_table
from plainres.schema import RunConf

PRESETS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "connection" / "he2016").glob("*.yaml"))
# Typed from the paper's table 1, by preset.
TABLE = {
    "original": ("1", "1", "6.61"),
    "scaling_0_1": ("0", "1", FAIL),
    "scaling_05_1": ("0.5", "1", FAIL),
    "scaling_05_05": ("0.5", "0.5", "12.35"),
    "exclusive_0": ("1−g(x), b = 0", "g(x)", FAIL),
    "exclusive_6": ("1−g(x), b = −6", "g(x)", "8.70"),
    "exclusive_7": ("1−g(x), b = −7", "g(x)", "9.81"),
    "shortcut_only_0": ("1−g(x), b = 0", "1", "12.86"),
    "shortcut_only_6": ("1−g(x), b = −6", "1", "6.91"),
    "conv": ("1×1 conv", "1", "12.22"),
    "dropout": ("dropout 0.5", "1", FAIL),
}


@pytest.fixture(scope="module")
def every(make_conf: Callable[..., RunConf]) -> dict[str, dict[str, object]]:
    """The identity fields of the presets, and of connections that are no row of the table."""
    names = ["plain", "residual", "skipinit", "stochastic_depth", "concat", *[f"he2016/{name}" for name in PRESETS]]
    return {name.removeprefix("he2016/"): identity_fields(make_conf(name)) for name in names}


def test_every_preset_is_a_row_of_the_paper(every: dict[str, dict[str, object]]) -> None:
    rows = {name: row_of(every[name]) for name in PRESETS}
    found = {(row.shortcut, row.branch) for row in rows.values() if row is not None}
    assert found == set(PAPER), "all rows, and each once"
    for name, (shortcut, branch, paper) in TABLE.items():
        row = rows[name]
        assert row is not None and (row.shortcut, row.branch, row.paper) == (shortcut, branch, paper), name


def test_what_the_paper_has_no_words_for_is_no_row(every: dict[str, dict[str, object]]) -> None:
    assert all(row_of(every[name]) is None for name in ("skipinit", "stochastic_depth", "concat"))
    plain, residual = (row_of(every[name]) for name in ("plain", "residual"))
    assert plain is not None and (plain.shortcut, plain.branch) == PLAIN_ROW and plain.paper == ""
    assert residual == row_of(every["original"])


def runs_of(every: dict[str, dict[str, object]], names: list[str]) -> pd.DataFrame:
    rows = [
        every[name] | {"connection": name, "depth": depth, "seed": seed, "train_error": 0.1 * (i + seed) / depth,
                       "val_error": 0.2, "chance_error": 0.9, "diverged": name == "dropout" and seed == 1}
        for i, name in enumerate(names) for depth in (8, 20) for seed in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def table_of(every: dict[str, dict[str, object]], names: list[str]) -> pd.DataFrame:
    runs = runs_of(every, names)
    means = runs.groupby(["connection", "depth"])[["train_error", "val_error"]].mean().add_suffix("_mean").reset_index()
    means = means.assign(n=2, train_error_low=0.0, train_error_high=0.5, val_error_low=0.1, val_error_high=0.3)
    return read_csv(csv_bytes(shortcut_rows(means, runs)))


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_the_figure_has_the_papers_order(every: dict[str, dict[str, object]], style: Style) -> None:
    names = ["plain", "skipinit", "dropout", "conv", "exclusive_7", "exclusive_0", "original"]
    table = table_of(every, names)
    first = table.drop_duplicates("row")
    assert list(first["connection"]) == ["plain", "original", "exclusive_0", "exclusive_7", "conv", "dropout"]
    assert set(table["depth"]) == {20} and set(table["metric"]) == {"train_error", "val_error"}
    drawn = drawn_of("shortcut_table", table, style)
    check_texts(drawn)
    texts = [text for text, _ in drawn_texts(drawn)]
    assert texts.count("fail") == 2 and {"6.61", "9.81", "12.22", "dropout 0.5", "diverged"} <= set(texts)
    points = table.query("series == 'seed' and metric == 'train_error'")
    shown = [y for line in drawn.figure.axes[0].lines if line.get_marker() in ("o", "x") for y in line.get_xdata()]
    assert all(min(abs(100 * value - one) for one in shown) < 1e-4 for value in points["value"])


def test_the_table_of_text_has_both_errors_and_the_papers(every: dict[str, dict[str, object]]) -> None:
    text = shortcut_text_table(table_of(every, ["plain", "original", "dropout"]))
    assert [row[:4] for row in text.rows] == [
        ["none", "1", "2", "0"],
        ["1", "1", "2", "0"],
        ["dropout 0.5", "1", "2", "1"],
    ]
    assert [row[6] for row in text.rows] == ["–", "6.61", FAIL]
    assert text.rows[1][4] == "0.75 [0.00, 50.00]" and text.rows[1][5] == "20.00 [10.00, 30.00]"
    assert "compare the order of rows" in text.note and "Depth 20" in text.note


def test_a_study_without_such_shortcuts_has_no_such_figure(every: dict[str, dict[str, object]]) -> None:
    runs = runs_of(every, ["plain", "residual", "skipinit"])
    assert set(rows_of(runs)) == {"plain", "residual"}
    with pytest.raises(NothingToDraw, match="no shortcut of He et al"):
        shortcut_rows(runs, runs)
