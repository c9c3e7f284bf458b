"""Every figure, also with diverged and unfinished runs: no texts overlap, equal tables give equal bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from drawing import check_texts, draw, drawn_of, drawn_texts, table_of, tables_of
from fake_study import FakeStudy
from plainres.analysis.construction import construction_curves
from plainres.analysis.curves import curves
from plainres.analysis.load import load_study
from plainres.figures import axes
from plainres.figures.canvas import NothingToDraw, styled
from plainres.figures.gallery import draw as draw_kind
from plainres.figures.paper import FIGURES, FigureTables, paper_figures
from plainres.figures.save import save
from plainres.figures.style import arm_styles, depth_shades
from plainres.figures.styles import REPORT
from plainres.store import Status

ODD = {("plain", 50, 0): Status.DIVERGED, ("residual", 20, 1): Status.FAILED}
ARMS = ("plain", "residual", "highway", "skipinit")
STUDIES = {
    "default": FakeStudy(depths=(10, 20, 50), seeds=(0, 1), steps=150, status=ODD),
    "smoke": FakeStudy(depths=(10, 20), seeds=(0,), steps=60),
    "one": FakeStudy(depths=(10,), seeds=(0,), connections=("residual",), steps=60),
    "arms": FakeStudy(depths=(8, 10, 14), seeds=(0, 1), connections=ARMS, steps=60),
}
MANY = ("plain", "residual", "concat", "constant_scaling", "dropout_shortcut", "highway", "layerscale", "projected",
        "stochastic_depth")  # fmt: skip
STUDIES |= {
    "many": FakeStudy(depths=(10, 20), seeds=(0, 1), connections=MANY, steps=60, status=ODD),
    "many_at_one": FakeStudy(depths=(10,), seeds=(0, 1), connections=MANY, steps=60),
    "long": FakeStudy(depths=(10, 20), seeds=(0,), connections=(*MANY[:5], "stochastic_depth"), steps=60),
}
BUILT = FakeStudy(depths=(10, 50, 100), seeds=(0, 1), steps=60, starts=((10, 0.0), (10, 0.1)))
STUDIES["built"] = BUILT
STUDIES["one_built"] = FakeStudy(depths=(10, 20), seeds=(0,), connections=("plain",), steps=60, starts=((10, 0.0),))
DIVERGED = {(arm, depth, 0): Status.DIVERGED for arm in ARMS for depth in (10, 20)}
STUDIES["diverged"] = FakeStudy(depths=(10, 20), seeds=(0, 1), connections=ARMS, steps=60, status=DIVERGED)
NO_SHORTCUTS = "shortcut_table"  # these studies have none of the paper's; tests/figures/test_shortcuts.py draws it
CASES = [("default", name) for name in FIGURES if name != NO_SHORTCUTS]
CASES += [("many", name) for name in ("degradation", "profiles_grad_norm", "response_std")]
ABSENT = (NO_SHORTCUTS, "profiles_branch_over_input")
FURTHER = [("many", name) for name in FIGURES if ("many", name) not in CASES and name not in ABSENT]
FURTHER += [(study, name) for study in ("one_built", "diverged") for name in ("degradation", "profiles_grad_norm")]
FURTHER += [("built", name) for name in ("degradation", "training_curves", "profiles_grad_norm")]
FURTHER += [
    ("arms", name)
    for name in ("training_curves", "degradation", "trunk_growth", "heatmap_branch_ratio", "gain_chain", "jacobian")
]
FURTHER += [("many_at_one", "degradation"), ("long", "degradation"), ("long", "profiles_grad_norm")]
FURTHER += [
    ("one", "degradation"),
    ("one", "training_curves"),
    ("one", "response_std"),
    ("one", "gain_chain"),
    ("one", "jacobian"),
    ("smoke", "profiles_update_ratio"),
]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER]


class Tables(dict[str, FigureTables]):
    """The tables of each study, made when they are first asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, name: str) -> FigureTables:
        self[name] = tables_of(replace(STUDIES[name], gains=True).write(self.root, name))
        return self[name]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("studies"))


