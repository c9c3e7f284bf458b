"""Numbers and tables as compact JSON: five significant digits, what does not exist as null."""

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 5


def short(value: Any) -> float | int | None:
    """A number with ``DIGITS`` significant digits; None for one that is missing or not finite."""
    if value is None or not math.isfinite(number := float(value)):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def shorts(values: Iterable[Any]) -> list[float | int | None]:
    """``short`` of each."""
    return [short(value) for value in values]


def columns(table: "pd.DataFrame", names: Iterable[str]) -> dict[str, list[Any]]:
    """Column -> values."""
    return {name: [_plain(value) for value in table[name]] for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool):
        return value
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    return short(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def embedded(value: Any) -> str:
    """JSON that can stand in a script element: no name in it ends the element or opens a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
