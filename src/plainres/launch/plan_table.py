"""A plan on the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plainres.launch.plan import Plan
from plainres.report.terminal import make_console, print_wide


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """A row for every kind of run, then the totals."""
    console = console or make_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("runs", no_wrap=True)
    for name in ("n", "to do", "parameters", "FLOPs a step", "seconds each", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for kind in plan.kinds:
        each = "" if kind.seconds is None else f"{kind.seconds:.1f}"
        total = "" if kind.seconds is None else f"{kind.seconds * kind.to_do:.1f}"
        counts = (str(kind.runs), str(kind.to_do), f"{kind.num_parameters:,}")
        table.add_row(Text(kind.label), *counts, si(kind.step_flops), each, total)
    print_wide(console, table)
    for line in _lines(plan):
        console.print(Text(line), soft_wrap=True)


def _lines(plan: Plan) -> list[str]:
    counts = ", ".join(f"{number} {status.value}" for status, number in plan.statuses.items())
    to_do = sum(kind.to_do for kind in plan.kinds)
    total = sum(plan.statuses.values())
    lines = [f"{plan.study}: {total} run{'s' if total > 1 else ''} ({counts}), {to_do} to do"]
    if not to_do:
        lines.append("nothing to train: the command would skip every run and write the report again")
    if plan.untimed:
        lines.append(f"no seconds: {plan.untimed}")
    if plan.work_seconds is not None and plan.wall_seconds is not None and to_do:
        side = f"{min(plan.at_a_time, to_do)} at a time" if plan.at_a_time > 1 else "none beside it"
        wall = duration(plan.wall_seconds)
        lines.append(f"about {duration(plan.work_seconds)} of work; {wall} with {plan.how}, {side}, and the report")
        lines.append("timed on this machine as it is now; a run that was begun counts in full")
    return lines


def si(number: float) -> str:
    """Three digits and a prefix: 12.3 G."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if number < 999.5 or prefix == "P":
            return f"{number:.3g} {prefix}".rstrip()
        number /= 1000
    raise AssertionError("the last prefix returns")


def duration(seconds: float) -> str:
    """In the largest two units: 45 s, 3 min 20 s, 5 h 7 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
