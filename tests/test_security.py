"""Files from elsewhere run no code and reach no place outside of their study: checkpoints are in test_checkpoint.py,
names on the page in report/test_page.py."""

import ast
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from fake_study import FakeStudy
from plainres.analysis.load import load_study
from plainres.config import compose
from plainres.data import load
from plainres.errors import UserError
from plainres.options import DataName
from plainres.report.build import build_report
from plainres.report.status import print_status
from plainres.rows import RowWriter
from plainres.schema import DataConf
from plainres.store import Study
from plainres.theory.trained import load_trained

SRC = Path(__file__).parents[1] / "src"
MODULES = sorted(SRC.rglob("*.py"))
UP = "../../../../escape"  # from a run's folder to beside results/
# Calls that make code of data. numpy.load is harmless without allow_pickle, torch.load with weights_only=True.
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads",
    "shelve.open", "joblib.load", "cloudpickle.load", "cloudpickle.loads", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "os.system", "os.popen", "pd.read_pickle", "runpy.run_path",
}  # fmt: skip


def dangerous(source: str) -> Iterator[str]:
    """Calls in a module that could run what a file says."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name in FORBIDDEN or given.get("shell") == "True" or given.get("allow_pickle") == "True":
            yield ast.unparse(node)
        if name == "torch.load" and given.get("weights_only") != "True":
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(SRC).as_posix())
def test_no_module_makes_code_of_a_file(path: Path) -> None:
    assert list(dangerous(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        "eval(x)", "pickle.load(f)", "yaml.load(f)", "torch.load(f)", "torch.load(f, weights_only=False)",
        "np.load(f, allow_pickle=True)", "subprocess.run(x, shell=True)", "os.system(x)",
    ],
)  # fmt: skip
def test_such_a_call_would_be_found(line: str) -> None:
    assert list(dangerous(f"def f(x):\n    return {line}\n")) == [line]
    assert list(dangerous("network.eval()\ntorch.load(f, weights_only=True)\nre.compile(x)\nnp.load(f)")) == []


class Malicious:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code of a data file was run')",)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_forged_pickle_among_the_images_is_not_opened(name: str, tmp_path: Path) -> None:
    """CIFAR's files are pickles: only those with the published checksums are read."""
    folder = tmp_path / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    folder.mkdir()
    for file in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta", "train", "test", "meta"):
        (folder / file).write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(UserError, match="cannot be read"):
        load(DataConf(DataName(name), root=str(tmp_path), cache_dir=str(tmp_path / "cache")))


