from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plainres.options import Shortcut
from plainres.schema import ConnectionConf, ModelConf, RunConf, ScheduleConf, TrainerConf

ARMS = {"plain": ConnectionConf(), "residual": ConnectionConf("residual", Shortcut.identity)}


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConf]:
    """A run of a second or less; keyword arguments replace trainer settings."""

    def make(connection: str = "plain", depth: int = 4, seed: int = 0, **trainer: object) -> RunConf:
        settings = {"steps": 12, "eval_every": 4, "checkpoint_every": 4, "device": "cpu"} | trainer
        return RunConf(
            depth=depth,
            seed=seed,
            connection=ARMS[connection],
            model=ModelConf(width=8),
            schedule=ScheduleConf(warmup_steps=2),
            trainer=replace(TrainerConf(), **settings),
            study="tiny",
            results_dir=str(tmp_path),
        )

    return make
