"""`plainres figures`: folders, captions, tables that compile, and what a user gets wrong."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.cli import main
from plainres.errors import UserError
from plainres.figures.gallery import KINDS
from plainres.figures.paper import paper_figures
from plainres.figures.redraw import sources
from plainres.figures.save import read_csv
from plainres.report import build
from plainres.report.captions import LINES, caption, read_runs
from plainres.report.latex import TextTable, escape, latex, markdown
from plainres.report.paper import PaperResult, draw_paper
from plainres.report.paper_tables import paper_tables
from plainres.store import Status

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
STATUS = {("plain", 8, 0): Status.DIVERGED}
SMALL = FakeStudy(depths=(4, 8), seeds=(0, 1), steps=60, probes=False, status=STATUS)
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> PaperResult:
    study = SMALL.write(tmp_path_factory.mktemp("paper"))
    wanted = ["degradation", "paired_gap"]
    with pytest.MonkeyPatch.context() as patch:  # the report's other figures take most of its time
        few = "plainres.report.build.paper_figures"
        patch.setattr(few, lambda tables: [made for made in paper_figures(tables) if made[0] in wanted])
        return draw_paper(study, "icml", wanted)


def test_figures_captions_and_tables_of_a_study(drawn: PaperResult) -> None:
    assert drawn.folder.parts[-3:] == ("depth", "report", "figures-icml")
    assert drawn.figures == ["degradation", "paired_gap"] and drawn.tables == ["table_degradation", "table_evidence"]
    names = {f"{name}.{suffix}" for name in drawn.figures for suffix in ("csv", "pdf", "png")}
    names |= {f"{name}.{suffix}" for name in drawn.tables for suffix in ("tex", "md")} | {"captions.md"}
    assert {path.name for path in drawn.folder.iterdir()} == names
    for name in drawn.figures:  # the numbers are the report's
        assert (drawn.folder / f"{name}.csv").read_bytes() == (drawn.folder.parent / f"figures/{name}.csv").read_bytes()


def test_a_caption_names_arms_depths_seeds_and_marks(drawn: PaperResult) -> None:
    text = (drawn.folder / "captions.md").read_text()
    degradation, gap = text.split("\n## ")[1:]
    assert "Final clean training error against depth: plain and residual; depths 4 and 8." in degradation
    assert "Every seed and the mean of 2 seeds." in degradation and "95 % t intervals" in degradation
    assert "×: 1 run (plain 8) that diverged and counts at chance level." in degradation
    assert "60 steps" in degradation and "chance level, 89.8 %" in degradation
    assert "×: 1 pair with a run (residual 8) that diverged" in gap and "margin of 1 point" in gap


def test_every_figure_has_a_caption_and_every_published_one_gets_it() -> None:
    assert set(LINES) == set(KINDS)
    for report in sorted({path.parent.parent for path in PUBLISHED.rglob("figures/*.csv")}):
        runs = read_runs(report / "runs.csv")
        for source in sources(report):
            text = caption(source.kind, source.setting, read_csv(source.path.read_bytes()), runs)
            assert text.startswith(LINES[source.kind]) and re.search(r"Settings?: ", text), source.path
            assert text.endswith(".") and "nan" not in text and "\n" not in text and ".." not in text, text


def test_the_tables_hold_the_numbers_of_the_report(drawn: PaperResult) -> None:
    table = (drawn.folder / "table_degradation.md").read_text()
    rows = pd.read_csv(drawn.folder.parent / "degradation.csv")
    for row in rows.itertuples():
        assert (
            f"| {row.depth} | {row.connection} | {row.n} | {row.n_diverged} | {100 * row.train_error_mean:.2f} "
            in table
        )
    evidence = (drawn.folder / "table_evidence.md").read_text()
    assert (
        "| degradation | plain | undecided |" in evidence
        and "| comparable | residual | supported | 4 of 4 pairs |" in evidence
    )


def test_published_evidence_reads_as_in_its_own_page() -> None:
    (found,) = [t for name, t in paper_tables(PUBLISHED / "depth-digits-mlp", {}) if name == "table_evidence"]
    page = (PUBLISHED / "depth-digits-mlp" / "evidence.md").read_text()
    for row in found.rows:
        assert f"| {' | '.join(row)} |" in page


ODD = r"""a_b & 50 % $x$ #1 {c} ~ ^ \ <b> | "q" − ± ≥ √ ‖∂‖ ½ – é 中 ⁿ""" + "\t"


