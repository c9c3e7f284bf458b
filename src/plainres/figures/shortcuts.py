"""Table 1 of He et al. 2016 as a figure: what stands on the shortcut and on the branch, and how the networks train."""

from typing import TYPE_CHECKING, Any

from plainres.analysis.shortcuts import PLAIN_ROW, rows_of
from plainres.figures.axes import Layout, legend_above, legend_columns, legend_rows, panels, root_x
from plainres.figures.canvas import NothingToDraw
from plainres.figures.many import colour_of, error_handles, error_row
from plainres.figures.style import GREY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

ROW_HEIGHT = 0.19
LEFT, RIGHT = 1.95, 0.95
METRICS = ("train_error", "val_error")
CHANCE_LINE = (0, (1, 1.5))
COLUMNS = ["row", "shortcut", "branch", "connection", "depth", "metric", "series", "seed", "n", "value", "low", "high",
           "diverged", "chance_error", "paper"]  # fmt: skip
ALIKE = {("none", "1"), ("1", "1")}  # plain and residual: every study has them


def shortcut_rows(table: "pd.DataFrame", seeds: "pd.DataFrame") -> "pd.DataFrame":
    """Errors at the deepest depth of the connections that have a row in the paper's table; ``row`` is their order.

    Args:
        table: rows of degradation.csv for one setting.
        seeds: the finished runs, with all identity fields.

    Raises:
        NothingToDraw: the study has none of the paper's connections but plain and the identity.
    """
    import pandas as pd

    deepest = seeds[seeds["depth"] == seeds["depth"].max()]
    found = rows_of(deepest)
    if not {(row.shortcut, row.branch) for row in found.values()} - ALIKE:
        raise NothingToDraw("no shortcut of He et al. 2016, table 1, but the identity")
    names = sorted(found, key=lambda name: (found[name].order, name))
    parts = []
    for i, name in enumerate(names):
        runs = deepest[deepest["connection"] == name]
        mean = table[(table["connection"] == name) & (table["depth"] == runs["depth"].iloc[0])].iloc[0]
        for metric in METRICS:
            line = {"series": "mean", "n": mean["n"], "value": mean[f"{metric}_mean"]}
            line |= {end: mean[f"{metric}_{end}"] for end in ("low", "high")}
            points = runs[["seed", "diverged"]].assign(value=runs[metric], series="seed", n=1)
            same = {"row": i, "shortcut": found[name].shortcut, "branch": found[name].branch, "connection": name,
                    "depth": runs["depth"].iloc[0], "metric": metric, "paper": found[name].paper}  # fmt: skip
            parts.append(pd.concat([pd.DataFrame([line]), points]).assign(**same))
    rows = pd.concat(parts, ignore_index=True).assign(chance_error=float(deepest["chance_error"].max()))
    return rows[COLUMNS].astype({"seed": "Int64"})


def shortcut_table(table: "pd.DataFrame", style: "Style") -> "Figure":
    """A line for each row of the paper's table: every seed, the mean and its interval; right the paper's own result.

    Args:
        table: ``shortcut_rows``.
        style: of the figure.
    """
    shown = table[table["metric"] == "train_error"]
    count = int(shown["row"].max()) + 1
    means, seeds = (shown[shown["series"] == series] for series in ("mean", "seed"))
    handles = error_handles(means, seeds)
    columns = legend_columns(handles, len(handles), style.page)
    layout = Layout(left=LEFT, right=RIGHT, top=legend_rows(handles, columns) + 0.24)
    figure, axes = panels(style, 1, 1, style.page, ROW_HEIGHT * count + 0.1, layout)
    ax = axes[0, 0]
    ax.axvline(100 * float(shown["chance_error"].max()), color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)
    for _, mean in means.iterrows():
        error_row(ax, count - 1 - int(mean["row"]), mean, seeds[seeds["row"] == mean["row"]], _colour(mean))
    root_x(ax)
    ax.set_yticks(range(count), [])
    ax.set_ylim(-0.6, count - 0.4)
    ax.set_xlabel(f"final training error (%) at depth {int(shown['depth'].max())}, √ scale")
    _texts(ax, style, shown, count)
    legend_above(figure, handles, columns)
    return figure


def _colour(row: "pd.Series[Any]") -> str:
    """Of what it is, whatever the study calls it."""
    known = {PLAIN_ROW: "plain", ("1", "1"): "residual"}
    return colour_of(known.get((row["shortcut"], row["branch"]), str(row["connection"])))


def _texts(ax: Any, style: "Style", shown: "pd.DataFrame", count: int) -> None:
    """What stands on both paths, left of the panel, and the paper's result, right of it; in inches from its edges."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.figure
    heads = {"shortcut": (-LEFT + 0.1, 0, "left"), "branch": (-0.62, 0, "left"), "paper": (0.12, 1, "left")}
    titles = {"shortcut": "on the shortcut", "branch": "on F", "paper": "paper: test\nerror (%)"}
    for column, (inches, edge, side) in heads.items():
        move = ScaledTranslation(inches * style.scale, 0, figure.dpi_scale_trans)
        at = ax.get_yaxis_transform() + move
        for row, part in shown.groupby("row"):
            ax.text(edge, count - 1 - int(row), part[column].iloc[0] or "–", transform=at, ha=side, va="center")
        ax.text(edge, count - 0.35, titles[column], transform=at, ha=side, va="bottom", color=GREY, linespacing=0.95)
