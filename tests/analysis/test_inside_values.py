"""Numbers of the inside by hand: ratios of early to late layers, the product of gains, and what is missing or 0."""

from pathlib import Path

import numpy as np
import pytest

from fake_study import FakeStudy, probe_steps
from plainres.analysis.inside import Inside
from plainres.analysis.inside_values import CUT, METRICS, SCALES, cumulative_gain, early_to_late, measured
from plainres.analysis.load import LoadedStudy, load_study
from plainres.analysis.tables import load_layers

NAN = float("nan")


def test_early_to_late_by_hand() -> None:
    values = np.array([10.0, 1000.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0])
    assert early_to_late(values) == pytest.approx(2.0)  # geometric means 100 and 1
    assert early_to_late(np.array([NAN, 1.0, NAN, 0.1])) == pytest.approx(1.0)
    assert early_to_late(values[::-1]) == pytest.approx(-2.0)


def test_what_is_0_or_missing() -> None:
    assert early_to_late(np.array([0.0, 1.0, 1.0, 1.0])) == -CUT
    assert early_to_late(np.zeros(8)) == -CUT, "no signal anywhere is not healthy"
    assert early_to_late(np.array([1.0, 1.0, 1.0, 1e-9])) == CUT
    assert early_to_late(np.array([1.0, NAN, NAN])) is None


def test_cumulative_gain_by_hand() -> None:
    assert cumulative_gain(np.array([0.8] * 20), [None] * 20) == pytest.approx(np.log10(0.8**20))
    assert cumulative_gain(np.array([1e-9, 1.0]), [None, None]) == -CUT
    assert cumulative_gain(np.array([1.0, NAN]), [None, "no gradient at the block's output"]) == -CUT
    assert cumulative_gain(np.array([1.0, NAN]), [None, "overflowed float32"]) is None
    assert cumulative_gain(np.array([]), []) is None


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedStudy:
    return load_study(FakeStudy(depths=(8,), seeds=(0,), steps=600).write(tmp_path_factory.mktemp("inside")))


def test_numbers_of_a_run_are_those_of_its_table(loaded: LoadedStudy) -> None:
    """Read at step 450: the last probe with at least a tenth of the peak learning rate."""
    table = measured(Inside(loaded, loaded.runs, METRICS)).set_index(["run_id", "quantity"])["value"]
    residual = loaded.runs[loaded.runs["connection"] == "residual"]
    (run_id,) = residual["run_id"]
    steps = {run_id: probe_steps(600, 600)}
    rows, _ = load_layers(loaded, residual, METRICS, steps)

    def at(metric: str, step: int) -> np.ndarray:
        mine = rows[(rows["metric"] == metric) & (rows["step"] == step)].sort_values("layer_index")
        return mine["value"].to_numpy(dtype=float)

    assert table[run_id, "grad_norm"] == pytest.approx(early_to_late(at("grad_norm", 450)))
    assert table[run_id, "update_ratio"] == pytest.approx(early_to_late(at("update_ratio", 450)))
    ratios, trunk = at("branch_ratio", 450), at("output_norm", 450)
    expected = [np.log10(ratios.max()), np.log10(ratios.min()), np.log10(trunk[-1] / trunk[0])]
    expected.append(np.log10(trunk[-1] / at("output_norm", 0)[-1]))
    assert [table[run_id, name] for name in SCALES] == pytest.approx(expected)
    (plain,) = loaded.runs.loc[loaded.runs["connection"] == "plain", "run_id"]
    assert (plain, SCALES[0]) not in table.index, "the plain arm has no branch ratio"


def test_runs_without_probes_have_no_numbers(tmp_path: Path) -> None:
    loaded = load_study(FakeStudy(depths=(8,), seeds=(0,), steps=60, probes=False).write(tmp_path))
    assert measured(Inside(loaded, loaded.runs, METRICS)).empty
