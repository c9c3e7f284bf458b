"""``plainres.run``: train a study from Python, exactly as ``python -m run -m`` does."""

import contextlib
import io
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plainres.api.process import OWN_CLASS, process_kept
from plainres.api.study import Study, load
from plainres.errors import UserError
from plainres.store import FINISHED

if TYPE_CHECKING:
    from plainres.job import Outcome


def run(overrides: Sequence[str], *, results_dir: str | Path = "results", quiet: bool = False) -> Study:
    """Train every run of a sweep, write its report, and return the study.

    It is ``python -m run -m`` with these words: the same checks, run ids and bits, in worker processes on this machine.
    Runs that have ended are skipped, interrupted ones go on. What it changes in this process (torch's settings and
    generators, environment, Hydra) is put back.

    Args:
        overrides: words of the command line: ``["+sweep=depth", "depth=10,20", "seed=range(3)", "study=mine"]``.
            Several values make a grid. A branch of your own stands in a file: ``model.branch=my_branch:MyBranch``.
        results_dir: the study's folder is made in it.
        quiet: print nothing; what went wrong is still raised or warned of.

    Returns:
        the study with all of its runs, also those of earlier calls.

    Raises:
        UserError: something that is not allowed, before anything is trained; or the report could not be written.
        KeyboardInterrupt: after Ctrl-C or a notebook's stop button, once running jobs have checkpointed; the same call
            goes on from there.

    Warns:
        RuntimeWarning: runs failed; ``study.runs`` has their status and error.
    """
    _check(overrides)
    words = [*overrides, f"results_dir={_quoted(str(Path(results_dir).expanduser()))}"]
    from plainres.api.entrance import sweep  # Hydra and torch

    with contextlib.ExitStack() as around:
        around.enter_context(process_kept(words))
        if quiet:
            around.enter_context(contextlib.redirect_stdout(io.StringIO()))
        try:
            done, outcomes = sweep(words)
        except SystemExit as stopped:  # how the command line ends
            if stopped.code == 130:
                raise KeyboardInterrupt from None
            raise UserError("the report could not be written, the runs are safe; see the last lines above") from None
    _warn_of_failed(outcomes, len(done.specs))
    return load(done.study.path)


def _check(overrides: Sequence[str]) -> None:
    """Refuse what the command line would not let through, or what only it can do."""
    if isinstance(overrides, str):
        raise UserError(f"overrides={overrides}: must be a list of settings, such as {overrides.split()}")
    for text in overrides:
        if not isinstance(text, str):
            raise UserError(f"overrides: {text!r} is no text; write settings as on the command line: 'depth=10,20'")
        name = text.partition("=")[0]
        if text.startswith("-"):
            raise UserError(f"{text}: a flag of the command line; plainres.run takes settings, such as depth=10,20")
        if name == "results_dir":
            raise UserError(f"{text}: is given as plainres.run([...], results_dir=...)")
        if "__main__" in OWN_CLASS.findall(text):
            raise UserError(
                f"{text}: a class of this notebook or script is unknown to the processes that train; write it into a "
                f"file (%%writefile my_branch.py) and give {name}=my_branch:{text.rpartition(':')[2]}"
            )
    if threading.current_thread() is not threading.main_thread():
        raise UserError("plainres.run: must be called in the main thread, which alone hears Ctrl-C")


def _quoted(path: str) -> str:
    """A path as Hydra reads it, whatever characters are in it."""
    return "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _warn_of_failed(outcomes: "Sequence[Outcome]", planned: int) -> None:
    wrong = [outcome for outcome in outcomes if outcome.status not in FINISHED]
    lines = [f"{outcome.name}: {outcome.status.value}: {outcome.message}" for outcome in wrong]
    if missing := planned - len(outcomes):
        lines.append(f"{missing} runs were not started (fail_fast=true)")
    if lines:
        warnings.warn(f"{len(lines)} of {planned} runs did not end: {'; '.join(lines)}", RuntimeWarning, stacklevel=3)
