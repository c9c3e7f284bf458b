from pathlib import Path

import pytest

import plainres
from fake_study import FakeStudy
from plainres.store import Status

# Depth 8 fails in plain, and one of its runs diverges; residual trains.
ERRORS = {
    **{("plain", depth, seed): 0.01 * depth + 0.001 * seed for depth in (4, 6) for seed in range(4)},
    **{("plain", 8, seed): 0.60 + 0.02 * seed for seed in range(4)},
    **{("residual", depth, seed): 0.005 * (1 + seed) for depth in (4, 6, 8) for seed in range(4)},
}
STATUS = {("plain", 8, 3): Status.DIVERGED}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study in the real format: 3 depths × plain/residual × 4 seeds."""
    fake = FakeStudy(depths=(4, 6, 8), seeds=range(4), steps=60, errors=ERRORS, status=STATUS, gains=True)
    return fake.write(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def study(folder: Path) -> plainres.Study:
    return plainres.load(folder)
