"""How arms and depths look in every figure, whatever its style: colour = arm; shade or x = depth.

Arms also differ by line style and marker, and shades by lightness, so that a grey print can be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plainres.analysis.settings import built_of

# Okabe and Ito's colours, told apart by the colour-blind. Plain and residual keep theirs in every study.
KNOWN_COLOURS = {"plain": "#D55E00", "residual": "#0072B2"}
FURTHER_COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Any, ...] = ((0, (4, 1.3)), "-", (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
BUILT_SHADES, BUILT_PICKS = 7, (5, 3, 2, 1)  # of an arm's colour, light to dark: one for each network built with it
# Each has a line and marker of its own over all arms: where two lie on each other, both are seen.
BUILT_LINES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
BUILT_MARKERS = ("v", "<", ">", "X")
GREY = "#555555"


@dataclass(frozen=True)
class ArmStyle:
    """How one connection is drawn."""

    colour: Any
    line: Any
    marker: str


def arm_styles(connections: Sequence[str]) -> dict[str, ArmStyle]:
    """A style for each connection, given in drawing order (``analysis.settings.arm_order``).

    Networks built from trained ones have the colour of their connection, darker or lighter, and marks of their own.
    """
    built = {name: found.arm for name in connections if (found := built_of(name))}
    styles = _connection_styles(list(dict.fromkeys(built.get(name, name) for name in connections)))
    seen: list[str] = []
    for i, (name, arm) in enumerate(built.items()):
        shades = list(depth_shades(styles[arm].colour, range(BUILT_SHADES)).values())
        shade = shades[BUILT_PICKS[seen.count(arm) % len(BUILT_PICKS)]]
        styles[name] = ArmStyle(shade, BUILT_LINES[i % len(BUILT_LINES)], BUILT_MARKERS[i % len(BUILT_MARKERS)])
        seen.append(arm)
    return {name: styles[name] for name in connections}


def _connection_styles(connections: Sequence[str]) -> dict[str, ArmStyle]:
    styles: dict[str, ArmStyle] = {}
    further = 0
    for i, name in enumerate(connections):
        colour = KNOWN_COLOURS.get(name)
        if colour is None:
            colour = FURTHER_COLOURS[further % len(FURTHER_COLOURS)]
            further += 1
        rank = list(KNOWN_COLOURS).index(name) if name in KNOWN_COLOURS else max(i, len(KNOWN_COLOURS))
        styles[name] = ArmStyle(colour, LINES[rank % len(LINES)], MARKERS[rank % len(MARKERS)])
    return styles


def depth_shades(colour: str, depths: Sequence[int]) -> dict[int, tuple[float, float, float]]:
    """Shades of an arm's colour, light for shallow to dark for deep."""
    from matplotlib.colors import to_rgb

    base = to_rgb(colour)
    shades: dict[int, tuple[float, float, float]] = {}
    for i, depth in enumerate(depths):
        t = i / (len(depths) - 1) if len(depths) > 1 else 0.6
        white, black = max(0.0, 0.62 - t), max(0.0, 0.6 * (t - 0.62) / 0.38)
        r, g, b = (((1 - white) * c + white) * (1 - black) for c in base)
        shades[depth] = (r, g, b)
    return shades
