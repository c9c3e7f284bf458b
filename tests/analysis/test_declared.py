"""What stands beside a result: recipe, extra parameters, not a residual connection."""

from typing import Any

import pandas as pd

from plainres.analysis.declared import Declaration, declarations, declared_lines


def record(checks: list[dict[str, Any]], **connection: str) -> dict[str, Any]:
    identity = {f"connection.{name}": value for name, value in connection.items()}
    return {"identity": identity, "audit": {"checks": checks}}


def check(name: str, this: object, partner: object, why: str = "") -> dict[str, Any]:
    return {"check": name, "this": this, "partner": partner, "result": "declared", "why": why}


OPERATIONS = check("connection_operations", ["add"], [], "addition here, none in the partner")
RECORDS = {
    "p": record([], name="plain", shortcut="none"),
    "r": record([OPERATIONS], name="residual", shortcut="identity"),
    "h": record([check("connection_parameters", 1200, 0)], name="highway", shortcut="identity", gate="exclusive"),
    "g": record([check("connection_parameters", 1200, 0)], name="gated", shortcut="identity", gate="branch_only"),
    "d10": record([check("connection_rules", "x", "", "draws × 0.5")], shortcut="identity", recipe="deepnorm"),
    "d20": record([check("connection_rules", "x", "", "draws × 0.4")], shortcut="identity", recipe="deepnorm"),
    "c": record([check("connection_parameters", 7, 0)], shortcut="identity", merge="concat"),
    "planned": {"identity": {}, "audit": None},
}
ARMS = [("plain", 10, "p"), ("residual", 10, "r"), ("highway", 10, "h"), ("gated", 10, "g"), ("deepnorm", 10, "d10"),
        ("deepnorm", 20, "d20"), ("concat", 10, "c"), ("later", 10, "planned")]  # fmt: skip


def found() -> dict[str, Declaration]:
    return declarations(pd.DataFrame(ARMS, columns=["connection", "depth", "run_id"]), RECORDS)


def test_an_addition_alone_needs_no_label() -> None:
    assert set(found()) == {"highway", "gated", "deepnorm", "concat"}


def test_a_recipe_says_so_with_its_fields_at_the_greatest_depth() -> None:
    deepnorm = found()["deepnorm"]
    assert deepnorm.mark == "recipe"
    words = "recipe, differs from plain in shortcut=identity, recipe=deepnorm; draws × 0.4 (at depth 20)"
    assert deepnorm.words == words


def test_the_control_is_not_residual() -> None:
    assert found()["concat"].mark == "not residual, +7 parameters"
    assert "not a residual connection" in found()["concat"].words


def test_equal_words_share_a_line() -> None:
    lines = list(declared_lines(found()))
    assert "gated, highway: 1,200 parameters more than plain (at depth 10)" in lines and len(lines) == 3
