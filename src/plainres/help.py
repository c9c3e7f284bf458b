"""`python -m run --help`. Hydra's own would load every file of every group first."""

import shutil
import textwrap
from pathlib import Path

from plainres.config import conf_dir

USAGE = """\
usage: python -m run [-m] [+sweep=NAME] [KEY=VALUE ...]

Train plain and residual networks that differ in nothing but their connection, in matched pairs over a range of depths.

  python -m run +sweep=depth                              a whole study: 40 runs, their report and its page
  python -m run depth=50 connection=residual              one run
  python -m run -m depth=10,20 connection=plain,residual  a grid of runs: every combination
  plainres plan +sweep=depth                              what that would run, and how long it takes

options:
  -m, --multirun       values with commas make a grid; a +sweep=NAME is one already
  --cfg job            print every setting with its value, and run nothing
  --config-dir DIR     a folder with configurations of your own (docs/own.md)
  --hydra-help         everything else that Hydra's command line can do

groups (GROUP=NAME sets all of a group, GROUP.KEY=VALUE one setting of it):
"""


def print_help() -> None:
    """How to start runs, and the names in every group of our configuration files."""
    print(USAGE, end="")
    width = min(shutil.get_terminal_size().columns, 120)
    for group, names in _groups(Path(conf_dir())).items():
        label = f"  {'+' if group == 'sweep' else ''}{group}="
        print(textwrap.fill(label + ", ".join(names), width, subsequent_indent=" " * 6, break_on_hyphens=False))
    print("\nDocumentation: README.md, docs/README.md")


def _groups(folder: Path) -> dict[str, list[str]]:
    """Group -> names; those of a folder within a group as ``folder/name``."""
    found = {}
    for group in [*sorted(path for path in folder.iterdir() if path.is_dir()), folder / "hydra" / "launcher"]:
        if group.name not in ("arm", "hydra"):  # parts of sweep files, and of Hydra
            files = sorted(group.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
            names = [path.relative_to(group).with_suffix("").as_posix() for path in files]
            found[group.relative_to(folder).as_posix()] = names
    found["hydra/launcher"].append("basic")  # Hydra's own: one run after the other, in this process
    return found