@pytest.mark.parametrize(("study", "name"), CASES)
def test_texts_are_whole_and_do_not_overlap(tables: dict[str, FigureTables], study: str, name: str) -> None:
    drawn = draw(tables[study], name)
    assert len(drawn.table)
    check_texts(drawn)


@pytest.mark.parametrize(
    ("lrs", "seeds", "depths"),
    [
        ((0.01, 0.03, 0.1), (0, 1), (10, 50, 100)),
        ((0.03,), (0,), (10, 50)),
        ((0.01, 0.02, 0.03, 0.05, 0.1), (0,), (10, 50)),
    ],
    ids=["rates", "one", "many rates"],
)
def test_texts_of_the_construction_figure(
    tmp_path: Path, lrs: tuple[float, ...], seeds: tuple[int, ...], depths: tuple[int, ...]
) -> None:
    fake = replace(BUILT, lrs=lrs, seeds=seeds, depths=depths, probes=False, connections=("plain",))
    loaded = load_study(fake.write(tmp_path))
    parts = [
        construction_curves(curves(loaded, part)[0]).assign(setting=str(setting))
        for setting, part in loaded.runs.groupby("setting")
    ]
    drawn = drawn_of("construction", pd.concat(parts, ignore_index=True))
    assert len(drawn.figure.axes) == len(lrs) * (len(depths) - 1)
    assert set(drawn.table["connection"]) == {"plain", "plain(start=10)", "plain(start=10, noise=0.1)"}
    check_texts(drawn)


def test_a_construction_figure_needs_constructed_runs(tables: dict[str, FigureTables]) -> None:
    nothing = construction_curves(tables["default"].curves).assign(setting="all")
    with pytest.raises(NothingToDraw, match="starts from a trained network"):
        draw_kind("construction", nothing)


def test_built_networks_have_the_colour_of_their_arm_and_marks_of_their_own() -> None:
    names = ["plain", "plain(start=10)", "plain(start=10, noise=0.1)", "residual", "residual(start=10)"]
    styles = arm_styles(names)
    assert list(styles) == names and styles["plain"] == arm_styles(["plain"])["plain"]
    assert styles["residual"] == arm_styles(["plain", "residual"])["residual"]
    plain = [styles[name] for name in names[:3]]
    assert len({str(s.colour) for s in plain}) == len({s.marker for s in plain}) == 3
    assert str(styles["residual(start=10)"].colour) != str(styles["plain(start=10)"].colour)


def test_the_list_of_names_is_complete(tables: dict[str, FigureTables]) -> None:
    assert [name for name, _ in paper_figures(tables["one"])] == FIGURES


def test_equal_tables_give_equal_bytes(tables: dict[str, FigureTables], tmp_path: Path) -> None:
    for name in ("training_curves", "heatmap_grad_norm"):
        table = table_of(tables["smoke"], name)
        first, again = ([p.read_bytes() for p in save(name, table, tmp_path / str(i), name)] for i in range(2))
        assert first == again


def test_branch_ratio_shows_only_arms_with_an_addition(tables: dict[str, FigureTables]) -> None:
    assert set(draw(tables["default"], "profiles_branch_ratio").table["connection"]) == {"residual"}
    assert set(draw(tables["default"], "heatmap_branch_ratio").table["connection"]) == {"residual"}
    assert set(draw(tables["default"], "profiles_branch_over_input").table["connection"]) == {"plain"}


