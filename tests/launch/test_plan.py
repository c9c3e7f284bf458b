"""What a plan says is what a sweep then does; it trains nothing and writes nothing."""

import io
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from plainres import cli
from plainres.data import load
from plainres.grid import Grid, expand
from plainres.job import execute
from plainres.launch import plan as module
from plainres.launch.plan import make_plan, makespan
from plainres.launch.plan_table import duration, print_plan, si
from plainres.launch.prepare import checked_specs, prepare
from plainres.launch.settings import LocalConf, SlurmConf
from plainres.launch.timing import Speed, measure
from plainres.models.families import build
from plainres.schema import RunConf
from plainres.store import Status

Make = Callable[..., RunConf]
SECOND = Speed(start=10, update=1, probe=0, evaluation=0, batchstats=0, checkpoint=0, end=0)


def quiet(line: str) -> None:
    """Nobody listens."""


@pytest.fixture
def second_an_update(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ten seconds a run and one an update; the names of the runs that were timed."""
    timed: list[str] = []

    def fake(spec: object) -> Speed:
        timed.append(spec.name)  # type: ignore[attr-defined]  # a RunSpec
        return SECOND

    monkeypatch.setattr(module, "measure", fake)
    return timed


def test_the_command_writes_nothing_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.main(["plan", "+sweep=smoke", "seed=0", "hydra.launcher.jobs=3"])
    shown = capsys.readouterr()
    assert not list(tmp_path.iterdir())
    assert "seconds each" in shown.out and "hydra/launcher=local, 3 at a time" in shown.out
    assert "checking" in shown.err and "timing" in shown.err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["+sweep=deth"], ["+sweep=deth", "did you mean"]),
        (["depth=5"], ["depth=5", "depth=4 or depth=6"]),
        (["+sweep=smoke", "hydra.launcher.jobs=-1"], ["hydra.launcher.jobs=-1", "at least 0"]),
        (["hydra.launcher.jobs_per_gpu=0"], ["hydra.launcher.jobs_per_gpu=0", "at least 1"]),
    ],
    ids=["sweep", "depth", "jobs", "lease"],
)
def test_a_mistake_is_one_line(given: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["plan", *given])
    assert stopped.value.code == 1
    err = capsys.readouterr().err.removeprefix("checking 1 job\n")
    assert err.count("\n") == 1 and all(word in err for word in words)


def test_done_and_to_do_are_those_of_the_folder(tiny: Make, second_an_update: list[str], tmp_path: Path) -> None:
    confs = [tiny(c, seed=s) for c in ("plain", "residual") for s in range(3)]
    study, (done, interrupted) = prepare(confs[:2])
    execute(done, study, lambda: False)
    execute(interrupted, study, lambda: True)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    found = make_plan(Grid(confs, LocalConf(jobs=2)), quiet)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    assert [(k.label, k.runs, k.to_do) for k in found.kinds] == [
        ("connection=plain", 3, 2),
        ("connection=residual", 3, 3),
    ]
    assert found.statuses == {Status.PLANNED: 4, Status.COMPLETE: 1, Status.INTERRUPTED: 1}
    assert found.work_seconds == 5 * (10 + 12) and found.wall_seconds == 3 * 22
    assert len(second_an_update) == 2, "one network a kind"


def test_one_timing_serves_all_budgets_and_rates(tiny: Make, second_an_update: list[str]) -> None:
    confs = [tiny(steps=steps) for steps in (12, 24)]
    confs.append(replace(confs[0], optimizer=replace(confs[0].optimizer, lr=0.3)))
    confs.append(replace(confs[0], depth=6))
    found = make_plan(Grid(confs, None), quiet)
    assert [k.seconds for k in found.kinds] == [22, 34, 22, 22] and len(second_an_update) == 2
    assert found.wall_seconds == found.work_seconds == 100, "Hydra's basic launcher has none beside it"


@pytest.mark.usefixtures("second_an_update")
def test_a_finished_study_has_nothing_to_train(tiny: Make) -> None:
    conf = tiny()
    study, (spec,) = prepare([conf])
    execute(spec, study, lambda: False)
    text = io.StringIO()
    print_plan(make_plan(Grid([conf], LocalConf()), quiet), Console(file=text, width=120))
    assert "1 run (1 complete), 0 to do\nnothing to train: the command would skip every run" in text.getvalue()


@pytest.mark.usefixtures("second_an_update")
def test_sizes_are_counted(tiny: Make) -> None:
    conf = tiny("residual")
    (kind,) = make_plan(Grid([conf], LocalConf()), quiet).kinds
    data = load(conf.data)
    network = build(conf.model, conf.connection, conf.depth, data.input_shape, data.num_classes)
    weights = [p.shape for p in network.parameters() if p.dim() == 2]
    assert kind.num_parameters == sum(p.numel() for p in network.parameters())
    # A multiplication and an addition a weight and example, once forward and twice backward.
    assert kind.step_flops == 3 * 2 * conf.trainer.batch * sum(rows * columns for rows, columns in weights)


def test_a_gpu_that_is_not_here_leaves_the_seconds_out(tiny: Make, second_an_update: list[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    found = make_plan(Grid([tiny(device="auto")], SlurmConf(gpus=1)), quiet)
    assert found.untimed and found.work_seconds is None and not second_an_update
    text = io.StringIO()
    print_plan(found, Console(file=text, width=120))
    assert "no seconds: no CUDA device here" in text.getvalue()


def test_a_cluster_runs_as_many_as_it_may(tiny: Make, second_an_update: list[str]) -> None:
    found = make_plan(Grid([tiny(seed=s) for s in range(4)], SlurmConf(parallel=2)), quiet)
    assert found.at_a_time == 2 and found.wall_seconds == 2 * (22 + module.TASK_SECONDS)


def test_a_whole_run_is_its_parts_by_its_own_cadences(tiny: Make) -> None:
    conf = tiny(steps=100, eval_every=50, batchstats_every=100, checkpoint_every=30, eval_early=False)
    (spec,) = checked_specs([replace(conf, probe=replace(conf.probe, every=0))])
    speed = Speed(start=1, update=10, probe=1e9, evaluation=1e4, batchstats=1e6, checkpoint=1e8, end=2)
    # Evaluations after 0, 50, 100 updates, with batch statistics after 0 and 100; checkpoints at 30, 60, 90.
    assert speed.of_run(spec) == 1 + 1000 + 3e4 + 2e6 + 3e8 + 2


def test_the_longest_job_first_on_the_first_free_worker() -> None:
    assert makespan([1, 2, 3, 4], 1) == 10
    assert makespan([1, 2, 3, 4], 2) == 5
    assert makespan([5, 1, 1], 3) == 5
    assert makespan([], 2) == 0


def test_numbers_as_text() -> None:
    assert [si(x) for x in (0, 950, 28_800_000, 3.15e11, 2e18)] == ["0", "950", "28.8 M", "315 G", "2e+03 P"]
    assert [duration(s) for s in (4.6, 200, 18_425)] == ["5 s", "3 min 20 s", "5 h 7 min"]


def test_expands_as_the_sweep_does() -> None:
    grid = expand(["+sweep=smoke", "depth=4,6", "seed=range(0,3)", "hydra/launcher=slurm", "hydra.launcher.gpus=1"])
    assert {(c.depth, c.seed) for c in grid.confs} == {(d, s) for d in (4, 6) for s in range(3)}
    assert isinstance(grid.launcher, SlurmConf) and grid.launcher.gpus == 1
    (one,) = expand(["depth=20", "hydra/launcher=basic"]).confs
    assert one.depth == 20 and expand(["hydra/launcher=basic"]).launcher is None


def test_every_part_of_a_run_is_timed_and_nothing_of_it_is_kept(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That estimates are near what a run then takes is shown by `make bench`, not here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (spec,) = checked_specs([tiny("residual")])
    speed = measure(spec)
    assert all(getattr(speed, name.name) > 0 for name in fields(Speed) if name.name != "probe") and speed.probe >= 0
    assert speed.of_run(spec) > speed.start + spec.conf.trainer.steps * speed.update
    assert not list(tmp_path.glob("plainres-plan-*"))
