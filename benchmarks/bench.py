"""make bench: how fast plainres is, as ratios to what one would write by hand; prints one table and writes JSON.

python benchmarks/bench.py [--device cuda] [--only step probes] [--full] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import growth
import images
import probing
import replicas
import reporting
import steps
import sweeping
import torch
from measure import Row, Setup, machine
from rich.console import Console
from rich.table import Table

import tracking

SECTIONS: dict[str, Callable[[Setup, Path], Iterator[Row]]] = {
    "step": steps.rows,
    "probes": probing.rows,
    "images": images.rows,
    "growth": growth.rows,
    "replicas": replicas.rows,
    "tracking": tracking.rows,
    "sweep": sweeping.rows,
    "report": reporting.rows,
}


MET = {True: "yes", False: "NO", None: ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    what = "sections, all by default; a minute each, and with --full ten more for sweep"
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help=what)
    what = "how often all sides take turns: a ratio's median and range are over them (default: %(default)s)"
    parser.add_argument("--rounds", type=int, default=7, help=what)
    what = "of the usual steps of a round; below 1 is quicker and says little (default: %(default)s)"
    parser.add_argument("--share", type=float, default=1.0, help=what)
    parser.add_argument("--full", action="store_true", help="also all 40 runs of the sweep, and a report of 400 runs")
    parser.add_argument("--json", type=Path, help="also write the rows to this file, and a table in Markdown beside it")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "bench: --device cuda: there is no CUDA device here; leave it out to measure the CPU\n")
    if args.rounds < 1 or not args.share > 0:
        parser.exit(
            2, f"bench: --rounds {args.rounds} --share {args.share}: give at least 1 round and a share above 0\n"
        )
    if args.json and not args.json.parent.is_dir():
        parser.exit(2, f"bench: --json {args.json}: there is no folder {args.json.parent}; make it first\n")
    setup = Setup(args.device, args.rounds, args.full, args.share)
    console, found = Console(width=None if sys.stdout.isatty() else 150), []
    where = machine(setup.device)
    for name in args.only:
        with tempfile.TemporaryDirectory() as results:
            for row in SECTIONS[name](setup, Path(results)):
                found.append(row)
                console.print(f"{row.name}: {text(row)}", highlight=False, markup=False)
    console.print(table(found, where))
    if args.json:
        document = {"machine": where, "rows": [row.json() for row in found]}
        args.json.write_text(json.dumps(document, indent=2) + "\n")
        args.json.with_suffix(".md").write_text(markdown(document))


def markdown(document: dict[str, Any]) -> str:
    """The whole document as results/published/bench/README.md has it."""
    rows = [Row(**row) for row in document["rows"]]
    lines = ["| what / against what | median [least, greatest] | target | met | |", "|---|---|---|---|---|"]
    lines += [f"| {row.name} | {text(row)} | {row.target} | {MET[row.met]} | {row.note} |" for row in rows]
    where = ", ".join(f"{key} {value}" for key, value in document["machine"].items())
    return "\n".join([f"{where}.", "", *lines]) + "\n"


def text(row: Row) -> str:
    """``1.21 x [1.18, 1.25]``."""
    spread = f" [{row.spread[0]:.3g}, {row.spread[1]:.3g}]" if row.spread else ""
    return f"{row.value:.3g} {row.unit}{spread}"


def table(rows: list[Row], where: dict[str, object]) -> Table:
    """Everything at a glance."""
    title = ", ".join(f"{key} {value}" for key, value in where.items())
    found = Table(title=title, title_justify="left", box=None, pad_edge=False)
    found.add_column("what / against what", ratio=5)
    found.add_column("median [range]", no_wrap=True)
    found.add_column("target", no_wrap=True)
    found.add_column("met")
    found.add_column("", ratio=3)
    for row in rows:
        found.add_row(row.name, text(row), row.target, MET[row.met], row.note)
    return found


if __name__ == "__main__":
    main()