@pytest.mark.parametrize("place", ["block", "distance"])
@pytest.mark.parametrize("depths", [(8,), (8, 14), (8, 14, 20)])
@pytest.mark.parametrize("arms", [("plain", "residual"), ("plain", "plain(start=4)", "residual"), ARMS])
def test_texts_of_the_lesion_figure(place: str, depths: tuple[int, ...], arms: tuple[str, ...]) -> None:
    error = [None if place == "block" else 0.5, *np.linspace(0.1, 0.9, 8)]  # a block that cannot be deleted
    rows = [
        {"connection": arm, "depth": depth, "seed": seed, place: where, "train_error": error[where],
         "val_error": 0.2, "intact_train_error": 0.01, "intact_val_error": 0.1, "chance_error": 0.9}
        for arm in arms for depth in depths for seed in (0, 1) for where in range((depth - 2) // 2)
    ]  # fmt: skip
    check_texts(drawn_of({"block": "lesion_delete", "distance": "lesion_swap"}[place], pd.DataFrame(rows)))


def test_legend_columns_count_the_columns_that_are_drawn() -> None:
    """Four entries in three columns stand as 2 + 1 + 1, and not as 2 + 2."""
    names = ["short", "short", "an entry that is a good deal longer", "an entry that is a good deal longer"]
    handles = [axes.grey_handle(name) for name in names]
    with styled(REPORT):
        widths = []
        for columns in (1, 2, 3, 4):
            figure = axes.panels(REPORT, 1, 1, 10, 1, axes.Layout())[0]
            widths.append(axes.legend_above(figure, handles, columns).get_window_extent().width / figure.dpi)
        assert widths == sorted(widths) and widths[2] > 1.1 * widths[1]
        for columns, width in enumerate(widths, 1):
            assert axes.legend_columns(handles, 4, width + 0.06) == columns
            assert axes.legend_columns(handles, columns, width - 0.05) == max(columns - 1, 1)


def test_the_gain_chain_is_drawn_over_the_scalar_chains(tables: dict[str, FigureTables]) -> None:
    drawn = draw(tables["default"], "gain_chain")
    for ax in drawn.figure.axes:
        lines = [(line.get_xdata(), line.get_ydata()) for line in ax.lines]
        ends = [y[-1] for x, y in lines if len(x) == 200 and x[-1] == 24]
        wanted = [d**24 for d in (0.8, 0.9, 0.98, 1, 1.02, 1.1, 1.25)]
        assert sorted(ends) == pytest.approx(wanted)
        steep = [y for _, y in lines if len(y) == 25]
        assert len(steep) == 2 and all(y[0] == 1 for y in steep), "one chain of 24 blocks in each arm"
    assert set(drawn.table["moment"]) == {"start", "end"}
    texts = [text for text, _ in drawn_texts(drawn)]
    assert texts.count("0.98ⁿ") == texts.count("1ⁿ") == texts.count("1.02ⁿ") == 2, "once in each panel"


@pytest.mark.parametrize("study", ["default", pytest.param("many", marks=pytest.mark.slow)])
def test_a_band_that_leaves_the_panel_says_so(tables: dict[str, FigureTables], study: str) -> None:
    def says_so(table: pd.DataFrame) -> bool:
        drawn = drawn_of("gain_chain", table)
        check_texts(drawn)
        return any("bands cut at an edge go on" in text.replace("\n", " ") for text, _ in drawn_texts(drawn))

    table = table_of(tables[study], "gain_chain")
    low = table["low"].where(table["num_blocks"] < 5, 1e-11)
    assert not says_so(table.assign(low=low))
    assert says_so(table.assign(low=low.where(low > 1e-11, 3e-13)))


def test_singular_values_of_the_deepest_blocks_and_end_to_end(tables: dict[str, FigureTables]) -> None:
    drawn = draw(tables["default"], "jacobian")
    per_block, _, trunk = drawn.figure.axes[:3]
    assert {len(line.get_xdata()) for line in per_block.lines if line.get_linestyle() not in ("None", "-")} == {24}
    last = drawn.table[(drawn.table["metric"] == "end_to_end_top") & (drawn.table["moment"] == "start")]
    drawn_values = [line.get_ydata()[-1] for line in trunk.lines if len(line.get_xdata()) == 3]
    assert set(last.loc[last["depth"] == 50, "value"]) <= set(drawn_values)


def test_a_chain_without_a_gradient_ends_with_a_mark(tables: dict[str, FigureTables]) -> None:
    table = tables["default"].chain()
    gone = (table["connection"] == "plain") & (table["num_blocks"] > 3)
    cut = table.assign(n_ended=2 * gone, n_seeds=table["n_seeds"].where(~gone, 0), value=table["value"].where(~gone))
    drawn = drawn_of("gain_chain", cut)
    assert any(text.startswith("from here on exactly 0") for text, _ in drawn_texts(drawn))
    ends = [line.get_xdata()[0] for line in drawn.figure.axes[0].lines if line.get_marker() == "x"]
    assert ends == [3, 3, 3], "three depths of the plain arm"
    nothing = cut.assign(n_seeds=0)
    with pytest.raises(NothingToDraw, match="no gradient passes a block"):
        draw_kind("gain_chain", nothing)


def test_depth_ticks_stand_at_the_depths(tables: dict[str, FigureTables]) -> None:
    ax = draw(tables["default"], "degradation").figure.axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["10", "20", "50"]
    assert ax.get_ylim()[0] == 0


def test_empty_tables_say_what_is_missing(tmp_path: Path) -> None:
    every = {(arm, 4, 0): Status.PLANNED for arm in ("plain", "residual")}
    empty = tables_of(FakeStudy(depths=(4,), seeds=(0,), status=every).write(tmp_path))
    for name in FIGURES:
        with pytest.raises(NothingToDraw) as nothing:
            draw(empty, name)
        assert "\n" not in str(nothing.value)


def test_zeros_are_marked_not_drawn_as_small(tables: dict[str, FigureTables]) -> None:
    profile = tables["smoke"].profile("grad_norm")
    first = profile["layer_index"] == 0
    dead = profile.assign(
        value=profile["value"].where(~first), low=profile["low"].where(~first), high=profile["high"].where(~first),
        n=profile["n"].where(~first, 0), n_zero=first.astype(int),
    )  # fmt: skip
    drawn = drawn_of("profiles_grad_norm", dead)
    check_texts(drawn)
    figure = drawn.figure
    labels = [t for t, _ in drawn_texts(drawn)]
    assert "exactly 0 in some seed" in labels
    assert np.isnan(figure.axes[0].lines[0].get_ydata()[0])


@pytest.mark.parametrize(("low", "high"), [(0.8, 1.2), (1, 1), (0.03, 2.5), (1e-9, 1e7), (0.99, 1.01), (3e-4, 2e-3)])
def test_log_axes_have_a_few_ticks(low: float, high: float) -> None:
    ticks = axes.log_ticks(low / 1.25, high * 1.25)
    assert 2 <= len(ticks) <= 7
    assert all(low / 1.25 <= value <= high * 1.25 for value, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)


def test_close_depths_are_spread_evenly() -> None:
    assert axes.depth_positions([18, 19, 200]) == {18: 0.0, 19: 1.0, 200: 2.0}
    positions = axes.depth_positions([10, 20, 50, 100])
    assert positions[20] - positions[10] == pytest.approx(positions[100] - positions[50])
    assert axes.depth_positions([7]) == {7: 0.0}


def test_arms_differ_in_colour_line_and_marker() -> None:
    styles = arm_styles(["plain", "residual", "highway", "skipinit"])
    for look in ("colour", "line", "marker"):
        assert len({str(getattr(s, look)) for s in styles.values()}) == 4
    assert arm_styles(["residual"])["residual"] == styles["residual"]


def test_deeper_is_darker() -> None:
    shades = depth_shades("#0072B2", [10, 20, 50, 100])
    lightness = [0.3 * r + 0.59 * g + 0.11 * b for r, g, b in shades.values()]
    assert lightness == sorted(lightness, reverse=True)
    assert min(np.diff(lightness[::-1])) > 0.05
