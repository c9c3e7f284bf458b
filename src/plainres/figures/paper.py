"""The figures of a report: which there are, in which order, and the table each one draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plainres.figures.curves import training_curves
from plainres.figures.degradation import degradation
from plainres.figures.gain_chain import gain_chain
from plainres.figures.heatmaps import heatmap
from plainres.figures.jacobian import METRICS as JACOBIAN
from plainres.figures.jacobian import jacobian
from plainres.figures.profiles import profiles, response_std, trunk_growth
from plainres.figures.save import Drawn

if TYPE_CHECKING:
    import pandas as pd

LAYER = "layer index (0 = stem)"
BLOCK = "block index (0 = first)"
PER_LAYER = {
    "grad_norm": ("layer", "gradient norm ‖∂L/∂W‖", LAYER),
    "update_ratio": ("layer", "update ratio ‖ΔW‖ / ‖W‖", LAYER),
    "branch_ratio": ("block", "branch ratio ‖F(x)‖ / ‖h(x)‖", BLOCK),
}
NOT_A_RATIO = "‖F(x)‖ / ‖x‖ (no addition: not a residual ratio)"
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
    "degradation",
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
        seeds: final errors of the finished runs.
        profile: metric -> ``analysis.profiles.profiles``.
        map: metric -> ``analysis.profiles.maps`` of the deepest nets.
        chain: -> ``analysis.gain_chain.gain_chain``.
    """

    curves: "pd.DataFrame"
    degradation: "pd.DataFrame"
    seeds: "pd.DataFrame"
    profile: Callable[[str], "pd.DataFrame"]
    map: Callable[[str], "pd.DataFrame"]
    chain: Callable[[], "pd.DataFrame"]


def paper_figures(tables: FigureTables) -> Iterator[tuple[str, Callable[[], Drawn]]]:
    """Name and maker of every figure; a maker raises ``NothingToDraw`` where the study lacks what it shows."""
    yield "training_curves", lambda: training_curves(tables.curves)
    yield "degradation", lambda: degradation(tables.degradation, tables.seeds)
    for metric, (_, label, index) in PER_LAYER.items():
        yield f"profiles_{metric}", _later(profiles, tables.profile, metric, label, index)
        yield f"heatmap_{metric}", _later(heatmap, tables.map, metric, label, index)
    # ‖F‖/‖x‖ of plain nets has a figure of its own: on one axis with a residual ratio it would be read as one.
    yield "profiles_branch_over_input", _later(profiles, tables.profile, "branch_over_input", NOT_A_RATIO, BLOCK)
    yield "trunk_growth", lambda: trunk_growth(tables.profile("output_norm"))
    yield "response_std", lambda: response_std(tables.profile("response_std"))
    yield "gain_chain", lambda: gain_chain(tables.chain())
    yield "jacobian", lambda: jacobian(tables.profile)


def _later(
    draw: Callable[["pd.DataFrame", str, str], Drawn],
    table: Callable[[str], "pd.DataFrame"],
    metric: str,
    label: str,
    index: str,
) -> Callable[[], Drawn]:
    return lambda: draw(table(metric), label, index)
