"""`plainres report`: every table and figure of a study, from its files alone.

    results/<study>/report/
        degradation.csv   one row per setting, depth and connection: errors, degradation, gap, with intervals
        runs.csv          one row per run
        audit.csv         one row per matched pair
        construction.csv  one row per run that starts from a trained network, where there are any (docs/construction.md)
        summary.md        the result in words, and how it was computed
        evidence.json     the verdict, and every claim with its interval, rule, runs and status
        evidence.md       the same for a reader
        diagnosis.json    what the numbers of each run show (docs/diagnosis.md), with layers, steps, what to try
        diagnosis.md      the same for a reader
        figures/          PDF, PNG and the CSV each figure drew

Every file is replaced as a whole. The CSVs have equal bytes for equal runs.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.analysis.audit import audit_table
from plainres.analysis.construction import with_outcomes
from plainres.analysis.curves import curves
from plainres.analysis.declared import Declaration, declarations
from plainres.analysis.degradation import Verdict, judge
from plainres.analysis.diagnosis import Diagnosis, diagnose
from plainres.analysis.diagnosis_values import METRICS as DIAGNOSIS_METRICS
from plainres.analysis.evidence import Evidence, gather
from plainres.analysis.gain_chain import gain_chain
from plainres.analysis.inside import Inside
from plainres.analysis.inside_values import METRICS as CLAIM_METRICS
from plainres.analysis.inside_values import measured
from plainres.analysis.load import LoadedStudy, identity_names, load_study
from plainres.analysis.near_identity import early_losses
from plainres.analysis.pool import Pool
from plainres.analysis.results import usable
from plainres.analysis.settings import ONLY_SETTING
from plainres.errors import UserError
from plainres.figures.canvas import NothingToDraw
from plainres.figures.construction import NAME as CONSTRUCTION
from plainres.figures.paper import FIGURES, METRICS, FigureTables, paper_figures
from plainres.figures.save import csv_bytes, save
from plainres.report.across import ACROSS, draw_across, slug
from plainres.report.construction import write_construction
from plainres.report.diagnosis import write_diagnosis
from plainres.report.evidence import evidence_document
from plainres.report.evidence_text import evidence_text
from plainres.report.summary import summary_text
from plainres.rows import TABLES
from plainres.store import FINISHED, write_atomic, write_json

if TYPE_CHECKING:
    import pandas as pd

Echo = Callable[[str], None]


@dataclass
class ReportResult:
    """What a report found and wrote.

    Attributes:
        loaded: the study's runs, and the folders that could not be read (``loaded.problems``).
        verdict: degradation table, onset depths, runs left out.
        audit: the table of audit.csv.
        declared: for each setting, what its connections declare; those that declare nothing are absent.
        evidence: the claims and what they add up to.
        diagnosis: what the numbers of the runs show.
        folder: where the report is.
        others: the studies read beside it.
        figures: names of the figures written, without suffix.
        skipped: (figure, reason) for each figure that the study has no data for.
        problems: one line for each folder or table that could not be read.
        seconds: wall time of building the report.
    """

    loaded: LoadedStudy
    verdict: Verdict
    audit: "pd.DataFrame"
    declared: dict[str, dict[str, Declaration]]
    folder: Path
    others: list[LoadedStudy] = field(default_factory=list)
    evidence: Evidence = field(default_factory=lambda: Evidence([], []))
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    figures: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def build_report(path: str | Path, echo: Echo = lambda line: None, beside: Sequence[str | Path] = ()) -> ReportResult:
    """Write ``<study>/report/`` anew.

    Args:
        path: the study's folder.
        beside: folders of other studies, whose runs test claims about this one.
        echo: called with a line for each thing that a user should know while it runs.

    Raises:
        UserError: ``path`` is no study, or the report cannot be written (folder, disk).
    """
    start = time.perf_counter()
    loaded = with_outcomes(load_study(path))
    others = _others(path, beside, echo)
    verdict = judge(loaded.runs)
    audit = audit_table(loaded.runs, loaded.records)
    declared = {str(key): declarations(runs, loaded.records) for key, runs in loaded.runs.groupby("setting")}
    problems = [*loaded.problems, *_lost_tables(loaded)]
    for other in others:
        problems += [f"{other.study.name}: {line}" for line in other.problems]
    result = ReportResult(loaded, verdict, audit, declared, loaded.study.report_dir, others, problems=problems)
    try:
        result.folder.mkdir(parents=True, exist_ok=True)
        _write_tables(result)
        numbers = {str(key): _draw(result, str(key), runs) for key, runs in loaded.runs.groupby("setting")}
        pool = _pool(result)
        draw_across(result, pool)
        write_construction(result)
        _remove_stale(result)
        result.evidence = gather(loaded.study.name, loaded.runs, audit, declared, numbers, pool)
        write_json(result.folder / "evidence.json", evidence_document(result))
        write_atomic(result.folder / "evidence.md", evidence_text(result).encode())
        write_diagnosis(result)
        write_atomic(result.folder / "summary.md", summary_text(result).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"{result.folder}: cannot write the report ({reason}); make room or the folder writable"
        ) from error
    for line in result.problems:
        echo(f"left out: {line}")
    result.seconds = time.perf_counter() - start
    return result


def _others(path: str | Path, beside: Sequence[str | Path], echo: Echo) -> list[LoadedStudy]:
    """The studies to read beside this one, each once."""
    seen, others = {Path(path).resolve()}, []
    for other in beside:
        if Path(other).resolve() in seen:
            echo(f"--with {other}: is read already")
            continue
        seen.add(Path(other).resolve())
        others.append(with_outcomes(load_study(other)))
    return others


def _pool(result: ReportResult) -> Pool:
    """The runs of all studies, with what their tables say of how training began."""
    early: dict[str, float] = {}
    for one in (result.loaded, *result.others):
        found, problems = early_losses(one)
        early |= found
        result.problems += problems
    return Pool.of(result.loaded.runs, [one.runs for one in result.others], early)


def _lost_tables(loaded: LoadedStudy) -> list[str]:
    """One line for each table that a finished run should have and has not."""
    names = loaded.runs.loc[loaded.runs["status"].isin([str(s) for s in FINISHED]), "folder"]
    lost = []
    for folder in (loaded.study.run_folder(name) for name in names):
        for table in TABLES:
            kept = [folder.path / f"{table}.{ending}" for ending in ("parquet", "jsonl")]
            if not any(path.exists() for path in kept):
                lost.append(f"runs/{folder.name}: {table}.parquet is missing; delete the folder and run it again")
    return lost


def _write_tables(result: ReportResult) -> None:
    runs = result.loaded.runs.drop(columns="folder")
    lists = {name: runs[name].map(_cell_text) for name in identity_names() if name not in ("depth", "seed")}
    first = ["name", "status", "setting", "depth", "connection", "seed", "model"]
    columns = [*first, *[name for name in runs.columns if name not in first]]
    tables = {"degradation": result.verdict.table, "runs": runs.assign(**lists)[columns], "audit": result.audit}
    for name, table in tables.items():
        write_atomic(result.folder / f"{name}.csv", csv_bytes(table))


def _cell_text(value: object) -> object:
    """A list as JSON; numbers by their shortest exact text, so that an id can be computed again from runs.csv."""
    return json.dumps(value) if isinstance(value, list | float) else value


def _draw(result: ReportResult, setting: str, runs: "pd.DataFrame") -> "pd.DataFrame":
    """Draw every figure of one setting; with several settings each has its name in the file names.

    Returns:
        What the claims need of the same layer tables (``inside_values.measured``), which are large and read once.
    """
    used = usable(runs)
    inside = Inside(result.loaded, runs, list(dict.fromkeys([*METRICS, *CLAIM_METRICS, *DIAGNOSIS_METRICS])))
    drawn_curves, problems = curves(result.loaded, runs)
    result.problems = list(dict.fromkeys(result.problems + problems + inside.problems))
    rows, pairs = (table[table["setting"] == setting] for table in (result.verdict.table, result.verdict.pairs))
    tables = FigureTables(drawn_curves, rows, pairs, used, inside.profile, inside.map, lambda: gain_chain(inside))
    suffix = "" if setting == ONLY_SETTING else f"-{slug(setting)}"
    for name, make in paper_figures(tables):
        try:
            save(name, make(), result.folder / "figures", f"{name}{suffix}")
            result.figures.append(f"{name}{suffix}")
        except NothingToDraw as nothing:
            result.skipped.append((f"{name}{suffix}", str(nothing)))
    result.diagnosis.extend(diagnose(result.loaded, runs, inside))
    return measured(inside)


def _remove_stale(result: ReportResult) -> None:
    """Delete figures of an earlier report that this one did not draw; files of other names are the user's."""
    known = re.compile(rf"({'|'.join([*FIGURES, *ACROSS, CONSTRUCTION])})(-.*)?")
    for path in sorted((result.folder / "figures").glob("*")):
        ours = path.suffix in (".pdf", ".png", ".csv") and known.fullmatch(path.stem)
        if ours and path.stem not in result.figures:
            path.unlink()
