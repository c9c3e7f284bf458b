"""What holds for every input, on inputs that hypothesis draws (the same ones every time)."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plainres.analysis.stats import bounds, count_p, estimate, holm, needed_n, p_value
from plainres.errors import UserError
from plainres.job import planned_record
from plainres.optim import learning_rate
from plainres.options import Norm, Placement, ScheduleName, Shortcut
from plainres.pair import hash_identity, make_spec
from plainres.rows import RowWriter, read_lines
from plainres.schema import ConnectionConf, ModelConf, OptimizerConf, RunConf, ScheduleConf
from plainres.store import RunFolder, Study
from plainres.theory.trained import restored
from plainres.validation import validate

quickly = settings(deadline=None, derandomize=True, max_examples=60)
positive = st.floats(1e-8, 1e8)

# A config, its spec, its hash and its folder.


@st.composite
def confs(draw: st.DrawFn) -> RunConf:
    """Valid settings of an mlp."""
    scaled = st.builds(
        ConnectionConf, name=st.just("scaled"), shortcut=st.just(Shortcut.scaled), shortcut_scale=positive
    )
    connection = draw(st.sampled_from([ConnectionConf(), ConnectionConf("residual", Shortcut.identity)]) | scaled)
    steps = draw(st.integers(2, 10**6))
    return RunConf(
        depth=2 * draw(st.integers(2, 500)),
        seed=draw(st.integers(0, 2**31)),
        connection=connection,
        model=ModelConf(
            width=draw(st.integers(1, 4096)),
            placement=draw(st.sampled_from([Placement.post_activation, Placement.pre_norm])),
            norm=draw(st.sampled_from([Norm.batch, Norm.layer])),
        ),
        optimizer=OptimizerConf(lr=draw(positive), clip_norm=draw(st.none() | positive)),
        schedule=ScheduleConf(warmup_steps=draw(st.integers(0, steps - 1))),
        trainer=replace(RunConf().trainer, steps=steps, checkpoint_every=draw(st.integers(1, 1000))),
    )


@quickly
@given(confs(), st.sampled_from(["cpu", "cuda", "cuda:3"]))
def test_a_run_is_found_again_in_its_folder(conf: RunConf, device: str) -> None:
    """config -> spec -> folder -> run.json -> config -> spec: the same settings, ids and name."""
    validate(conf)
    spec = make_spec(conf, device)
    with TemporaryDirectory() as place:
        study = Study.create(place, "drawn")
        study.run_folder(spec.name).plan(planned_record(spec, study))
        (folder,) = study.runs()
        record = folder.read()
    assert folder.name == spec.name == record["name"] and spec.name.endswith(record["run_id"])
    conf_again: RunConf = restored(RunConf(), record["config"])
    again = make_spec(conf_again, record["identity"]["trainer.device"])
    assert conf_again == spec.conf
    assert (again.run_id, again.pair_id, again.identity) == (spec.run_id, spec.pair_id, record["identity"])
    assert hash_identity(record["identity"]) == spec.run_id


@quickly
@given(confs(), confs())
def test_one_id_is_one_identity(one: RunConf, other: RunConf) -> None:
    a, b = make_spec(one, "cpu"), make_spec(other, "cpu")
    assert (a.run_id == b.run_id) == (a.identity == b.identity)
    pairs = [{k: v for k, v in s.identity.items() if not k.startswith("connection.")} for s in (a, b)]
    assert (a.pair_id == b.pair_id) == (pairs[0] == pairs[1])


PIECES = ["..", ".", "/", "a", "~", "\\", "*", "\0", "-", " ", "\n", "é"]


@quickly
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.sampled_from(["study", "connection"]))
def test_a_name_is_refused_or_stays_below_its_folder(name: str, field: str) -> None:
    conf = RunConf(study=name) if field == "study" else RunConf(connection=ConnectionConf(name, Shortcut.identity))
    try:
        validate(conf)
    except UserError as error:
        assert str(error).startswith(("study=", "connection.name="))
        return
    below = name if field == "study" else make_spec(conf, "cpu").name
    place = (Path("/results") / below).resolve()
    assert place.parent == Path("/results") and place.name == below


# Rows under kills: whatever the disk has lost beyond the checkpoint, nothing is lost and nothing is there twice.


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    """How many rows a run has; and its kills, each as rows when it came, rows that the last checkpoint covers, and the
    share of what is beyond the checkpoint that the disk still has."""
    count, covered, kills = draw(st.integers(1, 30)), 0, []
    for _ in range(draw(st.integers(0, 5))):
        reached = draw(st.integers(covered, count))
        covered = draw(st.integers(covered, reached))
        kills.append((reached, covered, draw(st.floats(0, 1))))
    return count, kills


def row(step: int) -> dict[str, Any]:
    return {"step": step, "values": {"layer": {"grad_norm": [step / 7] * (step % 5)}}, "reasons": {"é": "\n"}}


@quickly
@given(lives())
def test_no_row_is_lost_or_doubled_whatever_a_kill_leaves(life: tuple[int, list[tuple[int, int, float]]]) -> None:
    count, kills = life
    lengths: dict[str, int] | None = None
    begin = 0
    with TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        for reached, covered, share in [*kills, (count, count, 1.0)]:
            writer = RowWriter(folder, lengths)
            for step in range(begin, reached + 1):
                if step == covered:
                    lengths = writer.sync()
                if step < reached:
                    for table in ("steps", "layers"):
                        writer.write(table, row(step))
            writer.close()
            assert lengths is not None
            for table, length in lengths.items():
                path = folder.path / f"{table}.jsonl"
                whole = path.read_bytes()
                path.write_bytes(whole[: length + int(share * (len(whole) - length))])
            begin = covered
        expected = [orjson.loads(orjson.dumps(row(step))) for step in range(count)]
        for table in ("steps", "layers"):
            assert read_lines(folder.path / f"{table}.jsonl") == expected


@quickly
@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_rows_that_a_checkpoint_covers_and_a_disk_lost_are_refused(count: int, share: float) -> None:
    with TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        writer = RowWriter(folder)
        for step in range(count):
            writer.write("layers", row(step))
        lengths = writer.sync()
        writer.close()
        path = folder.path / "layers.jsonl"
        kept = path.read_bytes()[: int(share * lengths["layers"])]
        path.write_bytes(kept)
        with pytest.raises(UserError, match="rows are lost"):
            RowWriter(folder, lengths)
        assert path.read_bytes() == kept


# Schedules


@st.composite
def schedules(draw: st.DrawFn) -> tuple[ScheduleConf, float, int]:
    steps = draw(st.integers(2, 3000))
    name = draw(st.sampled_from(list(ScheduleName)))
    marks = draw(st.sets(st.integers(1, steps - 1), min_size=1, max_size=5)) if name is ScheduleName.step else set()
    warmup, factor = draw(st.integers(0, steps - 1)), draw(st.floats(0.01, 1))
    return ScheduleConf(name, warmup, sorted(marks), factor), draw(st.floats(1e-6, 1e3)), steps


@quickly
@given(schedules())
def test_a_schedule_rises_to_its_rate_and_never_again(drawn: tuple[ScheduleConf, float, int]) -> None:
    conf, lr, steps = drawn
    rates = [learning_rate(conf, lr, step, steps) for step in range(steps)]
    warm, rest = rates[: conf.warmup_steps], rates[conf.warmup_steps :]
    assert all(0 < rate <= lr * (1 + 1e-12) for rate in rates)
    assert all(a < b for a, b in itertools.pairwise(warm)) and all(a >= b for a, b in itertools.pairwise(rest))
    if warm:
        assert warm[-1] == pytest.approx(lr, rel=1e-15)
        np.testing.assert_allclose(np.diff(warm), lr / conf.warmup_steps, rtol=1e-6)
    if conf.name is ScheduleName.constant:
        assert set(rest) == {lr}
    if conf.name is ScheduleName.cosine:
        assert rest[0] == lr and learning_rate(conf, lr, steps, steps) == 0
        middle = learning_rate(conf, lr, conf.warmup_steps + len(rest) // 2, steps)
        assert len(rest) % 2 or middle == pytest.approx(lr / 2, rel=1e-9)
    if conf.name is ScheduleName.step:
        passed = [sum(mark <= step for mark in conf.milestones) for step in range(conf.warmup_steps, steps)]
        np.testing.assert_allclose(rest, [lr * math.prod([conf.factor] * n) for n in passed], rtol=1e-12)


# Statistics, against scipy called plainly

errors = st.floats(0, 1).map(lambda value: round(value, 4))
tables = st.lists(st.tuples(errors, errors), min_size=2, max_size=12)


def has_spread(values: np.ndarray) -> bool:
    return bool(np.ptp(values) > 1e-5)


@quickly
@given(tables, st.floats(0.5, 0.999), st.floats(-1, 1))
def test_intervals_and_p_values_are_scipys(table: list[tuple[float, float]], level: float, limit: float) -> None:
    plain, residual = np.array(table).T
    found = estimate(plain - residual, 1 / 1437, level)
    assert found.n == len(table) and found.mean == pytest.approx(np.mean(plain - residual), abs=1e-12)
    if not has_spread(plain - residual):
        assert found.low == pytest.approx(found.mean - 1 / 1437) and p_value(found, limit) is None
        return
    test = stats.ttest_rel(plain, residual)
    low, high = test.confidence_interval(level)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert found.sd == pytest.approx(np.std(plain - residual, ddof=1), rel=1e-9)
    assert p_value(found, 0.0) == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    single = stats.ttest_1samp(plain - residual, limit)
    assert p_value(found, limit) == pytest.approx(single.pvalue, rel=1e-6, abs=1e-12)


@quickly
@given(st.lists(st.lists(errors, min_size=4, max_size=4), min_size=1, max_size=6), st.floats(0.5, 0.999))
def test_many_intervals_are_each_ones(rows: list[list[float]], level: float) -> None:
    found = bounds(np.array(rows), 1 / 1437, level)
    for i, values in enumerate(rows):
        if has_spread(np.array(values)):
            low, high = stats.t.interval(level, df=3, loc=np.mean(values), scale=stats.sem(values))
            assert (found.low[i], found.high[i]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
        assert found.low[i] < found.mean[i] < found.high[i]


@quickly
@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_its_definition(p_values: list[float | None]) -> None:
    """For each p, the largest (m - rank) times any p that is no larger, and 1 at most."""
    known = sorted(p for p in p_values if p is not None)
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        if p is None:
            assert adjusted is None
            continue
        scaled = [min(1.0, other * (len(p_values) - rank)) for rank, other in enumerate(known) if other <= p]
        assert adjusted == pytest.approx(max(scaled)) and p <= adjusted <= 1


@quickly
@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_counts_are_fishers_exact_test(n: int, n_other: int, data: st.DataObject) -> None:
    failed, failed_other = data.draw(st.integers(0, n)), data.draw(st.integers(0, n_other))
    table = [[failed, n - failed], [failed_other, n_other - failed_other]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert count_p(failed, n, failed_other, n_other) == pytest.approx(expected, rel=1e-9)


@quickly
@given(st.floats(0.01, 1), st.floats(0.01, 0.5), st.floats(0.5, 0.99))
def test_the_needed_number_is_the_first_that_is_enough(distance: float, sd: float, level: float) -> None:
    def half_width(n: int) -> float:
        return float(stats.t.ppf((1 + level) / 2, n - 1) * sd / math.sqrt(n))

    found = needed_n(distance, sd, level)
    if found is None:
        assert half_width(1000) >= distance * (1 - 1e-9)
        return
    assert found >= 3 and half_width(found) < distance * (1 + 1e-9)
    assert found == 3 or half_width(found - 1) >= distance * (1 - 1e-9)
