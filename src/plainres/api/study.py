"""``plainres.load``: a study on disk as tables. Never imports PyTorch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.errors import UserError
from plainres.store import STUDY_FILE

if TYPE_CHECKING:
    import pandas as pd

    from plainres.analysis.load import LoadedStudy
    from plainres.api.compare import OwnClaim
    from plainres.api.evidence import Evidence

PUBLISHED = ("runs.csv", "degradation.csv", "evidence.json")  # what scripts/publish.py keeps of every study


def load(path: "str | Path | Study") -> "Study":
    """Read a study's folder.

    Args:
        path: such as ``results/depth``; or one that holds a published report only, such as
            ``results/published/depth-digits-mlp``, which has no curves and no layers (``PublishedStudy``).

    Raises:
        UserError: there is no study at ``path``.
    """
    if not isinstance(path, (str, os.PathLike, Study)):
        raise UserError(f"load({path!r}): must be the path of a study's folder, such as 'results/depth'")
    folder = Path(path.path if isinstance(path, Study) else path).expanduser().absolute()
    if not (folder / STUDY_FILE).exists() and all((folder / name).is_file() for name in PUBLISHED):
        from plainres.api.published import PublishedStudy

        return PublishedStudy(folder)
    return Study(folder)


class Study:
    """A study as it was on disk when it was loaded; load it again to see further runs.

    Attributes:
        path: the folder.
        runs: one row a run, sorted by setting, depth, connection, seed. Errors are fractions, times seconds. Columns:
            ``name``, ``run_id``, ``status``; ``setting`` (what else varies, ``all`` if nothing does), ``depth``,
            ``connection``, ``seed``; ``final_train_error``, ``final_val_error``, …; every setting by its dotted name.
        problems: one line for each folder that could not be read.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            UserError: ``path`` is no study.
        """
        from plainres.analysis.construction import with_outcomes
        from plainres.analysis.load import load_study

        self._loaded = with_outcomes(load_study(path))
        self.path = path
        self.runs = self._loaded.runs
        self.problems = list(self._loaded.problems)

    @property
    def name(self) -> str:
        """That of the folder."""
        return self.path.name

    def curves(self) -> "pd.DataFrame":
        """Everything that was evaluated while training.

        Returns:
            One row per run and evaluation: run_id, setting, connection, depth, seed, status, ``step`` (number of
            updates made), and a column for each metric of docs/metrics.md with scope run (``train_error``,
            ``val_error``, ``train_loss``, …; errors are fractions). A value that does not exist is NaN.

        Raises:
            UserError: a table cannot be read.
        """
        from plainres.analysis.tables import RUN_COLUMNS, load_evaluations

        rows, problems = load_evaluations(self._loaded, self.runs)
        _refuse(problems)
        wide = rows.pivot(index=[*RUN_COLUMNS, "step"], columns="metric", values="value")
        order = ["setting", "depth", "connection", "seed", "run_id", "step"]
        return wide.reset_index().rename_axis(columns=None).sort_values(order, ignore_index=True)

    def layers(self, metric: str) -> "pd.DataFrame":
        """What a probe measured, layer by layer or block by block.

        Args:
            metric: of docs/metrics.md with scope layer or block: ``grad_norm``, ``branch_ratio``, ``block_gain``, …

        Returns:
            One row per run, probed step and member of a scope: run_id, setting, connection, depth, seed, status, step,
            scope, layer_index, layer_name, ``value``, and ``reason`` where there is no value.

        Raises:
            UserError: the study holds no such metric, or a table cannot be read.
        """
        from plainres.analysis.tables import layer_metrics, load_metric

        rows, problems = load_metric(self._loaded, self.runs, metric)
        _refuse(problems)
        if rows.empty:
            known = layer_metrics(self._loaded, self.runs)
            what = (
                f"one of {', '.join(known)}" if known else "measured; these runs have no probes (probe=off), or no rows"
            )
            raise UserError(f"metric={metric}: must be {what}")
        return rows.drop(columns="metric").reset_index(drop=True)

    def degradation(self) -> "pd.DataFrame":
        """The verdict table: one row per setting, depth and connection.

        Returns:
            The columns of degradation.csv: ``train_error_mean`` with ``_low`` and ``_high`` (95 % t interval over
            seeds), ``degradation_*`` (this depth − the shallowest), ``gap_*`` (plain − this connection), each with its
            number of pairs ``_n``. Fractions, not percent.
        """
        from plainres.analysis.degradation import judge

        return judge(self.runs).table

    def evidence(self, beside: "Sequence[str | Path | Study]" = ()) -> "Evidence":
        """Every claim with its status, and the verdict, as in evidence.json; nothing is written.

        Args:
            beside: further studies whose runs test claims about this one (budget, learning rate, …).

        Raises:
            UserError: one of ``beside`` is no study on disk.
        """
        from plainres.api.evidence import Evidence
        from plainres.api.gathering import evidence_of

        return Evidence(evidence_of(self._loaded, [other._on_disk() for other in self._others(beside)]))

    def compare(
        self,
        metric: str,
        a: object,
        b: object,
        *,
        over: str = "connection",
        margin: float | None = None,
        direction: str = "above",
        comparisons: int = 1,
        **where: object,
    ) -> "OwnClaim":
        """Test a claim of your own: a − b, of pairs of runs that differ in one thing, with a paired t interval.

        ``study.compare("train_error", "plain", "residual", depth=50)`` asks whether plain has a higher training error;
        ``study.compare("train_error", 100, 10, over="depth", connection="plain")`` whether error rises with depth. By
        the rules of docs/evidence.md: the whole interval decides, fewer than three pairs decide nothing, and a run
        that diverged counts at chance level. Fix what you ask, and its margin, before you look.

        Args:
            metric: ``train_error``, ``val_error``, ``train_error_batchstats`` or ``train_error_running``, in percentage
                points; or ``train_loss``, in decades (log10 of the ratio), without runs that diverged.
            a, b: two values of ``over``.
            over: what the pairs differ in: ``connection``, ``depth``, or another setting, such as ``optimizer.lr``.
            margin: what counts as a difference, in the metric's unit; 1 if not given.
            direction: supported is ``above``: a − b above the margin; ``no_rise``: at or below it; ``within``: between
                − margin and + margin.
            comparisons: how many such claims you test together; each interval is widened so that all hold with 95 %.
            where: columns of ``runs`` with one value each: ``depth=50``, ``setting="lr=0.1"``.

        Returns:
            ``status``, ``effect``, ``low``, ``high``, ``unit``, ``n``, ``values`` by seed, ``why`` it is undecided.

        Raises:
            UserError: an unknown metric, column or value, no pair at all, or several pairs of one seed.
        """
        from plainres.api.compare import compare

        return compare(
            self.runs,
            metric,
            (a, b),
            over=over,
            margin=margin,
            direction=direction,
            comparisons=comparisons,
            where=where,
        )

    def report(self, beside: "Sequence[str | Path | Study]" = ()) -> Path:
        """Write tables and figures, as ``plainres report DIR --with …`` does.

        Returns:
            The folder they are in.

        Raises:
            UserError: it cannot be written, or one of ``beside`` is no study on disk.
        """
        from plainres.report.build import build_report

        return build_report(self.path, beside=[other.path for other in self._others(beside)]).folder

    def _others(self, beside: "Sequence[str | Path | Study]") -> "list[Study]":
        """Each of them once, and not this one."""
        studies = {other.path.resolve(): other for other in map(load, beside)}
        return [other for path, other in studies.items() if path != self.path.resolve()]

    def _on_disk(self) -> "LoadedStudy":
        """As another study's evidence reads it."""
        return self._loaded

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.runs["status"].value_counts().items())
        return f"<{type(self).__name__} {self.name}: {len(self.runs)} runs ({counts or 'none'}) in {self.path}>"


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{problems[0]}{more}")
