"""The claims that rest on final errors: degradation, not_overfitting, not_statistics (``evidence_cured``: cured)."""

from collections.abc import Callable
from dataclasses import replace

from plainres.analysis.cells import Cells
from plainres.analysis.claims import Claim, all_of, any_of, claim, deciding, effect_words, not_tested, seeds_needed
from plainres.analysis.commands import enough_seeds, run_command
from plainres.analysis.compare import Comparison, corrected, with_holm
from plainres.analysis.degradation import onset_of
from plainres.analysis.results import SERIES
from plainres.analysis.rules import RULES, ClaimStatus
from plainres.analysis.settings import PLAIN

Make = Callable[[float], Comparison]


def made(makers: list[Make]) -> list[Comparison]:
    """The comparisons of one claim, all at the level that its number of them asks for, with Holm's p-values."""
    level = corrected(max(len(makers), 1))
    return with_holm([make(level) for make in makers])


def more_seeds(study: str, cells: Cells, comparisons: list[Comparison], connection: str = "") -> str:
    """The command that adds the seeds which would decide the open comparisons; "" if no number would."""
    needed = seeds_needed(comparisons)
    names = [PLAIN, connection] if connection else [PLAIN]
    if not needed:
        return ""
    return run_command(study, cells.runs, connections=names, seeds=enough_seeds(cells.runs, needed))


def degradation(study: str, cells: Cells) -> Claim:
    """Training error of the plain arm rises with depth; the onset is that of ``degradation.onset_of``."""
    depths = cells.depths(PLAIN)
    if not depths:
        words = "Not tested: no run of the plain arm has ended."
        command = run_command(study, cells.runs, connections=[PLAIN])
        return not_tested("degradation", cells.setting, "", words, command)
    if len(depths) == 1:
        words = f"Not tested: the plain arm was run at depth {depths[0]} only, and a rise needs at least two depths."
        return not_tested("degradation", cells.setting, "", words, more_depths(study, cells, depths))
    comparisons = cells.plain_rises
    status, onset = any_of(comparisons), onset_of(comparisons)
    shown = next((c for c in comparisons if c.depth == onset), None) or deciding(status, comparisons)
    if onset is not None and shown is not None:
        deepest = comparisons[-1]
        words = f"Plain networks train worse from depth {onset} on: {effect_words(shown)} against depth {depths[0]}"
        words += f", and {effect_words(deepest)} at depth {deepest.depth}." if deepest is not shown else "."
        below = [c.depth for c in comparisons if c.status is ClaimStatus.UNDECIDED and c.depth < onset]
        words += f" Depth {', '.join(map(str, below))} is undecided." if below else ""
    elif status is ClaimStatus.CONTRADICTED and without_room(cells):
        status = ClaimStatus.UNDECIDED
        words = f"Plain networks of depth {depths[0]} are at chance level already: no rise with depth could show. "
        words += "Train longer, or with another learning rate or init."
    elif status is ClaimStatus.CONTRADICTED and shown is not None:
        words = f"Plain networks up to depth {depths[-1]} train as well as those of depth {depths[0]}: "
        words += f"the nearest to a rise is {shown.label}, {effect_words(shown)}."
    else:
        words = f"It is not clear whether plain networks train worse with depth (depths {_range(depths)})."
    command = more_seeds(study, cells, comparisons)
    return claim("degradation", cells.setting, "", status, words, comparisons, shown, command)


def without_room(cells: Cells) -> bool:
    """Whether even the shallowest plain networks end within the margin of chance level, so that no error can rise."""
    depths = cells.depths(PLAIN)
    if not depths:
        return False
    shallow = cells.cell(PLAIN, depths[0])
    room = 100 * float(shallow["chance_error"].max() - shallow["train_error"].mean())
    return room <= RULES["degradation"].parts["rise"].margin


def not_overfitting(study: str, cells: Cells) -> Claim:
    """Tells degradation, overfitting, underfitting at every depth, and no rise at all apart."""
    depths = cells.depths(PLAIN)
    if len(depths) < 2:
        words = "Not tested: it needs the plain arm at two depths at least."
        return not_tested("not_overfitting", cells.setting, "", words, more_depths(study, cells, depths))
    onset = onset_of(cells.plain_rises)
    part = RULES["not_overfitting"].parts["rise"]
    deeper = [d for d in depths[1:] if onset is None or d >= onset]
    comparisons = made([_validation(cells, d) for d in deeper])
    status = all_of(comparisons) if onset is not None else _no_rise(comparisons)
    words = _kind_of_rise(cells, status, onset, part.margin)
    command = more_seeds(study, cells, comparisons)
    return claim("not_overfitting", cells.setting, "", status, words, comparisons, None, command)


def _no_rise(comparisons: list[Comparison]) -> ClaimStatus:
    """Without an onset the claim can only fail: its training error does not rise, or nobody knows."""
    found = any_of(comparisons)
    return ClaimStatus.UNDECIDED if found is ClaimStatus.SUPPORTED else found


