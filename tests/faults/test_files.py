"""Files that are not what they were, and a clock that runs backwards."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plainres import clock
from plainres.analysis.load import load_study
from plainres.job import Outcome
from plainres.report.examine import examine
from plainres.schema import RunConf
from plainres.store import FORMAT, RunFolder, Status, Study, write_json
from small_sweep import check_same_run

Execute = Callable[..., tuple[Outcome, RunFolder]]


@pytest.fixture
def conf(make_conf: Callable[..., RunConf]) -> RunConf:
    return make_conf("residual", {"trainer.steps": 6, "trainer.checkpoint_every": 2, "tracker.name": "none"})


@pytest.fixture
def undisturbed(execute: Execute, conf: RunConf, tmp_path: Path) -> RunFolder:
    return execute(conf, into=Study.create(tmp_path, "undisturbed"))[1]


def without_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def test_a_torn_table_beside_its_lines_is_written_anew(execute: Execute, conf: RunConf, undisturbed: RunFolder) -> None:
    _, folder = execute(conf, stop_at=4)
    for table in ("steps", "layers"):
        torn = folder.path / f"{table}.parquet"
        torn.write_bytes((undisturbed.path / torn.name).read_bytes())
        without_footer(torn)
    execute(conf)
    check_same_run(folder, undisturbed)


def test_a_finished_run_whose_table_has_no_footer_is_named_with_the_remedy(
    execute: Execute, conf: RunConf, study: Study
) -> None:
    _, folder = execute(conf)
    without_footer(folder.path / "layers.parquet")
    assert execute(conf)[0].skipped
    (line,) = {p for p in examine(study.path).problems if folder.name in p}
    assert "layers table cannot be read" in line and "delete the folder and run it again" in line and "\n" not in line


def test_a_newer_run_is_named_and_the_others_are_reported(trained: Path) -> None:
    newer, *others = Study.open(trained).runs()
    write_json(newer.path / "run.json", newer.read() | {"format": FORMAT + 1})
    result = examine(trained)
    (line,) = [p for p in result.problems if newer.name in p]
    assert "upgrade plainres" in line and len(result.loaded.runs) == len(others)


@pytest.fixture
def trained(trained_study: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(trained_study, tmp_path / trained_study.name))


class BackwardClock:
    """In the place of the module ``datetime``: every look at it is an hour earlier."""

    def __init__(self, real: Any) -> None:
        self._real, self._hours = real, itertools.count()
        self.UTC, self.datetime = real.UTC, self

    def now(self, zone: Any) -> Any:
        return self._real.datetime.now(zone) - self._real.timedelta(hours=next(self._hours))


def test_a_clock_that_runs_backwards_makes_no_second_negative(
    execute: Execute, conf: RunConf, undisturbed: RunFolder, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    backwards = itertools.count(2e9, -3600)
    monkeypatch.setattr("time.time", lambda: next(backwards))
    monkeypatch.setattr(clock, "datetime", BackwardClock(clock.datetime))
    execute(conf, stop_at=3)
    _, folder = execute(conf)
    record = folder.read()
    assert record["finished"] < record["started"] < record["created"], "this is such a clock"
    assert all(math.isfinite(s) and s >= 0 for s in record["seconds"].values()) and record["seconds"]["total"] > 0
    check_same_run(folder, undisturbed)
    runs = load_study(study.path).runs
    assert (runs.filter(like="seconds_").fillna(0.0) >= 0).all(axis=None)


@pytest.mark.parametrize("failing", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_a_run_folder_that_cannot_be_written_is_its_own_failure(
    execute: Execute, conf: RunConf, monkeypatch: pytest.MonkeyPatch, failing: OSError
) -> None:
    def refuse(self: RunFolder, timeout: float = 0) -> bool:
        raise failing

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "acquire", refuse)
        outcome, folder = execute(conf)
    assert outcome.status is Status.FAILED and str(folder.path) in outcome.message
    assert failing.strerror in outcome.message and "writable" in outcome.message
    assert execute(conf)[0].status is Status.COMPLETE
