"""python -m run [+sweep=NAME] [key=value ...]: the entry point. No science in here.

Hydra composes the settings; ``plainres.launch`` checks and runs them. Nothing heavy is imported until a run
starts, so that --help and mistakes answer at once; not even Hydra before ``main``, so that Ctrl-C is one line from the
beginning.
"""

import atexit
import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from plainres.errors import UserError
from plainres.launch.stopping import terminated_as_interrupted

if TYPE_CHECKING:
    from omegaconf import DictConfig

_TRACED = os.environ.get("HYDRA_FULL_ERROR") == "1"  # the user wants to see tracebacks
_failures: list[str] = []  # what a single run has to tell the shell; Hydra drops a task's return value


def _job(cfg: "DictConfig") -> str:
    """One run: the only one, or a job of one of Hydra's own launchers. Returns its status."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from plainres.config import to_conf
    from plainres.launch.single import await_tracking, run_single

    try:
        conf = to_conf(cfg)
        outcome = run_single(conf)
        if HydraConfig.get().mode is RunMode.RUN:
            await_tracking(conf, outcome)
    except UserError as error:  # printed by main: Hydra would add lines of its own
        _failures.append(str(error))
        return "failed"
    if outcome.message and not outcome.skipped:
        _failures.append(f"{outcome.name}: {outcome.status.value}: {outcome.message}")
    return str(outcome.status)


def _stop(message: str, code: int = 1) -> NoReturn:
    print(f"plainres: {message}", file=sys.stderr)
    sys.exit(code)


def main() -> None:
    """Run what the command line asks for; exit 0, 1 for a mistake or a failed run, 130 after Ctrl-C or SIGTERM."""
    atexit.register(gc.freeze)  # at its exit Python looks for garbage among all objects, torch's too: a second
    try:
        with terminated_as_interrupted():
            _run()
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    if _failures:
        _stop("\nplainres: ".join(_failures))


def _run() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        from plainres.help import print_help

        print_help()
        return
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from plainres.config import conf_dir, explain, register

    register()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach us instead of being printed over several lines
    entry = hydra.main(config_path=conf_dir(), config_name="config", version_base="1.3")(_job)
    _failures.clear()
    try:
        entry()
    except (UserError, HydraException, OmegaConfBaseException, OSError) as error:
        if _TRACED:
            raise
        composing = isinstance(error, (HydraException, OmegaConfBaseException))
        _stop(explain(error) if composing else str(error))
    except (MemoryError, RuntimeError) as error:
        if _TRACED or not (isinstance(error, MemoryError) or "can't allocate memory" in str(error)):
            raise
        _stop("this network does not fit into memory; lower model.width or depth")


if __name__ == "__main__":
    main()
