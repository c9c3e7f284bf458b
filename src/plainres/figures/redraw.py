"""Figures of a report drawn again from the CSVs beside them: in place, or in another style in a folder of its own.

No run is read: the folders under ``results/published`` hold all that is needed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plainres.errors import UserError
from plainres.figures.canvas import NothingToDraw
from plainres.figures.gallery import KINDS
from plainres.figures.save import save_csv
from plainres.figures.styles import REPORT, STYLES, Style

NAME = re.compile(rf"({'|'.join(sorted(KINDS, key=len, reverse=True))})(?:-(.*))?")
ELSEWHERE = {  # figures that are no part of figures/, with their kind
    "lesion/delete": "lesion_delete",
    "lesion/swap": "lesion_swap",
    "shattering/shattering": "shattering",
}
SUFFIXES = (".pdf", ".png", ".csv")


@dataclass(frozen=True)
class Source:
    """A figure's CSV.

    Attributes:
        kind: which figure, a key of ``gallery.KINDS``.
        setting: the part of its name that tells settings apart; "" if there is one.
        path: of the CSV.
        style: of the pictures beside it.
    """

    kind: str
    setting: str
    path: Path
    style: Style = REPORT

    @property
    def name(self) -> str:
        """Of the figure among all of its report."""
        return f"{self.kind}-{self.setting}" if self.setting else self.kind


def sources(report: Path) -> list[Source]:
    """All figures that a report (or a published copy of one) holds, in the order of the gallery."""
    named = [(NAME.fullmatch(path.stem), path) for path in (report / "figures").glob("*.csv")]
    found = [Source(match[1], match[2] or "", path) for match, path in named if match is not None]
    beside = [Source(kind, "", report / f"{where}.csv") for where, kind in ELSEWHERE.items()]
    found += [source for source in beside if source.path.is_file()]
    order = list(KINDS)
    return sorted(found, key=lambda source: (order.index(source.kind), source.setting))


def published(root: Path) -> list[Source]:
    """The figures of every published report below a folder, those in further styles (``figures-<style>/``) too."""
    found = []
    for report in sorted({path.parent.parent for path in root.rglob("figures/*.csv")}):
        found += sources(report)
        for style in STYLES.values():
            named = [(NAME.fullmatch(path.stem), path) for path in sorted(report.glob(f"figures-{style.name}/*.csv"))]
            found += [Source(match[1], match[2] or "", path, style) for match, path in named if match is not None]
    return found


def chosen(found: Sequence[Source], only: Sequence[str]) -> list[Source]:
    """Those whose kind or name is in ``only``; all if it is empty.

    Raises:
        UserError: a name that none of them has.
    """
    known = {name for source in found for name in (source.kind, source.name)}
    for name in only:
        if name not in known:
            there = ", ".join(dict.fromkeys(source.kind for source in found)) or "none"
            raise UserError(f"--only {name}: no such figure here; there are: {there}")
    return [source for source in found if not only or {source.kind, source.name} & set(only)]


def redraw(source: Source, style: Style, folder: Path | None = None) -> list[Path]:
    """Write CSV, PDF and PNG of one figure.

    Args:
        source: the figure.
        style: its look.
        folder: where to; None for the place of its CSV, which keeps its bytes.

    Raises:
        UserError: the CSV is not what this version draws.
        NothingToDraw: it has nothing to show.
    """
    name, target = (source.path.stem, source.path.parent) if folder is None else (source.name, folder)
    try:
        return save_csv(source.kind, source.path.read_bytes(), target, name, style)
    except (KeyError, TypeError, ValueError) as error:
        why = f"no column {error}" if isinstance(error, KeyError) else str(error).split("\n")[0]
        raise UserError(f"{source.path}: cannot be drawn ({why}); make it anew with: plainres report STUDY") from error


def redraw_published(root: Path) -> list[Path]:
    """Redraw every figure of every published report below a folder, in place."""
    written = []
    for source in published(root):
        try:
            written += redraw(source, source.style)
        except NothingToDraw as nothing:
            raise UserError(f"{source.path}: {nothing}") from nothing
    return written
