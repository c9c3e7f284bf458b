"""The shallow run that a constructed one starts from: trained where it is not yet, by whoever comes first."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from plainres.errors import Interrupted, UserError
from plainres.pair import RunSpec, make_spec, source_of
from plainres.store import RunFolder, Status, Study

if TYPE_CHECKING:
    from plainres.job import Outcome

POLL_SECONDS = 0.2


def finished_source(
    spec: RunSpec,
    study: Study,
    should_stop: Callable[[], bool],
    execute: "Callable[[RunSpec, Study, Callable[[], bool]], Outcome]",
) -> RunFolder:
    """The folder of the source of ``spec`` in the same study, complete; the jobs of a sweep may come in any order.

    Args:
        spec: a run with a source.
        study: the folder of both.
        should_stop: asked while another process trains the source.
        execute: ``job.execute``.

    Raises:
        Interrupted: the source was interrupted, or this run was while it waited.
        UserError: the source diverged or failed: there is nothing to start from.
    """
    conf = source_of(spec.conf)
    assert conf is not None
    source = make_spec(conf, spec.device)
    while True:
        outcome = execute(source, study, should_stop)
        if outcome.status is not Status.RUNNING:  # by another process
            break
        if should_stop():
            raise Interrupted
        time.sleep(POLL_SECONDS)
    if outcome.status is Status.INTERRUPTED:
        raise Interrupted
    if outcome.status is not Status.COMPLETE:
        why = f" ({outcome.message})" if outcome.message else ""
        raise UserError(
            f"{spec.name}: there is nothing to start from, because its source {source.name} ended as "
            f"{outcome.status.value}{why}"
        )
    return study.run_folder(source.name)
