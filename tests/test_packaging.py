"""Editable, wheel and sdist→wheel installs each start `python -m run` and the console scripts from an empty folder."""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONE = ["depth=4", "model.width=8", "trainer.steps=30", "trainer.device=cpu"]
TINY = ["-m", "connection=plain,residual", *ONE]


def call(*command: str | Path, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of the checkout, and the wheel built from its sdist."""
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--wheel", "--outdir", out / "direct", cwd=ROOT)
    call(sys.executable, "-m", "build", "--sdist", "--outdir", out / "sdist", cwd=ROOT)
    (sdist,) = (out / "sdist").glob("*.tar.gz")
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out / "from_sdist", sdist, cwd=out)
    return {"wheel": next((out / "direct").glob("*.whl")), "sdist": next((out / "from_sdist").glob("*.whl"))}


def install(kind: str, built: dict[str, Path], tmp_path: Path) -> Path:
    """A new environment's bin/, with this kind of install in it."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    # PyTorch is several gigabytes: the new environment borrows the libraries of this one, but not plainres itself.
    site = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    (Path(site) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    target = ["-e", ROOT] if kind == "editable" else [built[kind]]
    call(python, "-m", "pip", "install", "--no-deps", "--force-reinstall", *target, cwd=tmp_path)
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["editable", "wheel", "sdist"])
def test_an_install_runs_from_an_empty_folder(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    bin_ = install(kind, built, tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    where = call(bin_ / "python", "-c", "import plainres.config as c; print(c.conf_dir())", cwd=empty).strip()
    assert Path(where).is_relative_to(ROOT if kind == "editable" else tmp_path)
    assert "plainres: complete" in call(bin_ / "python", "-m", "run", *ONE, cwd=empty)
    assert "plainres: complete" in call(bin_ / "plainres-run", *ONE, "connection=residual", cwd=empty)
    assert "2 complete" in call(bin_ / "plainres", "status", "results/single", cwd=empty)
    if kind == "wheel":  # a sweep: its workers import what was installed, its page holds files of the package
        assert "runs: 2 complete" in call(bin_ / "python", "-m", "run", *TINY, "study=both", cwd=empty)
        assert (empty / "results" / "both" / "report" / "index.html").is_file()
        check_a_users_branch(bin_, tmp_path / "mine")


def check_a_users_branch(bin_: Path, folder: Path) -> None:
    """It runs from a folder with nothing else, where a console script does not look by itself."""
    folder.mkdir()
    shutil.copy(ROOT / "experiments" / "own-branch-glu" / "my_branches.py", folder)
    branch = ["model.branch=my_branches:GatedLinear", "probe.own=[my_branches:TrunkMean]", "hydra.launcher.jobs=1"]
    assert "runs: 2 complete" in call(bin_ / "plainres-run", *TINY, *branch, "study=mine", cwd=folder)
    report = folder / "results" / "mine" / "report"
    rows = csv.DictReader((report / "degradation.csv").read_text().splitlines())
    assert [(row["connection"], row["gap_n"]) for row in rows] == [("plain", "0"), ("residual", "1")]
    assert (report / "summary.md").stat().st_size > 0
    (pair,) = csv.DictReader((report / "audit.csv").read_text().splitlines())
    assert pair["clean"] == "True"
    wrong = [bin_ / "plainres-run", "model.branch=my_branches:Gated"]
    refused = subprocess.run([str(c) for c in wrong], cwd=folder, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and "it has GatedLinear" in refused.stderr
