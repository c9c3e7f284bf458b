"""What a study says, from its files alone: tables, verdict, claims, diagnosis, and what figures and page draw from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.analysis.audit import audit_table
from plainres.analysis.construction import with_outcomes
from plainres.analysis.curves import METRICS as DRAWN
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
from plainres.analysis.load import LoadedStudy, load_study
from plainres.analysis.near_identity import early_losses
from plainres.analysis.over_time import METRICS as PAGE
from plainres.analysis.over_time import MOST_VALUES, over_time
from plainres.analysis.pool import Pool
from plainres.analysis.results import usable
from plainres.figures.paper import METRICS, FigureTables
from plainres.report.page.parts import CURVES, Part
from plainres.rows import TABLES
from plainres.store import FINISHED

if TYPE_CHECKING:
    import pandas as pd

Echo = Callable[[str], None]
Draw = Callable[["ReportResult", str, FigureTables], None]


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
        pool: the runs of all of them.
        parts: what the page shows of each setting.
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
    pool: Pool = field(init=False)
    parts: list[Part] = field(default_factory=list)
    evidence: Evidence = field(default_factory=lambda: Evidence([], []))
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    figures: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def examine(
    path: str | Path,
    echo: Echo = lambda line: None,
    beside: Sequence[str | Path] = (),
    draw: "Draw | None" = None,
    num_studies: int = 1,
) -> ReportResult:
    """Everything that a study says, from its files; nothing is written but by ``draw``.

    Args:
        path: the study's folder.
        beside: folders of other studies, whose runs test claims about this one.
        echo: called with a line for each thing that a user should know while it runs.
        draw: called for every setting with the result so far, its label, and what figures draw from, while the large
            tables are in memory.
        num_studies: how many the page will show, which share its room.

    Raises:
        UserError: ``path`` is no study.
    """
    result = begin(with_outcomes(load_study(path)), _others(path, beside, echo))
    runs = result.loaded.runs
    room = MOST_VALUES // (num_studies * max(1, runs["setting"].nunique()))
    decide(result, {str(key): _look(result, str(key), part, draw, room) for key, part in runs.groupby("setting")})
    return result


def begin(loaded: LoadedStudy, others: Sequence[LoadedStudy]) -> ReportResult:
    """What a study's run.json files say, before any of its large tables is read.

    Args:
        loaded: the study.
        others: those read beside it.
    """
    declared = {str(key): declarations(runs, loaded.records) for key, runs in loaded.runs.groupby("setting")}
    problems = [*loaded.problems, *_lost_tables(loaded)]
    for other in others:
        problems += [f"{other.study.name}: {line}" for line in other.problems]
    audit = audit_table(loaded.runs, loaded.records)
    place = loaded.study.report_dir
    return ReportResult(loaded, judge(loaded.runs), audit, declared, place, list(others), problems=problems)


def decide(result: ReportResult, numbers: "dict[str, pd.DataFrame]") -> None:
    """Add the claims.

    Args:
        result: as from ``begin``.
        numbers: ``inside_values.measured`` of each setting.
    """
    runs = result.loaded.runs
    result.pool = _pool(result)
    result.evidence = gather(result.loaded.study.name, runs, result.audit, result.declared, numbers, result.pool)


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


def _look(result: ReportResult, setting: str, runs: "pd.DataFrame", draw: "Draw | None", room: int) -> "pd.DataFrame":
    """Read the tables of one setting, which are large, once: for its figures, the page, the diagnosis, the claims.

    Args:
        result: so far.
        setting: its label.
        runs: its runs.
        draw: see ``examine``.
        room: how many values of layers the page has room for.

    Returns:
        What the claims need of them (``inside_values.measured``).
    """
    inside = Inside(result.loaded, runs, list(dict.fromkeys([*METRICS, *CLAIM_METRICS, *DIAGNOSIS_METRICS, *PAGE])))
    every_curve, problems = curves(result.loaded, runs, tuple(CURVES))
    result.problems = list(dict.fromkeys(result.problems + problems + inside.problems))
    chain = gain_chain(inside)
    last_moving = max(inside.last_moving.values(), default=None)
    result.parts.append(Part(setting, every_curve, over_time(inside, room), chain, last_moving))
    if draw is not None:
        drawn_curves = every_curve[every_curve["metric"].isin(DRAWN)].reset_index(drop=True)
        rows, pairs = (table[table["setting"] == setting] for table in (result.verdict.table, result.verdict.pairs))
        used, profile, map_ = usable(runs), inside.profile, inside.map
        draw(result, setting, FigureTables(drawn_curves, rows, pairs, used, profile, map_, lambda: chain))
    result.diagnosis.extend(diagnose(result.loaded, runs, inside))
    return measured(inside)