def test_latex_is_escaped() -> None:
    assert escape("a_b & 5 %") == r"a\_b \& 5 \%" and escape("中\n") == "U+4E2DU+000A"
    assert escape("\\{") == r"\textbackslash{}\{"
    assert escape("[-0.07, +1] d-1") == "[$-$0.07, +1] d-1"
    lines = latex(TextTable(["a", "b"], [["[1]", "x"], ["*", "y"]], frozenset({1}))).splitlines()
    assert lines[1] == r"\begin{tabular}{lr}" and lines[5] == r"{[1]} & x \\" and lines[6] == r"{*} & y \\"
    assert markdown(TextTable(["a"], [["x|y"]], frozenset(), "note")) == "| a |\n| --- |\n| x\\|y |\n\nnote\n"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_tables_compile(tmp_path: Path) -> None:
    odd = latex(TextTable(["x", ODD], [[ODD, "[1]"], ["*", ""]], frozenset({1}), ODD.strip()))
    texts = [latex(table) for report in PUBLISHED.iterdir() for _, table in paper_tables(report, {})]
    for i, text in enumerate([odd, *texts]):
        (tmp_path / f"{i}.tex").write_text(text)
    body = "\n".join(rf"\input{{{i}.tex}}\newpage" for i in range(len(texts) + 1))
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}"
    (tmp_path / "all.tex").write_text(f"{head}\\begin{{document}}{body}\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and (tmp_path / "all.pdf").exists(), done.stdout[-2000:]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A published report with one figure."""
    whole, part = PUBLISHED / "depth-digits-mlp", tmp_path / "published"
    (part / "figures").mkdir(parents=True)
    for name in ("runs.csv", "degradation.csv", "evidence.json", "figures/paired_gap.csv"):
        shutil.copy(whole / name, part / name)
    return part


def test_a_published_folder_is_drawn_from_its_csvs(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (published / "figures-neurips").mkdir()
    for name in ("degradation.pdf", "mine.pdf", "notes.md"):
        (published / "figures-neurips" / name).touch()
    main(["figures", str(published), "--style", "neurips"])
    out = capsys.readouterr().out
    assert out == f"1 figures as PDF, PNG and CSV, 2 tables and captions.md: {published}/figures-neurips\n"
    names = {path.name for path in (published / "figures-neurips").iterdir()}
    assert {"paired_gap.pdf", "mine.pdf", "notes.md", "captions.md"} <= names and "degradation.pdf" not in names
    main(["figures", str(published)])
    picture = PUBLISHED / "depth-digits-mlp" / "figures" / "paired_gap.png"
    assert (published / "figures" / "paired_gap.png").read_bytes() == picture.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--style", "nature"], "--style=nature: must be one of report, he2015, poster, icml, neurips"),
        (["--only", "nope"], "--only=nope: must be one of training_curves, "),
        (["--only", "jacobian"], "--only jacobian: no such figure here; there are: paired_gap"),
        (["--with", "results/budget"], "--with=results/budget: must be left out"),
    ],
    ids=["style", "kind", "figure", "with"],
)
def test_a_mistake_is_one_line(
    published: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["figures", str(published), *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and said in error and error.count("\n") == 1
    assert sorted(path.name for path in published.iterdir()) == [
        "degradation.csv",
        "evidence.json",
        "figures",
        "runs.csv",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_report_that_is_no_older_than_its_runs_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = FakeStudy(depths=(4, 8), seeds=(0,), steps=60, probes=False).write(tmp_path)
    built: list[Path] = []
    whole = build.build_report

    def noted(path: Path, *settings: object) -> object:
        built.append(path)
        return whole(path)

    monkeypatch.setattr(build, "build_report", noted)
    for _ in range(2):  # a report without a figure is made anew each time: there might be one now
        with pytest.raises(UserError, match="there is no figure to draw"):
            draw_paper(study, "icml")
    assert len(built) == 2
    figures = study / "report" / "figures"
    figures.mkdir(exist_ok=True)
    shutil.copy(PUBLISHED / "depth-digits-mlp" / "figures" / "paired_gap.csv", figures)
    draw_paper(study, "icml")
    assert len(built) == 2 and (study / "report" / "figures-icml" / "paired_gap.pdf").is_file()
    record = next(study.glob("runs/*/run.json"))
    later = (study / "report" / "evidence.json").stat().st_mtime + 5
    os.utime(record, (later, later))
    with pytest.raises(UserError, match="there is no figure to draw"):
        draw_paper(study, "icml")
    assert len(built) == 3
