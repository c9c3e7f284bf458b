"""plainres: does depth make a network harder to optimise, and does a way of joining branch and trunk cure it?

``run`` trains a study, ``load`` reads one, ``evidence`` says what it decides (docs/api.md). Each is imported when it is
first asked for: ``import plainres`` costs nothing, and reading a study needs no PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plainres.api.evidence import Evidence, evidence
    from plainres.api.run import run
    from plainres.api.study import Study, load
    from plainres.errors import UserError

__version__ = "0.1.0"
__all__ = ["Evidence", "Study", "UserError", "evidence", "load", "run"]

_HOMES = {
    "Evidence": "plainres.api.evidence",
    "Study": "plainres.api.study",
    "UserError": "plainres.errors",
    "evidence": "plainres.api.evidence",
    "load": "plainres.api.study",
    "run": "plainres.api.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plainres' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
