"""The cumulative gain of the backward pass against products by hand, and against a run's own activation gradients."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from plainres.analysis.gain_chain import chains, gain_chain, scalar_chain
from plainres.analysis.inside import Inside
from plainres.analysis.load import load_study


def rows_of(gains: dict[int, list[float]]) -> pd.DataFrame:
    """seed -> block_gain from the first block to the last."""
    rows = [
        {"run_id": f"r{seed}", "connection": "plain", "depth": 8, "step": 5, "layer_index": i, "value": value}
        for seed, values in gains.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_the_scalar_chains_of_the_literature() -> None:
    assert scalar_chain(0.8, 20) == pytest.approx(0.0115, abs=5e-5)
    assert scalar_chain(0.98, 20) == pytest.approx(0.668, abs=5e-4)
    assert scalar_chain(1.02, 20) == pytest.approx(1.486, abs=5e-4)
    assert scalar_chain(1.0, np.array([0, 20])).tolist() == [1, 1]


def test_products_run_from_the_last_block_back() -> None:
    table = chains(rows_of({0: [2, 3, 5], 1: [8, 3, 5]}))
    assert table["num_blocks"].tolist() == [0, 1, 2, 3]
    assert table["value"].tolist() == pytest.approx([1, 5, 15, 15 * 4])
    assert table["low"].tolist() == pytest.approx([1, 5, 15, 30])
    assert table["high"].tolist() == pytest.approx([1, 5, 15, 120])
    assert table["per_block"].tolist()[1:] == pytest.approx([5, math.sqrt(15), 60 ** (1 / 3)])
    assert math.isnan(table["per_block"][0]) and set(table["n_seeds"]) == {2}


@pytest.mark.parametrize("gone", [0.0, math.nan])
def test_a_gain_that_is_zero_or_missing_ends_its_own_chain_only(gone: float) -> None:
    table = chains(rows_of({0: [2, gone, 5], 1: [2, 3, 5]}))
    assert table["n_seeds"].tolist() == [2, 2, 1, 1] and table["n_ended"].tolist() == [0, 0, 1, 1]
    assert table["value"].tolist() == pytest.approx([1, 5, 15, 30])


def test_no_rows_are_an_empty_table() -> None:
    assert chains(rows_of({0: [1.0]}).iloc[:0]).empty


def test_a_chain_over_all_blocks_is_first_over_last_gradient(execute, make_conf, study) -> None:
    execute(make_conf("residual", {"depth": 10}))
    loaded = load_study(Path(study.path))
    names = ("block_gain", "activation_grad_norm_input", "activation_grad_norm_output")
    inside = Inside(loaded, loaded.runs, [("block", name) for name in names])
    table = gain_chain(inside)
    for moment, at in (("start", inside.at_start), ("end", inside.at_end)):
        own = table[table["moment"] == moment]
        first = at("activation_grad_norm_input").sort_values("layer_index")["value"].iloc[0]
        last = at("activation_grad_norm_output").sort_values("layer_index")["value"].iloc[-1]
        assert own["num_blocks"].tolist() == [0, 1, 2, 3, 4]
        assert own["value"].iloc[-1] == pytest.approx(first / last, rel=1e-5)
