"""Several settings of a study side by side: error against learning rate, against budget, and against depth in each."""

from typing import TYPE_CHECKING, Any

import numpy as np

from plainres.analysis.settings import arm_order, setting_order
from plainres.figures.axes import (
    Layout,
    depth_axis,
    depth_positions,
    grey_handle,
    legend_above,
    legend_columns,
    legend_rows,
    log_ticks,
    log_y,
    panel_label,
    panels,
    root_scale,
)
from plainres.figures.style import GREY, ArmStyle, arm_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from plainres.figures.styles import Style

PANEL_HEIGHT = 1.8
WIDE = 6.0  # a page in inches, at the report's font size, on which three panels have room for a whole label
ERROR = "final training error (%), √ scale"
CHANCE_LINE = (0, (1, 1.5))
BAR = {"fmt": "none", "elinewidth": 1.1, "capsize": 2.5, "zorder": 4}


def error_against(table: "pd.DataFrame", style: "Style", label: str) -> "Figure":
    """Final training error against a number that settings differ in, a panel for each depth: every seed, the mean.

    Args:
        table: ``tables.error_against_rows``.
        style: of the figure.
        label: of the x axis.
    """
    depths, styles = sorted(table["depth"].unique()), arm_styles(arm_order(table["connection"]))
    handles = _handles(styles, diverged=bool(table["diverged"].any()), chosen=bool(table["chosen"].any()))
    figure, axes = _row(style, len(depths), handles)
    for ax, depth in zip(axes, depths, strict=True):
        at = table[table["depth"] == depth]
        for name, arm in styles.items():
            _against(ax, at[at["connection"] == name], arm)
        _chance(ax, table)
        root_scale(ax)
        values = sorted(table["x"].unique())
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.set_xlim(values[0] / 1.5, values[-1] * 1.5)
        ax.set_xlabel(label)
        panel_label(ax, f"depth {depth}")
    axes[0].set_ylabel(ERROR)
    return figure


def _against(ax: Any, arm: "pd.DataFrame", style: ArmStyle) -> None:
    if arm.empty:
        return
    means = 100 * arm.groupby("x")["train_error"].mean()
    ax.plot(
        means.index,
        means,
        color=style.colour,
        ls=style.line,
        marker=style.marker,
        ms=4,
        mec="white",
        mew=0.5,
        clip_on=False,
    )
    stopped = arm["diverged"].astype(bool)
    look = {"color": style.colour, "ls": "", "zorder": 2, "clip_on": False}
    ax.plot(arm["x"][~stopped], 100 * arm["train_error"][~stopped], marker=style.marker, ms=2.4, mfc="none", **look)
    ax.plot(arm["x"][stopped], 100 * arm["train_error"][stopped], marker="x", ms=4, **look)
    best = sorted(arm.loc[arm["chosen"].astype(bool), "x"].unique())
    ax.plot(best, means[best], "o", ms=9, mfc="none", mec=style.colour, mew=0.9, clip_on=False)


