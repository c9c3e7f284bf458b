"""The whole report: files, stability, broken input, and what must not be imported."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fake_study import FakeStudy
from plainres.errors import UserError
from plainres.figures.paper import FIGURES
from plainres.pair import match
from plainres.report.across import slug
from plainres.report.build import build_report
from plainres.report.examine import ReportResult
from plainres.report.terminal import make_console, print_report
from plainres.store import Status

TEXTS = {f"{name}.{kind}" for name in ("evidence", "diagnosis") for kind in ("md", "json")}
FILES = {"degradation.csv", "runs.csv", "audit.csv", "summary.md", "index.html", "figures"} | TEXTS
SMALL = FakeStudy(depths=(4, 8), seeds=(0, 1), steps=60, probes=False)


def digest(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix in suffixes}


def terminal_text(result: ReportResult) -> str:
    text = io.StringIO()
    print_report(result, make_console(file=text))
    return text.getvalue()


def test_whole_report_without_the_training_side(tmp_path: Path) -> None:
    study = FakeStudy(depths=(8,), seeds=(0, 1), steps=60).write(tmp_path)
    code = (
        "import os, sys; os.cpu_count = lambda: 1; from plainres.cli import main; main(['report', sys.argv[1]]);"
        "bad = {'torch', 'hydra', 'omegaconf', 'wandb', 'matplotlib.pyplot'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, study], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and "onset of degradation" in done.stdout
    assert max(len(line.rstrip()) for line in done.stdout.splitlines() if line.lstrip().startswith("8 ")) <= 100
    report = study / "report"
    assert {p.name for p in report.iterdir()} == FILES
    figures = {p.name for p in (report / "figures").iterdir()}
    assert len(figures) == 3 * 14 and "training_curves.pdf" in figures


@pytest.mark.slow
def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    first = build_report(study)
    kept = digest(study / "report", ".csv", ".json", ".md", ".pdf", ".png")
    build_report(study)
    assert digest(study / "report", ".csv", ".json", ".md", ".pdf", ".png") == kept
    assert len(first.figures) == 5 and len(first.skipped) == len(FIGURES) - 5


@pytest.mark.usefixtures("without_figures")
def test_runs_csv_can_be_matched_again(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    build_report(study)
    runs = pd.read_csv(study / "report" / "runs.csv", dtype=str)
    assert match(runs, ["connection"]).groups.nunique() == 4
    assert match(runs, ["connection"]).unmatched.empty


@pytest.mark.usefixtures("without_figures")
def test_broken_folders_and_tables_do_not_stop_a_report(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    empty, tableless, *_ = sorted((study / "runs").iterdir())
    shutil.rmtree(empty)
    empty.mkdir()
    (tableless / "steps.parquet").write_bytes(b"")
    said: list[str] = []
    result = build_report(study, echo=said.append)
    assert len(said) == len(result.problems) == 2
    assert empty.name in said[0] and tableless.name in said[1]
    assert result.verdict.table["n"].sum() == 7
    summary = (study / "report" / "summary.md").read_text()
    assert empty.name in summary and tableless.name in summary


@pytest.mark.slow
def test_settings_have_figures_of_their_own(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4,), seeds=(0,), lrs=(0.03, 0.1), steps=60, probes=False).write(tmp_path)
    result = build_report(study)
    assert "training_curves-lr=0.03" in result.figures and "degradation-lr=0.1" in result.figures
    assert "lr=0.1" in terminal_text(result)
    assert slug("a/b=1, c=[2, 3]") == "a_b=1_c=_2_3"


@pytest.mark.slow
def test_stale_figures_go_and_the_users_files_stay(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    figures = study / "report" / "figures"
    figures.mkdir(parents=True)
    for name in ("heatmap_grad_norm.pdf", "degradation-lr=1.png", "mine.pdf", "degradation.svg"):
        (figures / name).touch()
    build_report(study)
    names = {p.name for p in figures.iterdir()}
    assert {"mine.pdf", "degradation.svg", "degradation.pdf"} <= names
    assert not {"heatmap_grad_norm.pdf", "degradation-lr=1.png"} & names


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_runs_that_start_from_a_trained_network_have_a_table_and_a_figure(tmp_path: Path) -> None:
    fake = replace(SMALL, depths=(10, 20), starts=((10, 0.0),), lrs=(0.03, 0.1))
    result = build_report(fake.write(tmp_path))
    table = pd.read_csv(result.folder / "construction.csv")
    assert len(table) == 8 and set(table["outcome"]) == {"kept"}
    assert result.figures == ["construction"] and (result.folder / "figures" / "construction.pdf").exists()
    runs = pd.read_csv(result.folder / "runs.csv")
    assert runs["construction_outcome"].notna().sum() == 8
    assert (
        "plain(start=10)" in terminal_text(result)
        and "1 of at least 3" not in (result.folder / "summary.md").read_text()
    )


@pytest.mark.usefixtures("without_figures")
def test_a_table_of_runs_that_are_gone_goes_too(tmp_path: Path) -> None:
    study = replace(SMALL, depths=(10, 20), starts=((10, 0.0),)).write(tmp_path)
    build_report(study)
    for folder in (study / "runs").glob("*-from010-*"):
        shutil.rmtree(folder)
    report = build_report(study).folder
    assert not (report / "construction.csv").exists() and not list((report / "figures").glob("construction*"))


def test_a_study_without_a_result_says_so(tmp_path: Path) -> None:
    every = {(arm, 4, 0): Status.PLANNED for arm in ("plain", "residual")}
    result = build_report(FakeStudy(depths=(4,), seeds=(0,), status=every).write(tmp_path))
    text = terminal_text(result)
    assert "no run is complete or diverged yet" in text and "2 planned" in text
    assert len(result.skipped) == len(FIGURES) and "2 planned" in (result.folder / "summary.md").read_text()


def test_a_study_without_runs(tmp_path: Path) -> None:
    result = build_report(FakeStudy(depths=()).write(tmp_path))
    assert "runs: none" in terminal_text(result)


@pytest.mark.usefixtures("without_figures")
def test_terminal_table(tmp_path: Path) -> None:
    status = {("plain", 8, 0): Status.DIVERGED, ("residual", 8, 1): Status.FAILED}
    errors = {("plain", 8, 1): 0.5}
    study = FakeStudy(depths=(4, 8), seeds=(0, 1), steps=60, probes=False, status=status, errors=errors)
    text = terminal_text(build_report(study.write(tmp_path)))
    assert "6 complete, 1 diverged, 1 failed" in text
    assert "2 (1 div)" in text and "+89.77 (n = 1)" in text and "…" not in text
    seconds = next(line for line in text.splitlines() if line.startswith("seconds, summed over runs: train"))
    numbers = [float(number) for number in re.findall(r" (\d+\.\d)", seconds)]
    assert sum(numbers[:-2]) == pytest.approx(numbers[-2], abs=0.4), "the parts are the total"
    assert "the runs do not decide whether plain networks train worse" in text
    assert "degradation       undecided" in text and "effect [interval]" in text


@pytest.mark.usefixtures("without_figures")
def test_terminal_of_several_connections_has_a_line_for_each(tmp_path: Path) -> None:
    study = FakeStudy(depths=(4, 8), connections=("plain", "residual", "highway"), seeds=(0,), steps=60, probes=False)
    lines = terminal_text(build_report(study.write(tmp_path))).splitlines()
    (head,) = [line for line in lines if "not_overfitting" in line and "comparable" in line and "|" not in line]
    (mine,) = [line for line in lines if line.startswith(" highway ")]
    assert mine.split()[1] == "yes" and mine[head.index("degradation")] == "?"


def test_unwritable_report_is_one_line(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    (study / "report").write_text("in the way")
    with pytest.raises(UserError, match="cannot write the report") as error:
        build_report(study)
    assert "\n" not in str(error.value)


def test_study_of_another_name_is_refused(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path)
    with pytest.raises(UserError, match="holds the study"):
        build_report(study.rename(tmp_path / "renamed"))


@pytest.mark.usefixtures("without_figures")
def test_odd_names(tmp_path: Path) -> None:
    study = SMALL.write(tmp_path / "with space [x] ä%", "a.b-c_1")
    folder = next((study / "runs").iterdir())
    folder.rename(folder.with_name("odd [red]name[bold] 100% ä"))
    result = build_report(study)
    assert len(result.loaded.runs) == 8 and not result.problems
    assert "[x]" in terminal_text(result)
    rows = pd.read_csv(study / "report" / "runs.csv")
    assert json.loads(rows["optimizer.betas"][0]) == [0.9, 0.999]


def test_a_lost_table_of_a_finished_run_is_named(tmp_path: Path, without_figures: None) -> None:
    path = SMALL.write(tmp_path)
    victim = sorted((path / "runs").iterdir())[0]
    (victim / "layers.parquet").unlink()
    result = build_report(path)
    assert [line for line in result.problems if victim.name in line and "layers.parquet is missing" in line]
    assert victim.name in (path / "report" / "summary.md").read_text()
