"""The numbers of the README are those of results/published."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from plainres.analysis.rules import RULES
from plainres.report.numbers import difference_text, error_text

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "results" / "published"
README = (ROOT / "README.md").read_text()
STALE = "README.md does not say what results/published holds: publish again or mend the table"


def rows_of(head: str) -> list[list[str]]:
    """The cells of the table that begins with a head."""
    lines = README.split(head)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_the_default_study() -> None:
    table = pd.read_csv(PUBLISHED / "depth-digits-mlp" / "degradation.csv").to_dict("records")
    cells = {(str(row["depth"]), row["connection"]): row for row in table}
    rows = rows_of("| depth | plain | residual | gap, points (5 pairs) |")
    assert [row[0] for row in rows] == ["10", "20", "50", "100"]
    for depth, plain, residual, gap in rows:
        assert plain == error_text(cells[depth, "plain"], "train_error"), STALE
        assert residual == error_text(cells[depth, "residual"], "train_error"), STALE
        expected = difference_text(cells[depth, "residual"], "gap").replace("-", "−").replace(" (5)", "")
        assert gap == expected, STALE


def test_the_table_of_claims() -> None:
    evidence = json.loads((PUBLISHED / "all-claims" / "evidence.json").read_text())
    claims = {claim["id"]: claim for claim in evidence["claims"]}
    rows = rows_of("| claim | says | status | effect [interval, corrected] | n |")
    assert [row[0] for row in rows] == list(RULES) == list(claims)
    for id_, says, status, effect, n in rows:
        claim = claims[id_]
        assert says.lower() == RULES[id_].title.lower()
        assert status.split(" (")[0] == claim["status"].replace("_", " "), STALE
        assert effect.rstrip("*") == effect_of(claim) and n == str(claim["n"]), STALE


def effect_of(claim: dict[str, Any]) -> str:
    if claim["unit"] == "share":
        return f"{claim['effect'] * claim['n']:.0f} of {claim['n']} pairs"
    unit = {"percentage points": "points"}.get(claim["unit"], claim["unit"])
    return f"{claim['effect']:+.2f} {unit} [{claim['low']:+.2f}, {claim['high']:+.2f}]"


def test_the_table_of_the_benchmark() -> None:
    found = json.loads((PUBLISHED / "bench" / "bench.json").read_text())
    known = {row["name"]: row for row in found["rows"]}
    rows = rows_of("| what / against what | median [least, greatest] | target |")
    assert len(rows) >= 8
    for name, value, target in rows:
        row = known[name]
        spread = " [{:.3g}, {:.3g}]".format(*row["spread"]) if row["spread"] else ""
        assert value == f"{row['value']:.3g} {row['unit']}{spread}", STALE
        assert target == row["target"] + (": missed" if row["met"] is False else ""), STALE
    missed = {row["name"] for row in found["rows"] if row["met"] is False}
    assert missed <= {name for name, *_ in rows}, "what was missed is told"
    assert f"commit {found['machine']['commit']}" in README


@pytest.mark.parametrize(
    ("study", "depths", "connection"),
    [
        ("depth-cifar10-jpeg-resnet", (8, 20, 56), "plain"),
        ("depth-cifar10-jpeg-resnet", (8, 20, 56), "residual"),
    ],
)
def test_the_numbers_on_images(study: str, depths: tuple[int, ...], connection: str) -> None:
    table = pd.read_csv(PUBLISHED / study / "degradation.csv").set_index(["connection", "depth"])
    means = ", ".join(f"{100 * table.loc[(connection, depth), 'train_error_mean']:.0f}" for depth in depths)
    assert re.sub(r"\s+", " ", README).count(means) == 1, STALE
