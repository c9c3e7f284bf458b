"""A table of texts as LaTeX (booktabs) and as Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "–": "--", "—": "---", "…": r"\ldots{}", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$",
    "≥": r"$\geq$", "≤": r"$\leq$", "√": r"$\surd$", "‖": r"$\|$", "∂": r"$\partial$", "Δ": r"$\Delta$",
    "λ": r"$\lambda$", "α": r"$\alpha$", "σ": r"$\sigma$", "½": "1/2", "→": r"$\to$", "ⁿ": "$^n$",
}  # fmt: skip
MINUS = re.compile(r"(?<!\w)-(?=\d)")  # before a number a hyphen is a minus


@dataclass(frozen=True)
class TextTable:
    """Cells as text.

    Attributes:
        heads: of the columns.
        rows: one list of cells for each row, as long as ``heads``.
        right: the columns that are aligned to the right.
        note: said below the table; "" for nothing.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int]
    note: str = ""


def escape(text: str) -> str:
    """Text that pdflatex prints as it is; a character that it lacks becomes its code point, U+4E2D."""
    text = MINUS.sub("−", text)
    return "".join(SPECIAL.get(c) or (c if c.isprintable() and ord(c) < 256 else f"U+{ord(c):04X}") for c in text)


def latex(table: TextTable) -> str:
    r"""A tabular to ``\input`` in a document that uses booktabs (and, before TeX Live 2018, inputenc with utf8)."""
    columns = "".join("r" if i in table.right else "l" for i in range(len(table.heads)))
    lines = ["% \\usepackage{booktabs} \\usepackage[T1]{fontenc}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [_line(table.heads), r"\midrule", *[_line(row) for row in table.rows], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *([f"% {table.note}"] if table.note else [])]) + "\n"


def _line(cells: Sequence[str]) -> str:
    # A row that begins with [ or * would be read as an option of the break before it.
    texts = [escape(cell) for cell in cells]
    return " & ".join(f"{{{text}}}" if text.startswith(("[", "*")) else text for text in texts) + r" \\"


def markdown(table: TextTable) -> str:
    """The same as a Markdown table."""
    rule = ["---:" if i in table.right else "---" for i in range(len(table.heads))]
    lines = [table.heads, rule, *[[cell.replace("|", "\\|") for cell in row] for row in table.rows]]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
    return f"{text}\n{table.note}\n" if table.note else text
