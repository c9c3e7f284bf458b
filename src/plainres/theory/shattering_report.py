"""`plainres shattering`: input gradients of trained runs, or of networks before training, as tables and a figure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.analysis.noise import half_lag
from plainres.data import Dataset, load
from plainres.errors import UserError, require
from plainres.figures.canvas import NothingToDraw
from plainres.figures.save import csv_bytes, save
from plainres.models.networks import Network
from plainres.report.terminal import make_console
from plainres.schema import RunConf
from plainres.seeding import set_determinism
from plainres.store import Study, clear_partial, write_atomic
from plainres.theory.shattering import POINTS, Shattering, shattering
from plainres.theory.together import arm_labels, check_cells, check_one_study
from plainres.theory.trained import initial_network, load_trained

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Echo = Callable[[str], None]
Compose = Callable[[Sequence[str]], RunConf]


@dataclass(frozen=True)
class Subject:
    """A network to measure: its arm in the table; ``moment`` is ``start`` (before training) or ``end``."""

    arm: str
    conf: RunConf
    moment: str
    network: Network
    data: Dataset


def shattering_report(
    what: Sequence[str], compose: Compose, echo: Echo, console: "Console | None" = None
) -> "pd.DataFrame":
    """Measure networks, print a table, and write ``<study>/report/shattering/``.

    Args:
        what: folders of complete runs of one study and setting, each measured before and after training (built ones
            only after it: their initial draws are not what they started from); or settings ``key=value,value`` of
            networks that need not be trained.
        compose: from settings to a checked config.
        echo: called with a line for each thing that a user should know.
        console: where the table goes.

    Returns:
        The table of summary.csv: connection, depth, seed, moment, lag_1 (the autocorrelation there), half_lag,
        example_cosine.

    Raises:
        UserError: a run or setting that cannot be used, or a folder that cannot be written.
    """
    import pandas as pd

    settings = [text for text in what if "=" in text and not Path(text).exists()]
    if settings and len(settings) < len(what):
        raise UserError("give the folders of runs, or settings key=value, not both")
    study, subjects = _of_settings(settings, compose) if settings else _of_runs(what, echo)
    curves, rows = [], []
    for subject in subjects:
        found = shattering(subject.network, subject.data)
        conf = subject.conf
        same = {"connection": subject.arm, "depth": conf.depth, "seed": conf.seed, "moment": subject.moment}
        curves += [same | {"lag": k, "autocorrelation": value} for k, value in enumerate(found.autocorrelation)]
        rows.append(same | _numbers(found))
    table, summary = pd.DataFrame(curves), pd.DataFrame(rows)
    folder = study.report_dir / "shattering"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_partial(folder)
        write_atomic(folder / "summary.csv", csv_bytes(summary))
        save("shattering", table.assign(points=POINTS), folder, "shattering")
    except NothingToDraw as nothing:
        echo(f"no figure: {nothing}")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); make room or it writable") from error
    _print(summary, console or make_console())
    echo(f"wrote {folder}")
    return summary


def _numbers(found: Shattering) -> dict[str, float]:
    curve = found.autocorrelation
    return {"lag_1": float(curve[1]), "half_lag": half_lag(curve), "example_cosine": found.example_cosine}


def _of_runs(paths: Sequence[str], echo: Echo) -> tuple[Study, Iterator[Subject]]:
    runs = [load_trained(path) for path in paths]
    check_one_study(runs)
    for run in runs:
        echo(f"{run.folder.name}: training error {run.intact['train_error']:.2%}, recorded: {run.recorded:.2%}")
        if run.conf.start.depth is not None:
            echo(f"{run.folder.name}: built from depth {run.conf.start.depth}, so measured only after training")

    def subjects() -> Iterator[Subject]:
        for run, arm in zip(runs, arm_labels([run.conf for run in runs]), strict=True):
            if run.conf.start.depth is None:
                device = str(next(run.network.parameters()).device)
                yield Subject(arm, run.conf, "start", initial_network(run.conf, run.data, device), run.data)
            yield Subject(arm, run.conf, "end", run.network, run.data)

    return runs[0].study, subjects()


def _of_settings(settings: Sequence[str], compose: Compose) -> tuple[Study, Iterator[Subject]]:
    choices = [_choices(text) for text in settings]
    confs = [compose(overrides) for overrides in product(*choices)]
    for conf in confs:
        built, why = conf.start.depth, "a built network starts from trained weights: give the folders of its runs"
        require(built is None, "start.depth", built, "null for networks before training", why)
    check_cells(confs)
    study = Study.create(confs[0].results_dir, confs[0].study)

    def subjects() -> Iterator[Subject]:
        for conf, arm in zip(confs, arm_labels(confs), strict=True):
            set_determinism(conf.trainer.threads, conf.trainer.deterministic, "cpu")
            data = load(conf.data)
            yield Subject(arm, conf, "start", initial_network(conf, data, "cpu"), data)

    return study, subjects()


def _choices(setting: str) -> list[str]:
    """``depth=10,20`` -> ``depth=10``, ``depth=20``; a list or a quoted value stays whole."""
    key, _, value = setting.partition("=")
    whole = any(mark in value for mark in "[{('\"")
    return [setting] if whole else [f"{key}={one}" for one in value.split(",")]


def _print(summary: "pd.DataFrame", console: "Console") -> None:
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    heads = ("depth", "connection", "seed", "at", "C(1)", "lag of C = 1/2", "cosine of examples")
    for name in heads:
        shown.add_column(name, justify="left" if name in ("connection", "at") else "right")
    for row in summary.sort_values(["moment", "depth", "connection", "seed"]).to_dict("records"):
        at = "before training" if row["moment"] == "start" else "trained"
        numbers = [f"{row['lag_1']:.3f}", f"{row['half_lag']:.1f}", f"{row['example_cosine']:.4f}"]
        shown.add_row(*(str(cell) for cell in (row["depth"], row["connection"], row["seed"], at, *numbers)))
    console.print(shown)
