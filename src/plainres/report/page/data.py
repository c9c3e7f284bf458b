"""What the charts draw, as one JSON document. Every number of a claim is taken from evidence.json, not from here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plainres.analysis.curves import MEAN
from plainres.analysis.over_time import QUANTITIES
from plainres.analysis.profiles import spread
from plainres.analysis.results import usable
from plainres.analysis.settings import ONLY_SETTING, arm_order
from plainres.report.page.across import across
from plainres.report.page.looks import looks
from plainres.report.page.numbers import columns, short, shorts
from plainres.report.page.parts import CURVES, Part

if TYPE_CHECKING:
    import pandas as pd

    from plainres.report.examine import ReportResult

MOST_EVALUATIONS, LEAST_EVALUATIONS = 240, 20  # of one run
MOST_POINTS = 200_000  # of all curves on the page; about 2 MB of text
ERRORS = ("mean", "low", "high")


@dataclass(frozen=True)
class Source:
    """One setting of one study, which is what runs are compared in.

    Attributes:
        index: its number on the page.
        result: the study's report.
        part: its tables.
        label: names it on this page; "" where it is the only one.
    """

    index: int
    result: "ReportResult"
    part: Part
    label: str

    @property
    def runs(self) -> "pd.DataFrame":
        """Its rows of the study's runs."""
        runs = self.result.loaded.runs
        return runs[runs["setting"] == self.part.setting]


def sources_of(results: Sequence["ReportResult"]) -> list[Source]:
    """Every setting of every study, labelled by what tells them apart."""
    found: list[Source] = []
    for result in results:
        study = result.loaded.study.name if len(results) > 1 else ""
        for part in result.parts:
            setting = "" if part.setting == ONLY_SETTING else part.setting
            found.append(Source(len(found), result, part, " · ".join(filter(None, [study, setting]))))
    return found


def chart_data(results: Sequence["ReportResult"]) -> dict[str, Any]:
    """The whole document."""
    sources = sources_of(results)
    return {
        "sources": [_source(source) for source in sources],
        "arms": looks(name for source in sources for name in source.runs["connection"]),
        "degradation": [row for source in sources for row in _degradation(source)],
        "finals": [_finals(source) for source in sources],
        "curve_labels": CURVES,
        "curves": [series for source in sources for series in _curves(source, _most_evaluations(sources))],
        "layers": _layers(sources),
        "chains": [chain for source in sources for chain in _chains(source)],
        "across": [chart for result in results for chart in across(result)],
    }


def thinned(results: Sequence["ReportResult"]) -> Iterator[str]:
    """What is left out so that the page stays small, in words."""
    yield "Charts hold five significant digits; the claims have the digits of evidence.json."
    sources = sources_of(results)
    kept = _most_evaluations(sources)
    for source in sources:
        where = f" ({source.label})" if source.label else ""
        found = source.part.over_time
        if found.kept_steps < found.num_steps:
            yield f"Layers{where}: {found.kept_steps} of {found.num_steps} probe steps, evenly in log(1 + step)."
        most = source.part.curves.groupby(["connection", "depth", "metric", "series"])["step"].size()
        if len(most) and most.max() > kept:
            yield f"Curves{where}: at most {kept} of up to {most.max()} evaluations of a run."


def _most_evaluations(sources: Sequence[Source]) -> int:
    """How many evaluations of each curve the page has room for."""
    num_curves = sum(len(s.part.curves[["connection", "depth", "metric", "series"]].drop_duplicates()) for s in sources)
    return max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, MOST_POINTS // max(num_curves, 1)))


def _source(source: Source) -> dict[str, Any]:
    runs = source.runs
    known = runs.dropna(subset="forward_flops").drop_duplicates(["connection", "depth"])
    flops = {f"{row['connection']}|{row['depth']}": short(row["forward_flops"]) for row in known.to_dict("records")}
    return {
        "label": source.label,
        "study": source.result.loaded.study.name,
        "setting": source.part.setting,
        "depths": sorted(int(d) for d in runs["depth"].unique()),
        "connections": arm_order(runs["connection"]),
        "steps": int(runs["trainer.steps"].max()),
        "batch": int(runs["trainer.batch"].max()),
        "num_train": short(runs["num_train"].max()),
        "chance": short(runs["chance_error"].max()),
        "forward_flops": flops,
        "last_moving": source.part.last_moving,
    }


def _degradation(source: Source) -> Iterator[dict[str, Any]]:
    table = source.result.verdict.table
    for row in table[table["setting"] == source.part.setting].to_dict("records"):
        numbers = {f"{kind}_{name}": short(row[f"{kind}_{name}"]) for kind in ("train_error", "gap") for name in ERRORS}
        counts = {name: int(row[name]) for name in ("depth", "n", "n_diverged", "gap_n")}
        flags = {name: str(row[name]) for name in ("train_error_flag", "gap_flag")}
        yield {"source": source.index, "connection": row["connection"]} | counts | numbers | flags


def _finals(source: Source) -> dict[str, Any]:
    names = ["connection", "depth", "seed", "train_error", "val_error", "diverged"]
    return {"source": source.index} | columns(usable(source.runs), names)


def _curves(source: Source, most: int) -> Iterator[dict[str, Any]]:
    for (name, depth, series), rows in source.part.curves.groupby(["connection", "depth", "series"]):
        found = {}
        for metric, one in rows.groupby("metric"):
            kept = one[one["step"].isin(spread(sorted(one["step"]), most))]
            found[str(metric)] = [kept["step"].tolist(), shorts(kept["value"])]
            if series == MEAN:
                found[str(metric)].append(kept["n"].tolist())
        stopped = "".join(set(rows["stopped"]) - {""})
        where = {"source": source.index, "connection": name, "depth": int(depth)}
        yield where | {"seed": None if series == MEAN else int(series), "stopped": stopped, "metrics": found}


def _layers(sources: Sequence[Source]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric, quantity in QUANTITIES.items():
        cells = [cell for source in sources for cell in _cells(source, metric)]
        if cells:
            found[metric] = {"label": quantity.label, "scope": quantity.scope, "log": quantity.log, "cells": cells}
    return found


def _cells(source: Source, metric: str) -> Iterator[dict[str, Any]]:
    table = source.part.over_time.tables.get(metric)
    if table is None:
        return
    for (name, depth), rows in table.groupby(["connection", "depth"]):
        labels = rows.drop_duplicates("layer_index").sort_values("layer_index")
        grid = rows.pivot(index="step", columns="layer_index", values="value")
        yield {
            "source": source.index,
            "connection": name,
            "depth": int(depth),
            "layers": labels["layer_index"].tolist(),
            "names": labels["layer_name"].tolist(),
            "steps": grid.index.tolist(),
            "n": rows.groupby("step")["n"].max().tolist(),
            "zeros": int(rows["n_zero"].sum()),
            "values": [shorts(row) for row in grid.to_numpy()],
        }


def _chains(source: Source) -> Iterator[dict[str, Any]]:
    for (moment, name, depth), rows in source.part.chain.groupby(["moment", "connection", "depth"]):
        numbers = {key: shorts(rows[key]) for key in ("num_blocks", "value", "low", "high")}
        where = {"source": source.index, "moment": moment, "connection": name, "depth": int(depth)}
        yield where | {"step": short(rows["step"].max()), "n": short(rows["n_seeds"].max())} | numbers