def _validation(cells: Cells, depth: int) -> Make:
    part = RULES["not_overfitting"].parts["rise"]
    return lambda level: cells.rise_beyond_validation("rise", part, depth, level)


def _kind_of_rise(cells: Cells, status: ClaimStatus, onset: int | None, margin: float) -> str:
    plain = cells.used[cells.used["connection"] == PLAIN]
    means = 100 * plain.groupby("depth")[["train_error", "val_error"]].mean()
    first, last = means.iloc[0], means.iloc[-1]
    numbers = (
        f"from depth {means.index[0]} to {means.index[-1]} training error goes from {first['train_error']:.2f} to "
        f"{last['train_error']:.2f} %, validation error from {first['val_error']:.2f} to {last['val_error']:.2f} %."
    )
    half_chance = 50 * float(plain["chance_error"].max())
    if first["train_error"] > half_chance:
        return f"Underfitting everywhere: even the shallowest plain network is far from fitting its data; {numbers}"
    if status is ClaimStatus.SUPPORTED:
        return f"This is degradation, not overfitting: {numbers}"
    val_rise = last["val_error"] - first["val_error"]
    if status is ClaimStatus.CONTRADICTED and val_rise > margin and onset is None:
        return f"This is overfitting, not degradation: only validation gets worse; {numbers}"
    if status is ClaimStatus.CONTRADICTED:
        reason = "there is no rise to explain" if onset is None else "validation gets worse by more than training"
        return f"Training error does not carry the rise: {reason}; {numbers}"
    return f"Not clear: {numbers}"


def without_onset(id_: str, study: str, cells: Cells, connection: str) -> Claim:
    """A claim about the degradation of plain, where none is established: undecided as that, or nothing to test."""
    setting, rises, depths = cells.setting, cells.plain_rises, cells.depths(PLAIN)
    if not rises:
        words = "Not tested: it needs the plain arm at two depths at least."
        return not_tested(id_, setting, connection, words, more_depths(study, cells, depths, connection))
    if all(c.status is ClaimStatus.CONTRADICTED for c in rises) and not without_room(cells):
        words = (
            "Not tested: plain networks do not degrade at the depths at hand, so there is nothing to cure or explain."
        )
        return not_tested(id_, setting, connection, words, more_depths(study, cells, depths, connection))
    words = "Open: it is not decided whether, and from which depth on, plain networks degrade."
    found = claim(id_, setting, connection, ClaimStatus.UNDECIDED, words, [])
    command = more_seeds(study, cells, rises, connection)
    return replace(found, command=command, test="none: it needs an onset of degradation")


def not_statistics(study: str, cells: Cells, connection: str) -> Claim:
    """Rise of plain, and gap to the connection, in the other two series of the training error."""
    setting = cells.setting
    plain_rises = cells.plain_rises
    onset = onset_of(plain_rises)
    if onset is None:
        return without_onset("not_statistics", study, cells, connection)
    depths = [c.depth for c in plain_rises if c.depth >= onset]
    makers: list[Make] = []
    for series in SERIES:
        makers += [_series_rise(cells, series, d) for d in depths]
        makers += [_series_gap(cells, series, connection, d) for d in depths if connection]
    comparisons = made(makers)
    status = all_of(comparisons)
    shown = deciding(status, comparisons)
    ends = {
        ClaimStatus.SUPPORTED: "Rise and gap are there in both other series too",
        ClaimStatus.CONTRADICTED: "In another series of the training error rise or gap are gone",
        ClaimStatus.UNDECIDED: "Not clear in the other series",
    }
    words = ends[status] + (f"; the weakest: {shown.label}, {effect_words(shown)}." if shown else ".")
    command = more_seeds(study, cells, comparisons, connection)
    if any(c.n == 0 for c in comparisons):
        command = run_command(
            f"{study}_statistics",
            cells.runs,
            connections=[PLAIN, connection] if connection else [PLAIN],
            extra="trainer.batchstats_every=150",
        )
    return claim("not_statistics", setting, connection, status, words, comparisons, shown, command)


def _series_rise(cells: Cells, series: str, depth: int) -> Make:
    part = RULES["not_statistics"].parts["rise"]
    return lambda level: cells.rise_of(series, "rise", part, depth, level)


def _series_gap(cells: Cells, series: str, connection: str, depth: int) -> Make:
    part = RULES["not_statistics"].parts["gap"]
    return lambda level: cells.gap_of(series, "gap", part, connection, depth, level)


def more_depths(study: str, cells: Cells, depths: list[int], connection: str = "") -> str:
    """The command that adds a shallow depth where there is one only, and else one twice as deep as the deepest."""
    known = depths or sorted(int(d) for d in cells.runs["depth"].unique())
    wanted = [max(4, known[0] // 5), *known] if len(known) == 1 else [*known, 2 * known[-1]]
    names = [PLAIN, connection] if connection else [PLAIN]
    return run_command(study, cells.runs, depths=sorted(set(wanted)), connections=names)


def _range(depths: list[int]) -> str:
    return f"{depths[0]} to {depths[-1]}"
