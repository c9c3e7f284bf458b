"""The claim ``cured``: lower errors than plain where plain networks degrade, and no rise with depth of its own."""

import numpy as np

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, claim, deciding, effect_words, not_tested
from plainres.analysis.compare import Comparison
from plainres.analysis.degradation import onset_of
from plainres.analysis.evidence_errors import Make, made, more_depths, more_seeds, without_onset
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN


def cured(study: str, cells: Cells, connection: str) -> Claim:
    """Gaps at and beyond the onset, and no rise of the connection's own error."""
    parts, setting = RULES["cured"].parts, cells.setting
    plain_rises = cells.plain_rises
    onset, own = onset_of(plain_rises), cells.depths(connection)
    if not plain_rises:
        gaps = made([_gap(cells, connection, d) for d in own if d in cells.depths(PLAIN)])
        seen = "; ".join(f"{c.label}: {effect_words(c)}" for c in gaps)
        words = "Not tested: it needs the plain arm at two depths at least, to know where plain networks degrade."
        words += f" Measured was {seen}." if seen else ""
        command = more_depths(study, cells, cells.depths(PLAIN), connection)
        return not_tested("cured", setting, connection, words, command)
    if onset is None:
        return without_onset("cured", study, cells, connection)
    beyond = [d for d in cells.depths(PLAIN) if d >= onset]
    comparisons = made(
        [_gap(cells, connection, d) for d in beyond] + [_own_rise(cells, connection, d) for d in own[1:]]
    )
    status = all_of(comparisons)
    if status is ClaimStatus.SUPPORTED and len(own) < 2:
        status = ClaimStatus.UNDECIDED
    gaps, own_rises = ([c for c in comparisons if c.part == name] for name in parts)
    words = _cured_words(cells, connection, status, gaps, own_rises)
    shown = deciding(status, gaps) if status is ClaimStatus.SUPPORTED else None
    return claim(
        "cured",
        setting,
        connection,
        status,
        words,
        comparisons,
        shown,
        more_seeds(study, cells, comparisons, connection),
    )


def _gap(cells: Cells, connection: str, depth: int) -> Make:
    part = RULES["cured"].parts["gap"]
    return lambda level: cells.gap("gap", part, connection, depth, level)


def _own_rise(cells: Cells, connection: str, depth: int) -> Make:
    part = RULES["cured"].parts["rise"]
    return lambda level: cells.rise("rise", part, connection, depth, level)


def _cured_words(
    cells: Cells, connection: str, status: ClaimStatus, gaps: list[Comparison], own_rises: list[Comparison]
) -> str:
    errors = 100 * cells.used.loc[cells.used["connection"] == connection, "train_error"].to_numpy(dtype=float)
    worst = f"its worst run ends at {np.max(errors):.2f} % training error" if errors.size else "it has no finished run"
    said = "; ".join(f"{c.label}: {effect_words(c)}" for c in gaps)
    if status is ClaimStatus.SUPPORTED:
        nearest = deciding(status, own_rises)
        own = f" Nearest to a rise of its own: {nearest.label}, {effect_words(nearest)}." if nearest else ""
        own += _equal_words(own_rises)
        return f"With {connection} the networks train where plain ones do not: {said}; {worst}.{own}"
    failed = [c for c in (*gaps, *own_rises) if c.status is ClaimStatus.CONTRADICTED]
    if failed:
        against = "; ".join(f"{c.label}: {effect_words(c)}" for c in failed[:3])
        better = [c for c in gaps if c.status is ClaimStatus.SUPPORTED]
        less = f"lessens it ({better[-1].label}: {effect_words(better[-1])}) and " if better else ""
        return f"{connection} {less}does not cure it ({against}); {worst}."
    return f"Not clear whether {connection} cures it: {said}; {worst}."


def _equal_words(own_rises: list[Comparison]) -> str:
    """Not to rise is to stay equal or to fall; which of the two the intervals show."""
    equal = [c.depth for c in own_rises if c.equivalent]
    lower = [c.depth for c in own_rises if not c.equivalent]
    if not lower:
        return " Its error stays equal within the margin at every depth." if equal else ""
    staying = f"equal within the margin at depth {', '.join(map(str, equal))}, " if equal else ""
    return f" Its error stays {staying}at most equal, or falls, at depth {', '.join(map(str, lower))}."
