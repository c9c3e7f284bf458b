"""Every sweep file is expanded and every job of it is checked; nothing is trained."""

import functools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from plainres import grid
from plainres.config import conf_dir
from plainres.launch.prepare import prepare
from plainres.models.families import build
from plainres.options import Gate, Shortcut
from plainres.pair import make_spec
from plainres.schema import RunConf

SWEEPS = sorted((Path(conf_dir()) / "sweep").glob("*.yaml"))
# Depths that are checked in seconds, where a sweep has one; he2016's 110 is built by a test below.
SMALLER = {"he2016_shortcuts": 8, "connections": 8, "connections_cnn": 8, "connections_no_norm": 8}


@functools.cache
def expand(name: str) -> list[RunConf]:
    """The checked settings of every job of a sweep, as the command line would make them."""
    return grid.expand([f"+sweep={name}"]).confs


QUICK = ("depth", "smoke", "norm_placement", "construction")  # the others are as long, and of the same kind


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow, id=p.stem) for p in SWEEPS]
)
@pytest.mark.usefixtures("stand_in_images")
def test_every_job_of_a_sweep_can_be_run(path: Path, tmp_path: Path) -> None:
    confs = [
        replace(conf, depth=SMALLER.get(path.stem, conf.depth), results_dir=str(tmp_path)) for conf in expand(path.stem)
    ]
    assert len({make_spec(conf, "cpu").run_id for conf in confs}) == len(confs), "two jobs are the same run"
    # One seed shows as much as all of them, and so does the least depth; the others were trained.
    seed, depth = min(conf.seed for conf in confs), min(conf.depth for conf in confs)
    mine = [conf for conf in confs if (conf.seed, conf.depth) == (seed, depth)]
    study, specs = prepare(mine)
    assert study.name == path.stem and len(specs) == len(mine)
    assert "plain" in {conf.connection.name for conf in confs}, "every arm needs its partner"


OPENED = [pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow, id=p.stem) for p in SWEEPS]


@pytest.mark.parametrize("path", OPENED)
def test_a_sweep_file_opens_with_command_cost_and_expectation(path: Path) -> None:
    first, command, *rest = path.read_text().splitlines()
    assert first == "# @package _global_"
    runs = re.match(rf"# python -m run \+sweep={path.stem} -- (\d+) runs .*on 2 cores( \(estimated\))?\.$", command)
    assert runs, command
    assert any("Expect:" in line for line in rest)
    assert len(expand(path.stem)) == int(runs.group(1))


@pytest.mark.slow
def test_he2016_rows_are_those_of_the_table() -> None:
    """REFERENCE.md, He et al. 2016: what multiplies the shortcut, and what multiplies F."""
    confs = expand("he2016_shortcuts")
    assert {(c.model.name, c.depth, c.model.boundary) for c in confs} == {("cifar_resnet", 110, "zero_pad")}
    rows = {c.connection.name.removeprefix("he2016_"): c.connection for c in confs}
    scaling = {(1.0, 1.0), (0.0, 1.0), (0.5, 1.0), (0.5, 0.5)}
    fixed = [c for c in rows.values() if c.shortcut in (Shortcut.identity, Shortcut.scaled) and c.gate is Gate.none]
    assert {(c.shortcut_scale, c.alpha) for c in fixed} == scaling and len(fixed) == 4
    exclusive = [c.gate_bias for c in rows.values() if c.gate is Gate.exclusive]
    assert sorted(exclusive) == [float(b) for b in range(-7, 1)]
    assert sorted(c.gate_bias for c in rows.values() if c.gate is Gate.shortcut_only) == [-6.0, 0.0]
    assert rows["conv"].shortcut is Shortcut.projection
    assert (rows["dropout"].shortcut, rows["dropout"].shortcut_dropout) == (Shortcut.dropout, 0.5)
    assert len(rows) == 1 + 4 + 8 + 2 + 1 + 1  # with plain
    for conf in confs:
        assert len(build(conf.model, conf.connection, conf.depth, (1, 8, 8), 10).blocks) == 54


def test_connections_sweeps_hold_every_preset() -> None:
    """Each preset of conf/connection is an arm of some sweep."""
    swept: set[str] = set()
    for path in SWEEPS:
        swept |= set(yaml.safe_load(path.read_text())["hydra"]["sweeper"]["params"].get("connection", "").split(","))
    folder = Path(conf_dir()) / "connection"
    assert {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")} <= swept
