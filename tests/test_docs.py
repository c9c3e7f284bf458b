"""Every command that README, docs and configuration name is run: `plainres ...` on a tiny trained study;
`python -m run ...` as far as its plan: expanded, checked and written down.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pandas
import pytest
import torch
import torchvision

import run
from plainres import cli
from plainres.config import conf_dir
from plainres.job import Outcome
from plainres.launch import pool, single, slurm
from plainres.launch.prepare import prepare
from plainres.launch.sweep import Sweep
from plainres.probes import attach
from plainres.report import build
from plainres.schema import RunConf
from plainres.store import Status, Study, write_json

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(Path(conf_dir()).rglob("*.yaml"))]
TEXTS += sorted((ROOT / "experiments").rglob("*.md"))
COMMAND = re.compile(r"python -m run\b([^#`\n]*?)(?:--? |  |`|#|\n)")
CONTINUED = re.compile(r"\\\n\s*")  # a command over two lines
COMMANDS = sorted({m.strip().rstrip(".,;:`") for t in TEXTS for m in COMMAND.findall(CONTINUED.sub("", t.read_text()))})
SHOWN = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.M | re.S)  # a file's name, then its text
FILES = dict(SHOWN.findall((ROOT / "docs" / "own.md").read_text()))
TARGETS = sorted({m for t in TEXTS for m in re.findall(r"(?:^    |`)make ([a-z-]+)", t.read_text(), re.M)})


def test_there_are_commands() -> None:
    assert "+sweep=depth" in COMMANDS and len(COMMANDS) > 5
    assert {"depth", "test"} <= set(TARGETS)


@pytest.fixture
def documented_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's files that docs/own.md shows, in the folder that its commands are given in."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_branches", None)


def test_the_documented_files_are_those_of_the_study() -> None:
    assert set(FILES) == {"my_branches.py", "confs/connection/mine.yaml", "confs/sweep/mine.yaml"}
    assert FILES["my_branches.py"] == (ROOT / "experiments" / "own-branch-glu" / "my_branches.py").read_text()


# Every job of a sweep as it is shipped is checked in test_sweeps.py; one such command here shows that they start.
SHIPPED = [c for c in COMMANDS if re.fullmatch(r"\+sweep=\w+", c)]
PLANNED = [c for c in COMMANDS if not c.startswith(("--help", "--cfg")) and c not in SHIPPED] + ["+sweep=smoke"]


def test_a_documented_sweep_is_shipped() -> None:
    assert {c.removeprefix("+sweep=") for c in SHIPPED} <= {p.stem for p in Path(conf_dir()).glob("sweep/*.yaml")}


README = [c for c in PLANNED if f"python -m run {c}" in CONTINUED.sub("", (ROOT / "README.md").read_text())]


# A variant of the default study checks its 40 jobs, which test_sweeps.py does too: one of them is enough.
LIGHT = [c for c in README if "+sweep=depth" not in c] + ["+sweep=depth optimizer.lr=0.1 study=depth_lr01"]


@pytest.mark.parametrize("command", [pytest.param(c, marks=() if c in LIGHT else pytest.mark.slow) for c in PLANNED])
@pytest.mark.usefixtures("stand_in_images", "documented_files")
def test_a_documented_command_is_valid(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[RunConf] = []

    def plan_only(conf: RunConf) -> Outcome:
        planned.append(conf)
        prepare([conf])
        return Outcome("", Status.PLANNED, True, "", 0.0)

    monkeypatch.setattr(single, "run_single", plan_only)
    monkeypatch.setattr(pool, "worker_pool", lambda *settings: nullcontext())
    monkeypatch.setattr(slurm, "check_tools", lambda: None)
    monkeypatch.setattr(Sweep, "run", lambda self, launch: planned.extend(s.conf for s in self.specs) or [])
    monkeypatch.chdir(tmp_path)
    given = shlex.split(command.replace("NAME", "smoke").split(" key=")[0])
    if any(part.startswith("+sweep=") for part in given) and not any(part.startswith("seed=") for part in given):
        given.append("seed=0")  # one seed shows as much as all of them
    monkeypatch.setattr(sys, "argv", ["run", *given])
    run.main()
    assert planned
    (study,) = (tmp_path / "results").iterdir()
    assert len(list(Study.open(study).runs())) == len(planned)


@pytest.mark.parametrize("target", TARGETS)
def test_a_documented_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.M)


# `plainres report DIR --with ...` within a text, or on a line of its own: after four spaces, or in a comment of ours.
PLAINRES = re.compile(r"(?:^ {4}|`|^#.*: )plainres ([a-z][^`\n]*)", re.M)
ASIDE = re.compile(r"(\s#.*|\s\[--[^\]]*\]|(?<!\.)[.,:]$)")  # a comment, an optional part, the end of a sentence
STAND_INS = {
    "DIR": "results/depth",
    "RUN": "results/depth/runs/*-d006-*",
    "STUDY": "results/depth",
    "OTHER": "results/budget",
    "+sweep=NAME": "+sweep=smoke",
    "...": "results/budget",
}
SUBCOMMANDS = sorted({ASIDE.sub("", m).strip() for t in TEXTS for m in PLAINRES.findall(t.read_text())})
# ImageNet is not here: test_sweeps.py checks its jobs, test_plan.py what plan does.
WITH_WORDS = [c for c in SUBCOMMANDS if " " in c and "depth_imagenet" not in c]


def test_there_are_subcommands() -> None:
    assert {"report results/depth", "lesion RUN", "describe connection=highway depth=20"} <= set(WITH_WORDS)


@pytest.mark.parametrize("name", sorted({c.split()[0] for c in SUBCOMMANDS}))
def test_a_documented_subcommand_exists(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0


@pytest.fixture
def results(trained_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """results("depth"): the folder results/depth below the current one, which is empty else."""

    def make(name: str) -> None:
        study = tmp_path / "results" / name
        if not study.exists():
            shutil.copytree(trained_study, study)
            write_json(study / "study.json", {"format": 1, "study": study.name})

    monkeypatch.chdir(tmp_path)
    return make


def words_of(command: str, results: Callable[[str], None]) -> list[str]:
    """What the shell would hand over: stand-ins for what the reader fills in, the first of several choices, globs."""
    words: list[str] = []
    for word in shlex.split(command.replace("DIR DIR", "DIR OTHER")):
        given = STAND_INS.get(word, word.split("|")[0])
        if study := re.match(r"results/((?:published/)?[\w-]+)", given):
            results(study[1])
        words += sorted(map(str, Path().glob(given))) if "*" in given else [given]
    return words


NEEDS_ACCOUNT = ("sync", "dashboard")
HEAVY = ("plan",)  # times real networks; test_plan.py does so on small ones
IN_README = [c for c in WITH_WORDS if f"plainres {c}" in (ROOT / "README.md").read_text() and not c.startswith(HEAVY)]


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=() if c in IN_README else pytest.mark.slow) for c in WITH_WORDS]
)
@pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # wandb-workspaces is written for an older pydantic
@pytest.mark.usefixtures("documented_files")
def test_a_documented_subcommand_runs(
    command: str,
    results: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    all_figures = build.paper_figures
    # One or two figures for all of them: each has tests of its own.
    few = ("degradation", "paired_gap") if command.startswith("figures") else ("degradation",)
    monkeypatch.setattr(
        build, "paper_figures", lambda tables: [(name, make) for name, make in all_figures(tables) if name in few]
    )
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # figures are drawn here, where the libraries are imported
    monkeypatch.setenv("WANDB_MODE", "disabled")  # sync takes it away; so it comes back after the test
    if command.startswith(NEEDS_ACCOUNT):  # with one, see tests/tracking: here it says in one line what is missing
        with pytest.raises(SystemExit):
            cli.main(words_of(command, results))
        assert "not logged in to W&B" in capsys.readouterr().err
        return
    cli.main(words_of(command, results))
    shown = capsys.readouterr()
    assert shown.out and "Traceback" not in shown.out + shown.err


def test_the_guided_tour_names_files_that_exist() -> None:
    tour = (ROOT / "README.md").read_text().split("## Guided tour")[1].split("\n## ")[0]
    files = re.findall(r"^\d\. `([^`]+)`", tour, re.M)
    assert len(files) == 9 and all((ROOT / f).is_file() for f in files)


def test_links_and_pictures_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert links and all((ROOT / link).exists() for link in links), links


@pytest.mark.parametrize("text", ["README.md", "docs/attach.md"])
def test_the_example_of_attach_runs(text: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / text).read_text(), re.M | re.S)
    example = next(b for b in blocks if "probes.measure" in b)
    block = torchvision.models.resnet.BasicBlock
    model = torchvision.models.resnet.ResNet(block, [1, 1, 1, 1], num_classes=4)
    scope = {
        "attach": attach,
        "criterion": torch.nn.CrossEntropyLoss(),
        "loader": [(torch.randn(4, 3, 16, 16), torch.arange(4))] * 3,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "pandas": pandas,
        "torch": torch,
    }
    exec(example, scope)
    table = scope["table"]
    columns = ["step", "scope", "layer_index", "layer_name", "metric", "value", "reason"]
    assert list(table.columns) == columns and ", ".join(columns) in example
    ratios = table[(table.metric == "branch_ratio") & (table.step == 2)]
    assert list(ratios.layer_name) == ["layer1.0", "layer2.0", "layer3.0", "layer4.0"] and (ratios.value > 0).all()
