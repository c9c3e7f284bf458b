"""How a connection is drawn, in plotly's terms: the figures' colours, lines and markers."""

from collections.abc import Iterable
from typing import Any

from plainres.analysis.settings import arm_order, built_of, legend_words
from plainres.figures.style import arm_styles

SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross",
    "<": "triangle-left", ">": "triangle-right", "X": "x",
}  # fmt: skip


def looks(connections: Iterable[str]) -> list[dict[str, Any]]:
    """Name, words, colour, line and marker of each connection; ``of`` is what a constructed network was built with."""
    from matplotlib.colors import to_hex

    found = []
    for name, style in arm_styles(arm_order(connections)).items():
        built = built_of(name)
        look = {
            "name": name,
            "words": legend_words(name),
            "of": built.arm if built else None,
            "colour": to_hex(style.colour),
            "dash": "solid" if isinstance(style.line, str) else ",".join(f"{2 * n:g}px" for n in style.line[1]),
            "symbol": SYMBOLS[style.marker],
        }
        found.append(look)
    return found