def settings(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Final training error against depth, a panel for each setting: the negative control in one look.

    Args:
        table: ``tables.settings_rows``.
        style: of the figure.
    """
    names, arms = setting_order(table["setting"]), arm_order(table["connection"])
    styles, positions = arm_styles(arms), depth_positions(sorted(int(d) for d in table["depth"].unique()))
    handles = _handles(styles, diverged=bool((table["n_diverged"] > 0).any()), interval_too=True)
    figure, axes = _row(style, len(names), handles, 1 + max(name.count(", ") for name in names))
    for ax, name in zip(axes, names, strict=True):
        mine = table[(table["setting"] == name) & (table["n"] > 0)]
        for connection, arm in styles.items():
            _depths(ax, mine[mine["connection"] == connection], positions, arm)
        _chance(ax, table)
        depth_axis(ax, positions)
        if len(names) > (
            3 if style.page > WIDE * style.scale else 2
        ):  # the whole label would run into the next panel's
            ax.set_xlabel("depth")
        root_scale(ax)
        panel_label(ax, name.replace(", ", "\n"))
    axes[0].set_ylabel(ERROR)
    return figure


def _depths(ax: Any, arm: "pd.DataFrame", positions: dict[int, float], style: ArmStyle) -> None:
    x = np.array([positions[int(depth)] for depth in arm["depth"]])
    mean, low, high = (100 * arm[f"train_error_{part}"].to_numpy(dtype=float) for part in ("mean", "low", "high"))
    ax.plot(x, mean, color=style.colour, ls=style.line, marker=style.marker, ms=4, mec="white", mew=0.5, clip_on=False)
    known = ~np.isnan(low)
    bars = np.array([mean - np.clip(low, 0, 100), np.clip(high, 0, 100) - mean])[:, known]
    ax.errorbar(x[known], mean[known], yerr=bars, ecolor=style.colour, **BAR)
    some = (arm["n_diverged"] > 0).to_numpy()
    ax.plot(x[some], mean[some], "x", color=style.colour, ms=6.5, mew=1.1, zorder=5, clip_on=False)


def near_identity(table: "pd.DataFrame", style: "Style") -> "Figure":
    """Loss in the first quarter of training against the final one, of arms that start at different distances from x.

    A run that diverged counts at chance level, and is marked; one whose losses are not known is counted in the legend.

    Args:
        table: ``analysis.across.by_start``.
        style: of the figure.
    """
    styles = arm_styles(arm_order(table["connection"]))
    chance = float(table["chance"].max())
    handles = [grey_handle(f"{name}, mean", color=s.colour, ls="", marker=s.marker) for name, s in styles.items()]
    handles += [grey_handle("one seed", ls="", marker="o", ms=2.4, mfc="none"), *_further_marks(table)]
    handles += [grey_handle("chance level, ln C", lw=0.7, ls=CHANCE_LINE)]
    columns = legend_columns(handles, 3, style.page)
    layout = Layout(top=legend_rows(handles, columns) + 0.3)
    figure, axes = panels(style, 1, 1, style.page, 2.6, layout)
    ax = axes[0, 0]
    for name, look in styles.items():
        every = table[table["connection"] == name]
        arm = every.dropna(subset=["early", "end"])
        stopped = arm["diverged"].astype(bool)
        x, y = (10 ** arm[part].astype(float) for part in ("early", "end"))
        ax.plot(x[~stopped], y[~stopped], look.marker, ms=2.4, mfc="none", color=look.colour)
        ax.plot([10 ** arm["early"].mean()], [10 ** arm["end"].mean()], look.marker, ms=6, color=look.colour)
        ax.plot(x[stopped], y[stopped], "x", ms=6, mew=1.3, color=look.colour, zorder=5)
    early, end = (10 ** table[part].dropna().astype(float) for part in ("early", "end"))
    _log_x(ax, min(early.min(), chance), max(early.max(), chance))
    log_y(ax, min(end.min(), chance), max(end.max(), chance))
    ax.axhline(chance, color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)
    ax.axvline(chance, color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)
    ax.set_xlabel("mean training loss over the first quarter of the steps")
    ax.set_ylabel("final training loss")
    panel_label(ax, f"depth {int(table['depth'].max())}")
    legend_above(figure, handles, columns)
    return figure


def _further_marks(table: "pd.DataFrame") -> list[Any]:
    """What the marks of runs that diverged mean, and which runs have no mark."""
    entries = []
    if table["diverged"].astype(bool).any():
        entries.append(grey_handle("diverged (counts at chance level)", ls="", marker="x", mew=1.1))
    for name, arm in table[table[["early", "end"]].isna().any(axis=1)].groupby("connection"):
        entries.append(grey_handle(f"{name}: {len(arm)} not drawn (no loss)", ls=""))
    return entries


def _log_x(ax: Any, low: float, high: float) -> None:
    """``axes.log_y`` for the other axis."""
    low, high = low / 1.25, high * 1.25
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xlim(low, high)
    ticks = log_ticks(low, high)
    ax.set_xticks([value for value, _ in ticks], [text for _, text in ticks])


def _row(style: "Style", count: int, handles: list[Any], lines: int = 1) -> tuple["Figure", Any]:
    columns = legend_columns(handles, 5, style.page)
    layout = Layout(left=0.5, top=legend_rows(handles, columns) + 0.08 + 0.15 * lines)
    figure, axes = panels(style, 1, count, style.page, PANEL_HEIGHT, layout)
    legend_above(figure, handles, columns)
    return figure, axes[0]


def _chance(ax: Any, runs: "pd.DataFrame") -> None:
    ax.axhline(100 * float(runs["chance_error"].max()), color=GREY, lw=0.7, ls=CHANCE_LINE, zorder=1)


def _handles(
    styles: dict[str, ArmStyle], diverged: bool = False, chosen: bool = False, interval_too: bool = False
) -> list[Any]:
    handles = [grey_handle(f"{name}, mean", color=s.colour, ls=s.line, marker=s.marker) for name, s in styles.items()]
    if interval_too:
        handles.append(grey_handle("95 % interval", ls="", marker="|", ms=8, mew=1.1))
    else:
        handles.append(grey_handle("one seed", ls="", marker="o", ms=2.4, mfc="none", mew=0.6))
    if diverged:
        handles.append(grey_handle("diverged", ls="", marker="x", mew=1.1))
    if chosen:
        handles.append(grey_handle("chosen by training loss on seeds ≥ 100", ls="", marker="o", ms=8, mfc="none"))
    return [*handles, grey_handle("chance level", lw=0.7, ls=CHANCE_LINE)]
