"""`python -m run --help`: what can be started, at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from plainres.config import compose, conf_dir
from plainres.grid import expand
from plainres.help import USAGE, print_help


def test_every_configuration_is_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_help()
    out = capsys.readouterr().out
    assert max(map(len, out.removeprefix(USAGE).splitlines())) <= 80
    listed = set(out.replace(",", " ").replace("=", " ").split())
    for path in Path(conf_dir()).glob("*/**/*.yaml"):
        folder = path.relative_to(conf_dir()).parts[0]
        assert folder in ("arm", "hydra") or path.stem in {name.rpartition("/")[2] for name in listed}, path
    assert {"local", "slurm", "basic"} <= listed


def test_its_examples_are_valid() -> None:
    examples = [line.split("  ")[1].strip() for line in USAGE.splitlines() if line.startswith("  python -m run")]
    assert len(examples) == 3
    for example in examples:
        words = example.removeprefix("python -m run ").split()
        if words[0] == "-m":
            assert len(expand(words[1:]).confs) == 4
        elif "+sweep=depth" in words:
            assert len(expand(words).confs) == 40
        else:
            assert compose(words).depth == 50


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_command(flag: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "run", flag], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m run") and not done.stderr
    assert not list(tmp_path.iterdir())
