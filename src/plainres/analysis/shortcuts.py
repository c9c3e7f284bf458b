"""The shortcuts of He et al. 2016 (arXiv 1603.05027), table 1, found in a study by what its connections are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FAIL = "fail"  # the paper's word for a test error above 20 %
# The paper's test error in % of ResNet-110 on CIFAR-10, median of 5, by what stands on the shortcut and on the branch.
PAPER = {
    ("1", "1"): "6.61",
    ("0", "1"): FAIL,
    ("0.5", "1"): FAIL,
    ("0.5", "0.5"): "12.35",
    **{(f"1−g(x), b = {bias}", "g(x)"): FAIL for bias in ("0", "−1", "−2", "−3", "−4", "−5")},
    ("1−g(x), b = −6", "g(x)"): "8.70",
    ("1−g(x), b = −7", "g(x)"): "9.81",
    ("1−g(x), b = 0", "1"): "12.86",
    ("1−g(x), b = −6", "1"): "6.91",
    ("1×1 conv", "1"): "12.22",
    ("dropout 0.5", "1"): FAIL,
}
PLAIN_ROW = ("none", "1")
# Parts of a connection that no row of the table has: a connection with another value of one is none of its rows.
USUAL = {"drop": "none", "merge": "add", "zero_init": "none", "recipe": "none", "alpha_warmup": 0}


@dataclass(frozen=True)
class Row:
    """What stands on the shortcut and on the branch, in the paper's words."""

    shortcut: str
    branch: str

    @property
    def paper(self) -> str:
        """Its test error in the paper, in %, or ``fail``; empty if the paper has no such row."""
        return PAPER.get((self.shortcut, self.branch), "")

    @property
    def order(self) -> tuple[int, str, str]:
        """Plain first, then the paper's order, then what the paper does not have."""
        known = [PLAIN_ROW, *PAPER]
        key = (self.shortcut, self.branch)
        return (known.index(key) if key in known else len(known), *key)


def rows_of(runs: "pd.DataFrame") -> dict[str, Row]:
    """The connections of a study (label -> row) that consist of a shortcut, a gate and fixed factors only."""
    parts = [name for name in runs.columns if str(name).startswith("connection.")]
    firsts = runs.drop_duplicates("connection").set_index("connection")[parts]
    found = {str(label): row_of(parts.to_dict()) for label, parts in firsts.iterrows()}
    return {label: row for label, row in found.items() if row is not None}


def row_of(parts: Mapping[Any, Any]) -> Row | None:
    """The row of one connection.

    Args:
        parts: ``connection.shortcut`` and all other identity fields of a connection, by dotted name.

    Returns:
        None for a connection that the paper's table has no words for (learned scales, stochastic depth, own shortcuts).
    """
    part = {str(name).removeprefix("connection."): value for name, value in parts.items()}
    if any(part[name] != usual for name, usual in USUAL.items()):
        return None
    shortcut, branch = _shortcut(part), _branch(part)
    return None if shortcut is None or branch is None else Row(shortcut, branch)


def _shortcut(part: dict[str, Any]) -> str | None:
    if part["gate"] in ("exclusive", "shortcut_only"):
        return f"1−g(x), b = {part['gate_bias']:g}".replace("-", "−") if part["shortcut"] == "identity" else None
    if part["gate"] != "none":
        return None
    plain = {"none": "none", "identity": "1", "projection": "1×1 conv"}
    if part["shortcut"] in plain:
        return plain[part["shortcut"]]
    numbers = {"scaled": f"{part['shortcut_scale']:g}", "dropout": f"dropout {part['shortcut_dropout']:g}"}
    return numbers.get(part["shortcut"])


def _branch(part: dict[str, Any]) -> str | None:
    if part["gate"] == "exclusive":
        return "g(x)" if part["scale"] == "none" else None
    if part["scale"] == "none":
        return "1"
    return f"{part['alpha']:g}" if part["scale"] == "fixed" else None
