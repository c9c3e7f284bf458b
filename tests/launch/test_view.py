"""What the user reads while a sweep runs."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from plainres.job import Outcome
from plainres.launch.prepare import prepare
from plainres.launch.view import LiveView, PlainView, Tally, make_view, progress_cells
from plainres.schema import RunConf
from plainres.store import Status, Study

Make = Callable[..., RunConf]


class FakeSweep:
    def __init__(self, terminal: bool, study: Study) -> None:
        self.study = study
        self.text = io.StringIO()
        self.console = Console(file=self.text, force_terminal=terminal, width=100)


def outcome(name: str, status: Status, skipped: bool = False, message: str = "") -> Outcome:
    return Outcome(name, status, skipped, message, 1.0)


def test_plain_lines_count_and_name(tiny: Make) -> None:
    study, specs = prepare([tiny("plain"), tiny("residual"), tiny(seed=1), tiny(seed=2)])
    sweep = FakeSweep(False, study)
    with make_view(sweep, specs, 2) as view:  # type: ignore[arg-type]  # a stand-in sweep
        assert isinstance(view, PlainView)
        view.finished(outcome(specs[0].name, Status.COMPLETE))
        view.finished(outcome(specs[1].name, Status.DIVERGED))
        view.finished(outcome(specs[2].name, Status.COMPLETE, skipped=True))
        view.finished(outcome(specs[3].name, Status.FAILED, message="no space left"))
    lines = sweep.text.getvalue().splitlines()
    assert lines[0] == "plainres: 2 jobs at a time"
    assert lines[1] == f"[1/4] {specs[0].name}: complete in 1.0 s"
    assert "diverged" in lines[2] and "skipped" in lines[3]
    assert lines[4].endswith("failed in 1.0 s: no space left")


def test_live_table_shows_step_loss_and_error(tiny: Make) -> None:
    study, specs = prepare([tiny("plain"), tiny("residual")])
    sweep = FakeSweep(True, study)
    with make_view(sweep, specs, 2) as view:  # type: ignore[arg-type]  # a stand-in sweep
        assert isinstance(view, LiveView)
        view.update({specs[0].name: {"step": 3, "steps": 12, "loss": 2.25, "train_error": 0.5}})
    text = sweep.text.getvalue()
    assert all(word in text for word in ("0/2 runs done", "mlp-plain-d004-s0", "3/12", "2.2500", "50.00 %"))


@pytest.mark.parametrize("terminal", [False, True])
def test_a_job_at_chance_level_is_warned_of(tiny: Make, terminal: bool) -> None:
    study, specs = prepare([tiny("plain"), tiny("residual")])
    study.run_folder(specs[0].name).update(data={"num_classes": 10})
    sweep = FakeSweep(terminal, study)
    with make_view(sweep, specs, 2) as view:  # type: ignore[arg-type]  # a stand-in sweep
        for step in (0, 6, 9):
            if isinstance(view, LiveView):
                view._drawn = 0.0
            view.update({specs[0].name: {"step": step, "steps": 12, "loss": 2.3, "train_error": 0.9}})
    text = sweep.text.getvalue()
    line = "mlp-plain-d004-s0: loss 2.30 is at chance level (ln 10 = 2.303) since step 6"
    assert line in text
    if not terminal:
        assert text.count("chance") == 1 and f"warning: {line}" in text, "said once"


def test_progress_of_a_job_that_has_not_begun() -> None:
    assert progress_cells({}) == ("starting", "", "")
    assert progress_cells({"step": 1, "steps": 2, "loss": None, "train_error": None}) == ("1/2", "", "")


def test_tally_counts_each_kind_once(tiny: Make) -> None:
    specs = prepare([tiny("plain"), tiny("residual")])[1]
    tally = Tally(specs)
    assert tally.remaining({}) == "--:--"
    tally.add(outcome(specs[0].name, Status.OOM))
    tally.add(outcome(specs[1].name, Status.COMPLETE, skipped=True))
    assert tally.counts == {"complete": 0, "diverged": 0, "skipped": 1, "failed": 1}
    assert tally.ended == tally.total == 2
    assert tally.remaining({}) == "0:00"
