"""The direction of imports (DESIGN): torch stays on the training side, Hydra at the entrance."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
MODULES = sorted((SRC / "plainres").rglob("*.py")) + sorted((SRC / "hydra_plugins").rglob("*.py")) + [SRC / "run.py"]

HYDRA_SIDE = {
    "run.py",
    "plainres/config.py",
    "plainres/grid.py",
    "plainres/api/entrance.py",
    "hydra_plugins/plainres.py",
}
ENTRY_SIDE = {"launch", "config", "grid", "help"}
TRAINING_SIDE = {
    "assembly", "audit", "checkpoint", "clock", "construction", "data", "describe", "divergence", "engine", "evaluate",
    "flat", "job", "memory", "models", "optim", "precision", "probed", "probes", "progress", "ranks", "replicas",
    "seeding", "signature", "source", "step", "theory", "train", "transfer", "launch", "tracking",
}  # fmt: skip
READING_SIDE = {"analysis", "api", "figures", "report", "cli"}
# Parts of the reading side that train when they are asked to; what they need of the training side is imported then.
ON_DEMAND = {
    "plainres/cli.py": {"describe", "launch", "theory", "tracking"},
    "plainres/api/run.py": {"job"},
    "plainres/api/process.py": {"seeding"},
    "plainres/api/entrance.py": {"config", "job", "launch"},
}
NEITHER = {
    "errors", "options", "own_class", "schema", "validation", "validation_network", "validation_replicas",
    "validation_start", "pair", "store", "rows", "environment",
}  # fmt: skip


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def part(path: Path) -> str:
    relative = path.relative_to(SRC)
    return (relative.parts[1] if len(relative.parts) > 1 else relative.name).removesuffix(".py")


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def parts_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("plainres.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(SRC).as_posix())
def test_direction(path: Path) -> None:
    name = path.relative_to(SRC).as_posix()
    if name not in HYDRA_SIDE:
        assert not roots(path) & {"hydra", "omegaconf"}, "only the entrance may know Hydra"
    if part(path) in READING_SIDE | NEITHER:
        lazy_device_name = {"torch"} if name == "plainres/environment.py" else set()
        assert not (roots(path) & {"torch", "torchvision", "wandb"}) - lazy_device_name
        assert not parts_imported(path) & TRAINING_SIDE - ON_DEMAND.get(name, set()), (
            "reading a study must not need the training side"
        )
    if part(path) in {"models", "probes", "data", "flat", "optim", "seeding"}:
        assert not parts_imported(path) & {"store", "rows", "job", "train", "tracking", "launch", "analysis"}
    if part(path) == "analysis":
        assert not parts_imported(path) & {"figures", "report"}, "statistics know nothing of drawing"
    if part(path) not in ENTRY_SIDE | {"run", "plainres", "cli"} and name != "plainres/api/entrance.py":
        assert "launch" not in parts_imported(path), "a library part must not launch anything"


def test_every_part_has_a_side() -> None:
    known = TRAINING_SIDE | READING_SIDE | NEITHER | ENTRY_SIDE | {"__init__", "run", "plainres", "conf"}
    assert {part(p) for p in MODULES} <= known


@pytest.mark.parametrize("module", ["run", "plainres.cli", "plainres.report.build"])
def test_heavy_libraries_stay_out_until_needed(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'wandb', 'matplotlib', 'scipy'}} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