@pytest.mark.parametrize(
    "override",
    [
        "+model._target_=os.system", "+connection._target_=os.system", "+data._partial_=true", "+_target_=os.system",
        "model.branch=os.system", "connection.shortcut=os.system", "model.branch=os:system", "probe.own=[os:system]",
        "model.width=${oc.eval:1+1}",
    ],
)  # fmt: skip
def test_settings_run_nothing_but_documented_classes(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from plainres.launch.prepare import checked_specs

    monkeypatch.setattr("os.system", lambda *given: pytest.fail("a setting was called"))
    with pytest.raises(UserError) as refused:
        checked_specs([compose([override, "trainer.device=cpu", "tracker=none"])])
    assert "\n" not in str(refused.value)


# run.json from elsewhere


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A study deep enough for ``UP`` to lead to a folder of this test."""
    return FakeStudy(depths=(4,), seeds=(0,), steps=60).write(tmp_path / "results")


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts, and of empty ones that could hold one, in a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield from leaves(inner, (*place, key))
    elif value is None or isinstance(value, str):
        yield place


def replaced(record: dict[str, Any], place: tuple[Any, ...], text: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(record))
    inner: Any = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = text
    return found


def outside(study: Path) -> set[Path]:
    root = study.parents[1]
    return {p for p in root.rglob("*") if study not in (p, *p.parents)}


@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.faults)])
def test_no_text_of_a_record_leads_out_of_its_study(share: int, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text of run.json is a way up in turn; whoever reads it answers, and nothing appears elsewhere."""
    monkeypatch.setattr("importlib.import_module", lambda name, *_: pytest.fail(f"{name} was imported"))
    run = next(Study.open(foreign).runs())
    record, before = run.read(), outside(foreign)
    places = list(leaves(record))
    assert len(places) > 80 and ("run_id",) in places and ("identity", "model.branch") in places
    for place in places[::share]:
        (run.path / "run.json").write_bytes(orjson.dumps(replaced(record, place, UP)))
        load_study(foreign)
        print_status(foreign)
    assert outside(foreign) == before


def test_an_id_that_is_a_path_is_refused(foreign: Path) -> None:
    """W&B's files are found, and cleared away, by it."""
    run = next(Study.open(foreign).runs())
    for bad in (UP, "*", "a/b", ".", "", 7, ["x"]):
        (run.path / "run.json").write_bytes(orjson.dumps(run.read() | {"run_id": bad}) if run.exists() else b"")
        with pytest.raises(UserError, match=r"run_id=.*must be letters and digits"):
            run.read()
        assert run.name in "".join(load_study(foreign).problems)
        run.path.joinpath("run.json").write_bytes(b'{"format": 1}')


def test_settings_of_a_record_are_checked_before_its_network_is_built(trained_study: Path, tmp_path: Path) -> None:
    """By `plainres lesion` and `shattering`, which do build it."""
    run = next(Study.open(shutil.copytree(trained_study, tmp_path / trained_study.name)).runs())
    record = run.read()
    bad = {("model", "norm"): UP, ("model", "branch"): "os.system", ("connection", "name"): UP, ("data", "name"): UP}
    for place, text in {**bad, ("trainer", "device"): UP, ("study",): UP}.items():
        (run.path / "run.json").write_bytes(orjson.dumps(replaced(record, ("config", *place), text)))
        with pytest.raises(UserError, match=r"run\.json: ") as refused:
            load_trained(run.path)
        assert "\n" not in str(refused.value)


@pytest.mark.faults
def test_a_report_of_a_record_full_of_ways_up_stays_inside(foreign: Path) -> None:
    """All texts at once that a report accepts, in both runs, so that they are one setting."""
    for run in Study.open(foreign).runs():
        record = run.read()
        kept = {
            ("run_id",),
            ("pair_id",),
            ("status",),
            ("identity", "connection.name"),
            ("config", "connection", "name"),
        }
        for place in leaves(record):
            if place in kept or place[:1] == ("layout",):
                continue
            changed = replaced(record, place, UP)
            (run.path / "run.json").write_bytes(orjson.dumps(changed))
            if not load_study(foreign).problems:
                record = changed
        (run.path / "run.json").write_bytes(orjson.dumps(record))
    before = outside(foreign)
    build_report(foreign)
    assert outside(foreign) == before
    assert (foreign / "report" / "index.html").exists()


def test_lengths_of_a_checkpoint_name_no_file(study: Study) -> None:
    folder = study.run_folder("run")
    folder.write({"status": "running"})
    victim = study.path.parent / "escape.jsonl"
    victim.write_text("mine\n")
    RowWriter(folder, {"steps": 0, "layers": 0, "../../../escape": 0}).close()
    assert victim.read_text() == "mine\n"


def test_a_branch_of_a_foreign_run_is_imported_by_no_reader(
    foreign: Path, own_module: Callable[[str, str], Path]
) -> None:
    own_module("planted", "raise SystemExit('code of a run was imported')")
    run = next(Study.open(foreign).runs())
    record = replaced(run.read(), ("config", "model", "branch"), "planted:Branch")
    (run.path / "run.json").write_bytes(orjson.dumps(record))
    load_study(foreign)
    print_status(foreign)
    assert not re.search("planted", str(load_study(foreign).problems))
