"""A run that dies, or finds the disk full, at each of its writes in turn: the same command then has the same bits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "every_write.py"
FULL = "No space left on device"


def faults(place: Path, *words: str, around: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    done = subprocess.run([*around, sys.executable, str(SCRIPT), str(place), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: list[dict[str, Any]] = json.loads((place / "told.json").read_text())
    return told


@pytest.mark.parametrize("share", [26, pytest.param(1, marks=pytest.mark.faults)])
@pytest.mark.timeout(600)
def test_a_fault_at_a_write_changes_no_bit(share: int, tmp_path: Path) -> None:
    told = faults(tmp_path, "writes", str(share))
    kills, full = ([t for t in told if t["fault"] == fault] for fault in ("kill", "full"))
    assert len(kills) == len(full) >= 70 // share
    assert {t["ended"] for t in kills} == {"killed"}
    for t in full:
        check_one_line(t, {"refused", "failed"})
    assert [t for t in told if not t["same"]] == []


def check_one_line(told: dict[str, Any], allowed: set[str]) -> None:
    """It says in one line that the disk is full, unless the run had ended by then."""
    if told["ended"] != "complete":
        assert told["ended"] in allowed, told
        assert FULL in told["message"] and ("make room" in told["message"] or "choose another" in told["message"])
        assert "\n" not in told["message"] and "traceback" not in told["message"]


@pytest.fixture
def own_mounts() -> tuple[str, ...]:
    """What a command is preceded by to have a mount namespace of its own."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a mount namespace")
    return ("unshare", "-rm")


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_small_disks_cost_no_bit(own_mounts: tuple[str, ...], tmp_path: Path) -> None:
    """Real ones: a tmpfs of 4 KiB more each time."""
    told = faults(tmp_path, "disks", "4", around=own_mounts)
    disks, reports = ([t for t in told if t["fault"] == fault] for fault in ("disk", "report"))
    assert len(disks) > 10 and disks[-1]["ended"] == "complete"
    for t in disks:
        check_one_line(t, {"refused", "failed"})
    for t in reports:
        assert t["ended"] == "refused" and FULL in t["message"] and "make room" in t["message"]
    assert [t for t in told if not t["same"]] == []


@pytest.mark.faults
def test_read_only_folders_are_one_line(own_mounts: tuple[str, ...], tmp_path: Path) -> None:
    told = {t["where"]: t for t in faults(tmp_path, "readonly", "0", around=own_mounts)}
    assert {where: t["ended"] for where, t in told.items()} == {
        "results": "refused", "run": "failed", "report": "refused"
    }  # fmt: skip
    for t in told.values():
        assert "Read-only file system" in t["message"] and "\n" not in t["message"] and t["same"], t
