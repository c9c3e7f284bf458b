"""One caption per figure, computed from what it draws: arms, depths, seeds, budget, bands, and whatever is marked."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.analysis.conclusion import where
from plainres.analysis.curves import DIVERGED, MEAN, UNFINISHED
from plainres.analysis.profiles import MOMENTS
from plainres.analysis.settings import arm_order, legend_words, setting_order
from plainres.figures.gain_chain import END_RULE, SCALARS
from plainres.figures.heatmaps import CLIP
from plainres.report.across import slug

if TYPE_CHECKING:
    import pandas as pd

BARS = "bars: two-sided 95 % t intervals over seeds, cut at 0 and 100 % (where all seeds are equal, ± 1/N)"
RANGE = "band: from the least to the greatest seed; lines are geometric means"
LINES = {
    "training_curves": "Clean training error (solid), validation error (dashed) over updates, a panel per connection",
    "training_curves_log": "Clean training error over updates on a log axis, a panel for each connection",
    "plain_curves": "Training error (left) and validation error (right) of the plain networks over updates",
    "degradation": "Final clean training error against depth",
    "paired_gap": "Gap in final training error, plain − connection, of every matched pair against depth",
    "shortcut_table": "Final training error with the shortcuts of He et al. 2016, table 1",
    "profiles_grad_norm": "Norm of each layer's weight gradient at the start, early and at the end of training",
    "profiles_update_ratio": "Norm of each layer's update over that of its weights at the start, early and at the end",
    "profiles_branch_ratio": "Norm of each block's branch over that of what it is added to, ‖F(x)‖ / ‖h(x)‖",
    "profiles_branch_over_input": "Plain networks: ‖F(x)‖ / ‖x‖ of each block (nothing is added: no residual ratio)",
    "heatmap_grad_norm": "Norm of each layer's weight gradient over training",
    "heatmap_update_ratio": "Norm of each layer's update over that of its weights, over training",
    "heatmap_branch_ratio": "‖F(x)‖ / ‖h(x)‖ of each block over training",
    "trunk_growth": "Norm of each block's output along the network",
    "response_std": "Standard deviation of each layer's response at the end of training, in layer order and ranked",
    "gain_chain": "Cumulative gain of the backward pass over the last n blocks, over the lines of a scalar chain",
    "jacobian": "Largest and smallest singular values of the blocks' Jacobians, and of the trunk from end to end",
    "error_by_learning_rate": "Final training error against learning rate, a panel for each depth",
    "error_by_steps": "Final training error against the number of steps, a panel for each depth",
    "near_identity": "Training loss in the first quarter of the steps against the final one",
    "settings": "Final training error against depth, a panel for each setting",
    "construction": "Training error over updates of networks built from a trained one, beside those from scratch",
    "lesion_delete": "Error after one block is deleted, against its place; training above, validation below",
    "lesion_swap": "Error after two blocks are exchanged, against their distance; training above, validation below",
    "shattering": "Autocorrelation of the gradient by the input along a line between two training examples",
}


def caption(kind: str, setting: str, table: "pd.DataFrame", runs: "pd.DataFrame") -> str:
    """The caption of one figure, in sentences.

    Args:
        kind: key of ``gallery.KINDS``.
        setting: the part of the figure's name that tells settings apart; "" for none.
        table: what it draws.
        runs: runs.csv of its report.
    """
    parts = [f"{LINES[kind]}: {_arms(table)}; {_depths(table)}."]
    parts += [f"{line[0].upper()}{line[1:]}." for line in _details(kind, table)]
    own = runs[runs["setting"].map(lambda label: slug(str(label))) == setting] if setting else runs
    if len(own) and own["setting"].nunique() == 1:
        parts.append(f"Setting: {where(own)}.")
    elif len(own):
        parts.append(f"Settings: {', '.join(setting_order(own['setting']))}; first of them: {where(own)}.")
    return " ".join(parts)


def read_runs(path: Path) -> "pd.DataFrame":
    """runs.csv with what ``where`` reads of it as numbers."""
    import pandas as pd

    runs = pd.read_csv(path, keep_default_na=False, low_memory=False)
    return runs.assign(num_train=pd.to_numeric(runs["num_train"], errors="coerce"))


def _arms(table: "pd.DataFrame") -> str:
    return _list([legend_words(name) for name in arm_order(table["connection"])])


def _depths(table: "pd.DataFrame") -> str:
    depths = sorted(int(depth) for depth in table["depth"].unique())
    return f"depth{'s' if len(depths) > 1 else ''} {_list([str(depth) for depth in depths])}"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _span(counts: "pd.Series[int]", what: str) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low} {what}{'s' if low != 1 else ''}" if low == high else f"{low} to {high} {what}s"


def _details(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    if kind in ("training_curves", "training_curves_log", "plain_curves", "construction"):
        yield from _curves(kind, table)
    elif kind in ("degradation", "shortcut_table", "paired_gap"):
        yield from _errors(kind, table)
    elif kind.startswith("error_by") or kind in ("settings", "near_identity"):
        yield from _settings(kind, table)
    elif kind.startswith("lesion") or kind == "shattering":
        yield from _theory(kind, table)
    else:
        yield from _inside(kind, table)


def _curves(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    means = table[table["series"] == MEAN]
    if len(means):
        yield f"thick: mean of {_span(means['n'], 'seed')} (of at least two); thin: each seed"
    else:
        yield "one seed for each line"
    if kind != "construction":
        yield "the darker, the deeper"
    if kind == "training_curves_log":
        count = int(table["num_train"].max())
        yield f"0: no example wrong, drawn at the lower edge; dotted: 1/N with N = {count:,} examples"
    for why, mark in ((DIVERGED, "×"), (UNFINISHED, "|")):
        ends = table[table["stopped"] == why].drop_duplicates(["connection", "depth", "series"])
        if len(ends):
            what = "diverged" if why == DIVERGED else "did not finish"
            yield f"{mark}: last finite value of {_runs(ends)} that {what}"


def _runs(rows: "pd.DataFrame") -> str:
    """``3 runs (plain 50, plain 100)``."""
    cells = rows[["connection", "depth"]].drop_duplicates().itertuples(index=False)
    return f"{len(rows)} run{'s' if len(rows) != 1 else ''} ({', '.join(f'{arm} {depth}' for arm, depth in cells)})"


def _errors(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    means, points = table[table["series"] == "mean"], table[table["series"] != "mean"]
    if kind == "shortcut_table":
        means, points = (part[part["metric"] == "train_error"] for part in (means, points))
    one = "pair" if kind == "paired_gap" else "seed"
    several = means["n"].max() > 1
    yield f"every {one} and the mean of {_span(means['n'], one)}" if several else f"one {one} for each point"
    if means["low"].notna().any():
        yield BARS.replace(", cut at 0 and 100 %", "") if kind == "paired_gap" else BARS
    diverged = points[points["diverged"]]
    if kind == "paired_gap":
        yield f"dotted: the margin of {100 * float(table['margin'].max()):g} point, below which no gap is claimed"
    if len(diverged):
        what = "pair with a run" if kind == "paired_gap" else "run"
        yield f"×: {_runs(diverged).replace('run', what, 1)} that diverged and counts at chance level"
    if "chance_error" in table:
        yield f"dotted: chance level, {100 * float(table['chance_error'].max()):.1f} %"
    if kind == "shortcut_table":
        yield "right: the paper's test error of ResNet-110 on CIFAR-10 (fail: above 20 %), to compare the order with"


def _settings(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    if kind == "settings":
        yield f"mean of {_span(table.loc[table['n'] > 0, 'n'], 'seed')}; {BARS}"
        if (table["n_diverged"] > 0).any():
            yield "×: at least one of the runs diverged and counts at chance level"
    else:
        keys = ["connection", "depth", *(["x"] if "x" in table else [])]
        yield f"every seed and the mean of {_span(table.groupby(keys)['seed'].size(), 'seed')}"
    if kind == "near_identity":
        gone = table[table["diverged"].astype(bool)]
        yield "dotted: ln C, the loss at chance level" + (
            f"; ×: {_runs(gone)} that diverged and counts at chance level" if len(gone) else ""
        )
        return
    if "diverged" in table and table["diverged"].any():
        yield f"×: {_runs(table[table['diverged']])} that diverged and counts at chance level"
    if "chosen" in table and table["chosen"].any():
        yield "ring: the rate chosen by training loss on seeds of its own (from 100 on)"
    yield f"dotted: chance level, {100 * float(table['chance_error'].max()):.1f} %"


def _inside(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    counts = table["n_seeds" if kind == "gain_chain" else "n"]
    if kind.startswith("heatmap"):
        low, high = (f"{100 * q:g} %" for q in CLIP)
        yield f"geometric mean over {_span(counts[counts > 0], 'seed')}; colours span quantiles {low} to {high}"
        yield "grey: no value, exactly 0, or a run that has stopped"
        return
    yield f"{_span(counts[counts > 0], 'seed')}" + (f"; {RANGE}" if counts.max() > 1 and kind != "trunk_growth" else "")
    if "moment" in table:
        steps = table.groupby("moment")["step"].max()
        yield "steps: " + ", ".join(f"{moment} {steps[moment]}" for moment in MOMENTS if moment in steps)
    if kind == "gain_chain":
        yield f"lines: dⁿ with d = {', '.join(f'{d:g}' for d in SCALARS)}; end: the {END_RULE}"
        if (table["n_ended"] > 0).any():
            yield "×: from there on exactly 0 in every seed"
    if "n_zero" in table and (table["n_zero"] > 0).any():
        yield "triangles at the lower edge: exactly 0 in some seed, which the mean leaves out"
    if "n_stopped" in table and (table["n_stopped"] > 0).any():
        stopped = table[table["n_stopped"] > 0].drop_duplicates(["connection", "depth"])
        cells = ", ".join(
            f"{arm} {depth} ({n})" for arm, depth, n in stopped[["connection", "depth", "n_stopped"]].values
        )
        yield f"runs that diverged end at their last probe: {cells}"


def _theory(kind: str, table: "pd.DataFrame") -> Iterator[str]:
    if kind == "shattering":
        seeds = table.groupby(["connection", "depth", "moment"])["seed"].nunique()
        yield f"mean of {_span(seeds, 'seed')}; grey: white and brown noise of {int(table['points'].max())} points"
        return
    seeds = table.groupby(["connection", "depth"])["seed"].nunique()
    yield f"mean of {_span(seeds, 'seed')}, band from the least to the greatest; dotted in colour: the intact networks"
    lost = int(table["train_error"].isna().sum())
    if lost:
        yield f"{lost} lesions cannot be made and leave a gap"
    yield f"dotted: chance level, {100 * float(table['chance_error'].max()):.1f} %"
