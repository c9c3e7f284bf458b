"""`plainres`: exit codes, one-line errors, and what status shows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fake_study import FakeStudy
from plainres.cli import main
from plainres.store import RunFolder, Status

STATUS = {
    ("plain", 4, 0): Status.DIVERGED,
    ("plain", 8, 0): Status.FAILED,
    ("residual", 4, 0): Status.RUNNING,
    ("residual", 8, 0): Status.PLANNED,
}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return FakeStudy(depths=(4, 8), seeds=(0, 1), steps=60, probes=False, status=STATUS).write(tmp_path)


def folder(study: Path, start: str) -> RunFolder:
    return RunFolder(next((study / "runs").glob(f"{start}-*")))


def test_status_lists_every_state(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", str(study)])
    lines = capsys.readouterr().out.splitlines()
    by_name = {line.split()[0].rsplit("-", 1)[0]: line for line in lines[:-1]}
    assert "diverged" in by_name["mlp-plain-d004-s0"] and "at step 19 in blocks.0.branch.1" not in lines[-1]
    assert "traceback.txt" in by_name["mlp-plain-d008-s0"] and "RuntimeError: boom" in by_name["mlp-plain-d008-s0"]
    assert "stale" in by_name["mlp-residual-d004-s0"] and "resume" in by_name["mlp-residual-d004-s0"]
    assert "60/60" in by_name["mlp-plain-d004-s1"] and "%" in by_name["mlp-plain-d004-s1"]
    assert lines[-1] == "depth: 8 runs: 1 planned, 4 complete, 1 diverged, 1 failed, 1 stale"


def test_status_shows_progress_of_a_running_job(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = folder(study, "mlp-residual-d004-s0")
    running.write_progress(step=33, loss=1.0, train_error=0.25)
    assert running.acquire()
    try:
        main(["status", str(study)])
    finally:
        running.release()
    line = next(x for x in capsys.readouterr().out.splitlines() if running.name in x)
    assert "running" in line and "33/60" in line and "25.00 %" in line


def test_status_names_broken_folders(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = folder(study, "mlp-plain-d004-s1").path
    shutil.rmtree(broken)
    broken.mkdir()
    main(["status", str(study)])
    out = capsys.readouterr().out
    assert f"cannot be read: runs/{broken.name}" in out and out.rstrip().endswith("1 unreadable")


@pytest.mark.parametrize("command", ["status", "report"])
def test_no_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, str(tmp_path)])
    captured = capsys.readouterr()
    assert stopped.value.code == 1 and captured.out == ""
    assert captured.err.startswith("plainres: ") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["--version"], 0), (["report", "-h"], 0), ([], 2), (["nope"], 2)]
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == code
    out = capsys.readouterr().out
    assert code or "plainres" in out


def test_status_stays_light(study: Path) -> None:
    code = (
        "import sys; from plainres.cli import main; main(['status', sys.argv[1]]);"
        "bad = {'torch', 'pandas', 'matplotlib', 'pyarrow', 'scipy', 'hydra'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, study], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_error(study: Path) -> None:
    command = f'"{sys.executable}" -m plainres.cli status "{study}" | head -1'
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
