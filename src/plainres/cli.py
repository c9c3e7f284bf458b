"""`plainres status|report|figures|compare|plan|describe|lesion|shattering|sync|dashboard`: studies and networks.

Only describe, plan, lesion and shattering import torch, only sync and dashboard wandb, and only when they are called.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec

from plainres.errors import UserError
from plainres.launch.stopping import terminated_as_interrupted


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Exit code 0; 1 after a user's mistake (one line on stderr); 2 for a wrong command line;
    130 after Ctrl-C or SIGTERM."""
    arguments = _parser().parse_args(argv)
    try:
        with terminated_as_interrupted():
            arguments.command(arguments)
    except UserError as error:
        print(f"plainres: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("plainres: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `plainres status ... | head`
        sys.stderr.close()
        sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plainres",
        description="Look at studies of plain and residual networks. Runs are started with: python -m run +sweep=depth",
        epilog="example: plainres report results/depth",
    )
    parser.add_argument("--version", action="version", version=f"plainres {version('plainres')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "status", _status, "list the runs of a study and their states")
    report = _add(
        commands, "report", _report, "write tables and figures of a study to DIR/report, and print the result"
    )
    what = "further studies whose runs test claims about this one (budget, learning rate, initial scales, construction)"
    report.add_argument("--with", dest="beside", metavar="DIR", nargs="+", action="extend", default=[], help=what)
    _add_figures(commands, what)
    text = "several studies on one page, aligned by depth and connection"
    compare = commands.add_parser("compare", help=text, description=f"{text[0].upper()}{text[1:]}.")
    compare.add_argument("studies", metavar="DIR", nargs="+", help="two or more studies' folders")
    what = "where to write the page (default: compare-NAME-NAME.html beside the first study)"
    compare.add_argument("--out", metavar="FILE", help=what)
    compare.set_defaults(command=_compare)
    text = "print a network, its connection and the audit of its pair, without training"
    describe = commands.add_parser("describe", help=text, description=f"{text[0].upper()}{text[1:]}.")
    what = "settings as for python -m run: model=cnn connection=highway depth=20"
    describe.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=what)
    describe.set_defaults(command=_describe)
    text = "what a command would run, what of it is done, and how long the rest takes, without training"
    plan = commands.add_parser("plan", help=text, description=f"{text[0].upper()}{text[1:]}.")
    what = "settings as for python -m run: +sweep=depth depth=10,20 hydra/launcher=slurm"
    plan.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=what)
    plan.set_defaults(command=_plan)
    text = "delete the blocks of trained networks one at a time, and write what that costs to DIR/report/lesion"
    lesion = commands.add_parser("lesion", help=text, description=f"{text[0].upper()}{text[1:]}.")
    lesion.add_argument(
        "runs", metavar="RUN", nargs="+", help="folders of complete runs, such as results/depth/runs/NAME"
    )
    lesion.add_argument("--swap", action="store_true", help="exchange two blocks instead")
    lesion.set_defaults(command=_lesion)
    text = (
        "how fast input gradients change along a line, of trained networks or before training; to DIR/report/shattering"
    )
    shattering = commands.add_parser("shattering", help=text, description=f"{text[0].upper()}{text[1:]}.")
    what = "folders of complete runs, or settings such as connection=plain,residual depth=10,20,50"
    shattering.add_argument("what", metavar="RUN|KEY=VALUE", nargs="+", help=what)
    shattering.set_defaults(command=_shattering)
    sync = _add(commands, "sync", _sync, "send a study's offline runs to Weights & Biases; goes on where it stopped")
    sync.description = f"{sync.description} Needs a login (wandb login, or WANDB_API_KEY)."
    dashboard = _add(commands, "dashboard", _dashboard, "save a Weights & Biases workspace with a study's panels")
    dashboard.add_argument("--project", default="plainres", help="W&B project of the runs (default: %(default)s)")
    dashboard.add_argument("--entity", help="W&B user or team (default: the one that is logged in)")
    return parser


# argparse's class is generic in its stubs, and not when it runs.
def _add(commands: argparse._SubParsersAction, name: str, command: object, text: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("study", metavar="DIR", help="a study's folder, such as results/depth")
    parser.set_defaults(command=command)
    return parser


def _add_figures(commands: argparse._SubParsersAction, beside: str) -> None:  # type: ignore[type-arg]  # as above
    text = "draw a study, or a published one from its CSVs, in the style of a paper: figures, captions, LaTeX tables"
    figures = _add(commands, "figures", _figures, text)
    figures.add_argument("--style", default="report", help="report (in place), he2015, poster, icml or neurips")
    what = "figures to draw, such as degradation; all if it is left out"
    figures.add_argument("--only", metavar="NAME", nargs="+", action="extend", default=[], help=what)
    figures.add_argument("--with", dest="beside", metavar="DIR", nargs="+", action="extend", default=[], help=beside)


def _status(arguments: argparse.Namespace) -> None:
    from plainres.report.status import print_status

    print_status(arguments.study)


def _report(arguments: argparse.Namespace) -> None:
    from plainres.report.build import build_report
    from plainres.report.terminal import print_report

    print_report(build_report(arguments.study, _say, arguments.beside, os.cpu_count() or 1))


def _compare(arguments: argparse.Namespace) -> None:
    from plainres.report.compare import compare, print_comparison

    print_comparison(*compare(arguments.studies, arguments.out, _say))


def _figures(arguments: argparse.Namespace) -> None:
    from plainres.report.paper import draw_paper

    result = draw_paper(arguments.study, arguments.style, arguments.only, arguments.beside, _say)
    for line in result.skipped:
        _say(f"not drawn: {line}")
    tables = f", {len(result.tables)} tables and captions.md" if result.tables else ""
    print(f"{len(result.figures)} figures as PDF, PNG and CSV{tables}: {result.folder}")


def _describe(arguments: argparse.Namespace) -> None:
    from plainres.config import compose
    from plainres.describe.table import print_description

    print_description(compose(arguments.overrides))


def _plan(arguments: argparse.Namespace) -> None:
    from plainres.grid import expand
    from plainres.launch.plan import make_plan
    from plainres.launch.plan_table import print_plan

    print_plan(make_plan(expand(arguments.overrides), _say))


def _lesion(arguments: argparse.Namespace) -> None:
    from plainres.theory.lesion_report import lesion_report

    lesion_report(arguments.runs, arguments.swap, _say)


def _shattering(arguments: argparse.Namespace) -> None:
    from plainres.config import compose
    from plainres.theory.shattering_report import shattering_report

    shattering_report(arguments.what, compose, _say)


def _sync(arguments: argparse.Namespace) -> None:
    from plainres.tracking.sync import sync

    sync(arguments.study, _say)


def _dashboard(arguments: argparse.Namespace) -> None:
    if find_spec("wandb_workspaces") is None:
        raise UserError("plainres dashboard needs wandb-workspaces: pip install 'plainres[dashboard]'")
    from plainres.tracking.dashboard import make_dashboard

    make_dashboard(arguments.study, arguments.project, arguments.entity, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
