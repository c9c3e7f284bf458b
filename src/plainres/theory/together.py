"""Which runs may stand in one table, and what their arms are called there."""

from collections.abc import Sequence

from plainres.analysis.settings import add_labels
from plainres.errors import UserError, require
from plainres.figures.many import MANY_ARMS
from plainres.pair import identity_fields
from plainres.schema import RunConf
from plainres.theory.trained import Trained


def arm_labels(confs: Sequence[RunConf]) -> list[str]:
    """The arm of each network, called as in reports: a built one ``plain(start=10)``, which is not ``plain``."""
    import pandas as pd

    labelled = add_labels(pd.DataFrame([identity_fields(conf) for conf in confs]))
    return [str(label) for label in labelled["connection"]]


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
    """Refuse networks that a table of arm, depth and seed cannot tell apart.

    Raises:
        UserError: two of one arm, depth and seed, or too many arms.
    """
    arms = arm_labels(confs)
    cells = [(arm, conf.depth, conf.seed) for arm, conf in zip(arms, confs, strict=True)]
    for name, depth, seed in cells:
        if cells.count((name, depth, seed)) > 1:
            raise UserError(
                f"two runs have connection={name} depth={depth} seed={seed}; give each once, and those of one setting"
            )
    arms = sorted(set(arms))
    require(len(arms) <= MANY_ARMS, "connections", len(arms), f"at most {MANY_ARMS} at a time", "give fewer of them")
