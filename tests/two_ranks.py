"""Run by torchrun with two processes: the same training by both together and by each alone.

Without probes it is in float64; probes read float32. told.json has the largest relative difference of a gradient, and
the rows of both trainings.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plainres.assembly import assemble
from plainres.config import compose
from plainres.data import Dataset, load
from plainres.launch import together
from plainres.launch.prepare import prepare
from plainres.ranks import Ranks
from plainres.rows import TABLES, read_lines
from plainres.schema import RunConf
from plainres.train import Training


def in_double(data: Dataset) -> Dataset:
    train, val = (replace(s, pixels_NCHW=s.pixels_NCHW.double()) for s in (data.train, data.val))
    return replace(data, train=train, val=val)


def training(conf: RunConf, place: str) -> Training:
    study, (spec,) = prepare([replace(conf, results_dir=place)])
    data = load(conf.data) if conf.probe.every else in_double(load(conf.data))
    return assemble(spec, study.run_folder(spec.name), data, {}, lambda lengths: None, lambda: False)


def rows(trained: Training, table: str) -> list[dict[str, Any]]:
    return [row["values"] for row in read_lines(trained.parts.folder.path / f"{table}.jsonl")]


def grads_of(trained: Training) -> list[torch.Tensor]:
    """The gradient of every update, before clipping."""
    found: list[torch.Tensor] = []
    kept = trained.parts.guard.check

    def check(step: int, loss: torch.Tensor, norm: torch.Tensor) -> int | None:
        found.append(trained.parts.flat.grad.clone())
        return kept(step, loss, norm)

    trained.parts.guard.check = check  # type: ignore[method-assign]
    assert trained.run() is None
    trained.finish(complete=True)
    return found


def main(place: str, overrides: list[str]) -> None:
    torch.set_num_threads(1)
    with together.gathered():
        conf = compose(overrides)
        conf = replace(conf, trainer=replace(conf.trainer, devices=2))
        if not conf.probe.every:
            torch.set_default_dtype(torch.float64)
        both = training(conf, f"{place}/{together.rank_here()}/both")
        alone = training(conf, f"{place}/{together.rank_here()}/alone")
        assert isinstance(both._ranks, Ranks)
        alone._ranks = None
        ours, theirs = grads_of(both), grads_of(alone)
        off = max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))
        if together.rank_here() == 0:
            told = {
                f"{table}, {how}": rows(t, table) for table in TABLES for how, t in (("both", both), ("alone", alone))
            }
            Path(place, "told.json").write_text(json.dumps(told | {"updates": len(ours), "off": off}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
