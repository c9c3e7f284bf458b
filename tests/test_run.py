"""The command line: every mistake is one line on stderr, exit 1, before anything is written."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import run
from plainres.config import conf_dir
from plainres.launch import pool

MISTAKES = {
    "dpeth=3": ["dpeth", "did you mean depth"],
    "trainer.lr=3": ["trainer.lr", "optimizer.lr"],
    "modle=cnn": ["modle", "did you mean model"],
    "model=cn": ["model=cn", "cnn, imagenet_resnet, mlp, transformer, vit"],
    "connection=residul": ["connection=residul", "plain, projected, residual"],
    "+sweep=deth": [
        "+sweep=deth",
        "depth, depth_cifar, depth_imagenet, he2015_cifar, he2016_shortcuts",
        "did you mean +sweep=depth?",
    ],
    "sweep=depth": ["+sweep=NAME"],
    "+depth=3": ["leave out the plus"],
    "nonsense": ["key=value"],
    "+trainer.epochs=5": ["trainer.epochs", "no such setting"],
    "+depht=6": ["depht", "did you mean depth"],
    "depth=10,20": ["add -m"],
    "depth=x": ["depth=x", "Integer"],
    "depth=11": ["depth=11", "depth=10 or depth=12"],
    "depth=-4": ["depth=-4", "depth=4"],
    "model.width=0": ["model.width=0", "at least 1"],
    "trainer.steps=-5": ["trainer.steps=-5", "at least 1"],
    "trainer.batch=0": ["trainer.batch=0", "at least 2"],
    "trainer.batch=5000": ["trainer.batch=5000", "1437"],
    "optimizer.lr=fast": ["optimizer.lr=fast", "Float"],
    "optimizer.lr=nan": ["optimizer.lr=nan", "finite"],
    "optimizer.name=sgdd": ["sgdd", "sgd, adamw"],
    "schedule.warmup_steps=600": ["schedule.warmup_steps=600", "trainer.steps="],
    "study=../up": ["study=../up", "names a folder"],
    "results_dir=/proc/nowhere": ["results_dir=/proc/nowhere", "choose another"],
    "trainer.device=cuda:77": ["trainer.device=cuda:77", "auto or cpu"],
    "data.name=imagenet21k": ["data.name=imagenet21k", "digits"],
}


def call(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> int:
    monkeypatch.setattr(sys, "argv", ["run", *overrides])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    code = stopped.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(("override", "words"), MISTAKES.items(), ids=str)
@pytest.mark.parametrize("sweep", [False, True], ids=["single", "sweep"])
def test_a_mistake_is_one_line(
    override: str,
    words: list[str],
    sweep: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if sweep and override in ("depth=10,20", "+sweep=deth", "sweep=depth"):
        return  # several values are what a sweep is for, and it has one name
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "worker_pool", lambda *settings: nullcontext())
    given = ["+sweep=smoke", override] if sweep else [override]
    assert call(monkeypatch, *given) == 1
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and shown.err.startswith("plainres: ")
    assert all(word in shown.err for word in words), shown.err
    assert "Traceback" not in shown.err + shown.out
    assert not list(tmp_path.rglob("*"))


@pytest.mark.slow
def test_a_single_run_from_any_folder(tmp_path: Path) -> None:
    tiny = ["depth=4", "model.width=8", "trainer.steps=30", "trainer.device=cpu"]
    command = [sys.executable, "-m", "run", *tiny]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "complete (in" in first.stdout and not first.stderr
    (folder,) = (tmp_path / "results" / "single" / "runs").iterdir()
    names = {p.name for p in folder.iterdir()}
    assert names == {".lock", "run.json", "steps.parquet", "layers.parquet", "checkpoint.pt"}
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "skipped" in again.stdout


def test_every_sweep_file_says_what_it_costs() -> None:
    for path in sorted((Path(conf_dir()) / "sweep").glob("*.yaml")):
        directive, comment, *_ = path.read_text().splitlines()
        assert directive == "# @package _global_"
        assert f"python -m run +sweep={path.stem}" in comment and "runs" in comment
