"""docs/reliability.md: the tests that it names are there, and so are the counts that code knows."""

import re
from collections import Counter
from pathlib import Path

import pytest

from small_sweep import LIVES, TEN

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize(("path", "name"), NAMED, ids="::".join)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M)


def test_every_fault_names_a_test() -> None:
    assert len(ROWS) > 20 and len(NAMED) > 40
    for row in ROWS:
        assert row.count("|") == 6 and ("::" in row or "there are none" in row), row


def test_every_long_fault_is_on_the_page() -> None:
    named = {name for _, name in NAMED}
    for path in (ROOT / "tests").rglob("test_*.py"):
        marked = re.findall(r"@pytest\.mark\.faults\n(?:@.*\n)*def (\w+)\(", path.read_text())
        assert set(marked) <= named, path


def test_the_kills_of_each_phase() -> None:
    kills = {phase: LIVES * n for phase, n in Counter(TEN).items()}
    said = ", ".join(f"{phase} {n}" for phase, n in kills.items())
    assert f"{sum(kills.values())}: {said}" in TEXT
