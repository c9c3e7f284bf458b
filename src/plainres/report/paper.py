"""`plainres figures`: the figures and tables of a report in the style of a paper or a poster.

    DIR/report/figures-<style>/        DIR/figures-<style>/ for a published folder, which has no runs
        <figure>.pdf, .png, .csv       in the style's sizes, fonts embedded
        captions.md                    one caption per figure, computed from what it draws
        table_degradation.tex, .md     final errors, degradation and gap
        table_evidence.tex, .md        every claim with status, effect, interval
        table_shortcuts.tex, .md       where the study has shortcuts of He et al. 2016

The report is built first, if need be, and its CSVs are what is drawn: both show the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plainres.errors import UserError, require
from plainres.figures.canvas import NothingToDraw
from plainres.figures.gallery import KINDS
from plainres.figures.redraw import NAME, SUFFIXES, Source, chosen, redraw, sources
from plainres.figures.save import read_csv
from plainres.figures.styles import REPORT, STYLES, Style
from plainres.report.captions import caption, read_runs
from plainres.report.latex import latex, markdown
from plainres.report.paper_tables import paper_tables
from plainres.store import STUDY_FILE, Study, clear_partial, write_atomic

Echo = Callable[[str], None]


@dataclass
class PaperResult:
    """What was written.

    Attributes:
        folder: where to; for the report's own style the folder of the report.
        figures: names of the figures.
        tables: names of the tables, each as .tex and .md.
        skipped: one line for each figure whose table has nothing to show.
    """

    folder: Path
    figures: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def draw_paper(
    path: str | Path,
    style: str = REPORT.name,
    only: Sequence[str] = (),
    beside: Sequence[str | Path] = (),
    echo: Echo = lambda line: None,
) -> PaperResult:
    """Draw a study, or a published folder, in a style.

    Args:
        path: a study's folder, whose report is drawn, and built first where it is missing, older than a run, or
            ``beside`` is given; or a published copy of a report, whose CSVs are drawn.
        style: a key of ``styles.STYLES``; with ``report`` the report's own figures are redrawn in place.
        only: kinds or names of figures; all if it is empty.
        beside: folders of other studies, as for a report.
        echo: called with a line for each thing that a user should know while it runs.

    Raises:
        UserError: no such style, figure or folder, a CSV that cannot be drawn, or a folder that cannot be written.
    """
    require(style in STYLES, "--style", style, f"one of {', '.join(STYLES)}")
    for name in only:
        require(NAME.fullmatch(name) is not None, "--only", name, f"one of {', '.join(KINDS)}")
    report = _report(Path(path), beside, echo)
    found = chosen(sources(report), only)
    if not found:
        raise UserError(f"{report}: there is no figure to draw; a study needs a finished run for one")
    look = STYLES[style]
    result = PaperResult(report if look is REPORT else report / f"figures-{look.name}")
    try:
        clear_partial(result.folder)
        _figures(result, found, look)
        if look is not REPORT:
            if not only:
                _remove_stale(result)
            _texts(result, report, found)
    except OSError as error:
        raise UserError(f"{result.folder}: cannot write the figures ({error.strerror or error})") from error
    return result


def _report(path: Path, beside: Sequence[str | Path], echo: Echo) -> Path:
    """The folder of the report that is drawn: one that is there and no older than its runs as it is, else a new one."""
    if (path / STUDY_FILE).exists():
        if not beside and _is_current(Study.open(path)):
            return Study.open(path).report_dir
        from plainres.report.build import build_report

        return build_report(path, echo, beside).folder
    if not any((path / "figures").glob("*.csv")):
        Study.open(path)  # says in one line why it is none
        raise UserError(f"{path}: neither a study nor a published report with figures/*.csv")
    require(
        not beside, "--with", " ".join(map(str, beside)), "left out", f"{path} is published and has no runs to judge"
    )
    return path


def _is_current(study: Study) -> bool:
    """Whether the report was written after every run; what was read beside the study stays in it."""
    evidence = study.report_dir / "evidence.json"
    if not evidence.is_file() or not any((study.report_dir / "figures").glob("*.csv")):
        return False
    runs = [run.path / "run.json" for run in study.runs()]
    return all(record.stat().st_mtime <= evidence.stat().st_mtime for record in runs if record.is_file())


def _figures(result: PaperResult, found: Sequence[Source], style: Style) -> None:
    for source in found:
        try:
            redraw(source, style, None if style is REPORT else result.folder)
            result.figures.append(source.name)
        except NothingToDraw as nothing:
            result.skipped.append(f"{source.name}: {nothing}")


def _texts(result: PaperResult, report: Path, found: Sequence[Source]) -> None:
    runs, tables = read_runs(report / "runs.csv"), {s.name: read_csv(s.path.read_bytes()) for s in found}
    drawn = [source for source in found if source.name in result.figures]
    captions = [f"## {s.name}\n\n{caption(s.kind, s.setting, tables[s.name], runs)}" for s in drawn]
    texts = {"captions.md": "\n\n".join(["# Captions", *captions]) + "\n"}
    shortcuts = {
        s.name.replace("shortcut_table", "table_shortcuts"): tables[s.name] for s in drawn if s.kind == "shortcut_table"
    }
    for name, table in paper_tables(report, shortcuts):
        texts |= {f"{name}.tex": latex(table), f"{name}.md": markdown(table)}
        result.tables.append(name)
    for name, text in texts.items():
        write_atomic(result.folder / name, text.encode())


def _remove_stale(result: PaperResult) -> None:
    """Delete figures of an earlier call that are no part of the report any more; other files are the user's."""
    for path in sorted(result.folder.iterdir()):
        if path.suffix in SUFFIXES and NAME.fullmatch(path.stem) and path.stem not in result.figures:
            path.unlink()
