"""The styles of a figure, as data: sizes in inches, fonts in points, matplotlib's settings.

The code of the figures gives lengths and line widths as they are in ``REPORT``; a style says how wide a column and a
page are, and its font and ``lines`` scale the rest. So no figure is written twice.
"""

from dataclasses import dataclass, field
from typing import Any

POINTS = 7.5  # the font size that the lengths in the code are meant for


@dataclass(frozen=True)
class Style:
    """One way that all figures can look.

    Attributes:
        name: as on the command line.
        page: width in inches of a figure across the page.
        column: width in inches of a figure in one column.
        points: font size of labels.
        lines: factor on every line width and marker size.
        ticks: at most so many intervals on a linear axis; None for as many as fit.
        updates: what the axis of training time is called.
        dpi: of the PNG.
        rc: what differs from ``BASE`` among matplotlib's rcParams.
    """

    name: str
    page: float
    column: float
    points: float = POINTS
    lines: float = 1.0
    ticks: int | None = None
    updates: str = "updates"
    dpi: int = 160
    rc: dict[str, Any] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Factor on every length but the widths: room for labels and legends, and heights, follow the font."""
        return self.points / POINTS

    @property
    def params(self) -> Any:
        """All of matplotlib's rcParams that we set."""
        small = self.points * 6.5 / POINTS
        sizes = {"font.size": self.points, "axes.labelsize": self.points, "axes.titlesize": self.points}
        sizes |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), small)
        thick = {name: BASE[name] * self.lines for name in SCALED if name not in self.rc}
        return BASE | thick | sizes | self.rc


BASE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # shipped with matplotlib: the same glyphs on every machine
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # embedded TrueType: text stays text
    "svg.hashsalt": "plainres",
    "figure.dpi": 100,
}
# Frames and ticks grow with the lines; those of curves and markers are scaled when a figure is drawn.
SCALED = tuple(name for name in BASE if name.startswith(("axes.linewidth", "grid.linewidth", "xtick.m", "ytick.m")))
SERIF = {"font.family": ["STIXGeneral", "DejaVu Sans"]}  # Times, as in these venues' text; shipped with matplotlib too
BOX = {"axes.spines.top": True, "axes.spines.right": True, "xtick.direction": "in", "ytick.direction": "in"}

REPORT = Style("report", page=6.9, column=3.4)
STYLES = {
    style.name: style
    for style in (
        REPORT,
        # Figures 1 and 6 of He et al. 2015: two columns of CVPR, framed, thick lines, few ticks, dotted grid.
        Style(
            "he2015", page=6.875, column=3.25, points=8, lines=1.5, ticks=4, updates="iterations", dpi=200,
            rc=BOX | {"axes.linewidth": 0.8, "grid.linestyle": (0, (1, 2)), "grid.color": "#b0b0b0"},
        ),
        Style("poster", page=18, column=9, points=22, lines=3.6, dpi=80),
        Style("icml", page=6.75, column=3.25, points=8, dpi=200, rc=SERIF),
        Style("neurips", page=5.5, column=2.7, points=8, dpi=200, rc=SERIF),
    )
}  # fmt: skip
