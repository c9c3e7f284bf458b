"""The figures of one setting of a study: which there are, in which order, and the table each one draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plainres.figures.gallery import PER_LAYER
from plainres.figures.jacobian import METRICS as JACOBIAN
from plainres.figures.many import deepest_of_many
from plainres.figures.shortcuts import shortcut_rows
from plainres.figures.tables import (
    degradation_rows,
    gain_chain_rows,
    jacobian_rows,
    log_curve_rows,
    map_rows,
    paired_gap_rows,
    plain_curve_rows,
    response_std_rows,
)

if TYPE_CHECKING:
    import pandas as pd

METRICS = [
    *[(scope, metric) for metric, (scope, _, _) in PER_LAYER.items()],
    ("block", "branch_over_input"),
    ("block", "output_norm"),
    ("layer", "response_std"),
    ("block", "block_gain"),
    *JACOBIAN,
]
FIGURES = [
    "training_curves",
    "training_curves_log",
    "plain_curves",
    "degradation",
    "paired_gap",
    "shortcut_table",
    *[f"{kind}_{metric}" for metric in PER_LAYER for kind in ("profiles", "heatmap")],
    "profiles_branch_over_input",
    "trunk_growth",
    "response_std",
    "gain_chain",
    "jacobian",
]


@dataclass(frozen=True)
class FigureTables:
    """What the figures of one setting draw from; each is called only when its figure is drawn.

    Attributes:
        curves: ``analysis.curves.curves``.
        degradation: rows of degradation.csv.
        pairs: rows of ``Verdict.pairs``.
        seeds: final errors of the finished runs.
        profile: metric -> ``analysis.profiles.profiles``.
        map: metric -> ``analysis.profiles.maps`` of the deepest nets.
        chain: -> ``analysis.gain_chain.gain_chain``.
    """

    curves: "pd.DataFrame"
    degradation: "pd.DataFrame"
    pairs: "pd.DataFrame"
    seeds: "pd.DataFrame"
    profile: Callable[[str], "pd.DataFrame"]
    map: Callable[[str], "pd.DataFrame"]
    chain: Callable[[], "pd.DataFrame"]


def paper_figures(tables: FigureTables) -> Iterator[tuple[str, Callable[[], "pd.DataFrame"]]]:
    """Name (a key of ``gallery.KINDS``) and maker of the table of every figure.

    A maker, or the drawing of its table, raises ``NothingToDraw`` where the study lacks what the figure shows.
    """
    yield "training_curves", lambda: tables.curves
    yield "training_curves_log", lambda: log_curve_rows(tables.curves, tables.seeds)
    yield "plain_curves", lambda: plain_curve_rows(tables.curves)
    yield "degradation", lambda: degradation_rows(tables.degradation, tables.seeds)
    yield "paired_gap", lambda: paired_gap_rows(tables.degradation, tables.pairs)
    yield "shortcut_table", lambda: shortcut_rows(tables.degradation, tables.seeds)
    for metric in PER_LAYER:
        yield f"profiles_{metric}", _profile(tables, metric)
        yield f"heatmap_{metric}", _map(tables, metric)
    # ‖F‖/‖x‖ of plain nets has a figure of its own: on one axis with a residual ratio it would be read as one.
    yield "profiles_branch_over_input", _profile(tables, "branch_over_input")
    yield "trunk_growth", _profile(tables, "output_norm")
    yield "response_std", lambda: response_std_rows(tables.profile("response_std"))
    yield "gain_chain", lambda: gain_chain_rows(tables.chain())
    yield "jacobian", lambda: jacobian_rows(tables.profile)


def _profile(tables: FigureTables, metric: str) -> Callable[[], "pd.DataFrame"]:
    return lambda: deepest_of_many(tables.profile(metric))


def _map(tables: FigureTables, metric: str) -> Callable[[], "pd.DataFrame"]:
    return lambda: map_rows(tables.map(metric))
