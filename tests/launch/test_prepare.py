"""What is refused before anything is trained, and what is written when nothing is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plainres.errors import UserError
from plainres.launch import prepare as module
from plainres.launch.prepare import prepare, resolve_device, settings_line
from plainres.launch.sweep import Sweep
from plainres.options import Scale
from plainres.schema import ProbeConf, RunConf, StartConf
from plainres.store import Status

Make = Callable[..., RunConf]


def test_plans_every_job_and_merges_equal_ones(tiny: Make) -> None:
    study, specs = prepare([tiny("plain"), tiny("residual"), tiny("plain")])
    assert len(specs) == 2
    assert [f.status() for f in study.runs()] == [Status.PLANNED, Status.PLANNED]
    assert {f.read()["pair_id"] for f in study.runs()} == {specs[0].pair_id}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"depth": 5}, ["depth=5", "depth=4 or depth=6"]),
        ({"batch": 1438}, ["trainer.batch=1438", "1437"]),
        ({"device": "cuda:99"}, ["trainer.device=cuda:99", "use auto or cpu"]),
    ],
)
def test_refuses_before_writing_anything(tiny: Make, tmp_path: Path, change: dict[str, int], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        prepare([tiny("plain"), tiny("residual", **change)])
    assert all(word in str(error.value) for word in words)
    assert not list(tmp_path.iterdir())


def test_refuses_an_unclean_pair(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "audit", lambda conf, data: {"clean": False, "undeclared": ["draws: first differing: w"]}
    )
    with pytest.raises(UserError, match="not matched: draws: first differing: w"):
        prepare([tiny("plain")])
    assert not list(tmp_path.iterdir())


def test_refuses_two_studies_in_one_sweep(tiny: Make) -> None:
    with pytest.raises(UserError, match="study=other,tiny"):
        prepare([tiny(), replace(tiny(), study="other")])


def test_refuses_another_record_of_an_existing_run(tiny: Make) -> None:
    study, (spec,) = prepare([tiny()])
    folder = study.run_folder(spec.name)
    prepare([replace(tiny(), probe=ProbeConf(every=1))])  # only planned: nothing was recorded yet
    folder.update(status=Status.COMPLETE, config=folder.read()["config"] | {"probe": {"name": "default", "every": 50}})
    with pytest.raises(UserError, match=r"probe\.every=1: .* was recorded with probe\.every=50; .* delete"):
        prepare([replace(tiny(), probe=ProbeConf(every=1))])


def test_refuses_a_folder_that_is_no_study(tiny: Make, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="no plainres study"):
        prepare([tiny()])
    assert [p.name for p in (tmp_path / "tiny").iterdir()] == ["thesis.tex"]


def test_device_auto_and_its_index() -> None:
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") in ("cpu", "cuda")


def test_settings_line_names_what_varies(tiny: Make) -> None:
    assert settings_line([tiny("plain"), tiny("residual", depth=6)]) == "depth=4,6 connection=plain,residual"


def test_settings_line_names_a_start_by_its_name(tiny: Make) -> None:
    scratch = tiny("plain", depth=6)
    built, noisy = (replace(scratch, start=StartConf("built", 4, noise)) for noise in (0.0, 0.1))
    assert settings_line([scratch, built]) == "start=scratch,built"
    assert settings_line([built, noisy]) == "start.noise=0.0,0.1"


def test_settings_line_names_a_connections_part_only_where_it_varies(tiny: Make) -> None:
    residual = tiny("residual")
    scaled, smaller = (
        replace(residual, connection=replace(residual.connection, name="scaled", scale=Scale.fixed, alpha=alpha))
        for alpha in (0.5, 0.1)
    )
    assert settings_line([tiny("plain"), scaled]) == "connection=plain,scaled"
    assert settings_line([tiny("plain"), scaled, smaller]) == "connection=plain,scaled connection.alpha=1.0,0.5,0.1"


def test_a_report_that_cannot_be_written_ends_with_one_line_and_exit_1(
    tiny: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, echo: object, processes: int) -> None:
        raise UserError(f"{path}/report: cannot write the report (No space left on device); make room")

    monkeypatch.setattr("plainres.report.build.build_report", full)
    sweep = Sweep.prepare([tiny()])
    with pytest.raises(SystemExit) as stopped:
        sweep.run(lambda s: [])
    assert stopped.value.code == 1
    assert "the report failed: " in capsys.readouterr().out
