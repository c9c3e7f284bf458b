"""HTML from values: every name and number is escaped here, and nowhere else is text put into the page."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from plainres.analysis.claims import effect_words
from plainres.analysis.compare import Comparison
from plainres.analysis.rules import ClaimStatus, Direction
from plainres.report.evidence_text import WORDS

ICONS = {
    ClaimStatus.SUPPORTED: "✓",
    ClaimStatus.CONTRADICTED: "✗",
    ClaimStatus.UNDECIDED: "?",
    ClaimStatus.NOT_TESTED: "–",
}
GLYPH_WIDTH, GLYPH_HEIGHT = 150, 18


def text(value: Any) -> str:
    """Escaped, for content and for attributes."""
    return escape(str(value), quote=True)


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """An element around HTML; ``class_`` and ``data_x`` become ``class`` and ``data-x``; no None, no False."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    said = "".join(
        f" {key}" if value is True else f' {key}="{text(value)}"'
        for key, value in given.items()
        if value is not None and value is not False
    )
    return f"<{name}{said}>{content}</{name}>"


def badge(status: ClaimStatus, short: bool = False) -> str:
    """A status as sign, word and colour; only the sign where ``short``."""
    word = tag("span", WORDS[status], class_="sr" if short else None)
    return tag("span", f'<span aria-hidden="true">{ICONS[status]}</span> {word}', class_=f"badge {status}")


def command(line: str) -> str:
    """A command with a button that copies it."""
    button = tag("button", "copy", type="button", class_="copy", aria_label="copy this command")
    return tag("div", f"<code>{text(line)}</code>{button}", class_="command")


def bullets(lines: Iterable[str]) -> str:
    """A list of plain texts."""
    return tag("ul", "".join(tag("li", text(line)) for line in lines))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = (), **attributes: Any) -> str:
    """A table in a box that scrolls sideways. ``rows`` are cells of HTML; ``numeric`` columns stand right."""
    right = set(numeric)
    align = ["num" if i in right else None for i in range(len(heads))]
    top = "".join(tag("th", text(name), scope="col", class_=align[i]) for i, name in enumerate(heads))
    body = "".join(
        tag("tr", "".join(tag("td", cell, class_=align[i]) for i, cell in enumerate(row))) + "\n" for row in rows
    )
    whole = tag("table", f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>", **attributes)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="table")


def glyph(c: Comparison, limit: float) -> str:
    """An interval as a line with its margin, on an axis from −limit to +limit that all comparisons of a part share."""
    if c.effect is None:
        return ""

    def x(value: float) -> float:
        return GLYPH_WIDTH * (0.5 + 0.48 * max(-1.0, min(1.0, value / limit)))

    middle = GLYPH_HEIGHT / 2
    margins = [c.margin] if c.direction in (Direction.ABOVE, Direction.NO_RISE) else [-c.margin, c.margin]
    marks = [f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="1" y2="{GLYPH_HEIGHT - 1}"/>']
    marks += [f'<line class="margin" x1="{x(m):.1f}" x2="{x(m):.1f}" y1="1" y2="{GLYPH_HEIGHT - 1}"/>' for m in margins]
    if c.low is not None and c.high is not None:
        marks.append(f'<line class="interval" x1="{x(c.low):.1f}" x2="{x(c.high):.1f}" y1="{middle}" y2="{middle}"/>')
    marks.append(f'<circle cx="{x(c.effect):.1f}" cy="{middle}" r="3.2"/>')
    size = f'width="{GLYPH_WIDTH}" height="{GLYPH_HEIGHT}" viewBox="0 0 {GLYPH_WIDTH} {GLYPH_HEIGHT}"'
    words = text(f"{effect_words(c)}, margin {c.margin:g}")
    return f'<svg class="glyph {c.status}" {size} role="img" aria-label="{words}">{"".join(marks)}</svg>'


def reach(comparisons: Sequence[Comparison]) -> float:
    """The largest number that a glyph of these comparisons has to show."""
    ends = [abs(v) for c in comparisons for v in (c.effect, c.low, c.high) if v is not None]
    return max([*ends, *(1.2 * c.margin for c in comparisons)]) or 1.0
