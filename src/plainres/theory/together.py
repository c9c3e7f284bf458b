"""Which runs may stand in one table."""

from collections.abc import Sequence

from plainres.errors import UserError, require
from plainres.figures.many import MANY_ARMS
from plainres.schema import RunConf
from plainres.theory.trained import Trained


def check_one_study(runs: Sequence[Trained]) -> None:
    """Refuse runs that one table and one figure cannot show.

    Raises:
        UserError: runs of several studies, or what ``check_cells`` refuses.
    """
    studies = sorted({run.study.path for run in runs})
    if len(studies) > 1:
        raise UserError(
            f"runs of {len(studies)} studies ({', '.join(path.name for path in studies)}); give one study's"
        )
    check_cells([run.conf for run in runs])


def check_cells(confs: Sequence[RunConf]) -> None:
    """Refuse networks that a table of connection, depth and seed cannot tell apart.

    Raises:
        UserError: two of one connection, depth and seed, or too many connections.
    """
    cells = [(conf.connection.name, conf.depth, conf.seed) for conf in confs]
    for name, depth, seed in cells:
        if cells.count((name, depth, seed)) > 1:
            raise UserError(
                f"two runs have connection={name} depth={depth} seed={seed}; give each once, and those of one setting"
            )
    names = {name for name, _, _ in cells}
    require(len(names) <= MANY_ARMS, "connections", len(names), f"at most {MANY_ARMS} at a time", "give fewer of them")
