"""The one exception that a user's mistake raises: a single line that says what to do next."""


class UserError(ValueError):
    """A mistake in what the user asked for: one line with field, value, what is allowed, and the remedy.

    The entry points print it without a traceback and exit with a code other than 0.
    """


def require(ok: bool, name: str, value: object, allowed: str, remedy: str = "") -> None:
    """Refuse a value in one line.

    Raises:
        UserError: ``ok`` is false.
    """
    if not ok:
        raise UserError(f"{name}={value}: must be {allowed}{'; ' + remedy if remedy else ''}")


class Interrupted(Exception):  # noqa: N818 - a request by the user, not an error
    """Training was asked to stop (Ctrl-C, SIGTERM); a checkpoint has been written.

    Attributes:
        step: at which training stopped; None before its first.
    """

    def __init__(self, step: int | None = None) -> None:
        super().__init__()
        self.step = step
