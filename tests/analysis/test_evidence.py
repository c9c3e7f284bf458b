"""Every claim in every status, its numbers against hand computation, and the verdict as a function of the claims."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fake_study import CHANCE, NUM_TRAIN, FakeStudy
from plainres.analysis.audit import audit_table
from plainres.analysis.claims import Claim
from plainres.analysis.conclusion import VERDICTS, verdict_of
from plainres.analysis.degradation import judge
from plainres.analysis.evidence import Evidence, gather
from plainres.analysis.inside_values import SCALES, SIGNAL
from plainres.analysis.load import LoadedStudy, load_study
from plainres.analysis.rules import RULES, ClaimStatus

S, C, U, N = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNDECIDED, ClaimStatus.NOT_TESTED
DEPTHS, SEEDS = (4, 8, 16), range(5)
Cell = tuple[str, int]
SEED_NOISE = np.array([0.0, 0.004, -0.004, 0.002, -0.002])
GOOD, BAD = np.full(5, 0.002) + SEED_NOISE / 4, 0.6 + 5 * SEED_NOISE
WIDE = np.array([0.0, 0.5, 0.1, 0.3, 0.2])
DEGRADES = {("plain", 4): GOOD, ("plain", 8): GOOD, ("plain", 16): BAD}
CURED = DEGRADES | {("residual", depth): GOOD for depth in DEPTHS}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedStudy:
    fake = FakeStudy(depths=DEPTHS, seeds=SEEDS, steps=60, probes=False)
    return load_study(fake.write(tmp_path_factory.mktemp("evidence")))


@pytest.fixture(scope="module")
def audit(loaded: LoadedStudy) -> pd.DataFrame:
    return audit_table(loaded.runs, loaded.records)


World = Callable[..., Evidence]


@pytest.fixture
def world(loaded: LoadedStudy, audit: pd.DataFrame) -> World:
    """world(cells): the evidence of a study with these final errors (connection, depth) -> one for each seed.

    ``val``, ``batchstats``, ``running``, ``loss`` change one series in the same way; ``keep`` selects rows;
    ``change`` edits the table of runs; ``measured`` holds (connection, depth, quantity) -> one for each seed.
    """

    def make(
        cells: Mapping[Cell, Any] = CURED,
        keep: Callable[[pd.DataFrame], Any] | None = None,
        change: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
        measured: Mapping[tuple[str, int, str], Any] | None = None,
        audited: pd.DataFrame = audit,
        **series: Mapping[Cell, Any],
    ) -> Evidence:
        runs = loaded.runs.copy()
        columns = {"train_error": cells, "val_error": cells, "train_error_batchstats": cells}
        columns |= {"train_error_running": cells, "train_loss": {}}
        names = {"val": "val_error", "batchstats": "train_error_batchstats", "running": "train_error_running"}
        for name, values in series.items():
            full = names.get(name, "train_loss")
            columns[full] = {**columns[full], **values}
        keys = list(zip(runs["connection"], runs["depth"], runs["seed"], strict=True))
        for name, values in columns.items():
            default = 0.01 if name == "train_loss" else 0.0
            runs[f"final_{name}"] = [values[c, d][s] if (c, d) in values else default for c, d, s in keys]
        runs = change(runs) if change else runs
        runs = runs[keep(runs)] if keep else runs
        ids = dict(zip(keys, loaded.runs["run_id"], strict=True))
        rows = [
            (ids[c, d, seed], quantity, float(value))
            for (c, d, quantity), values in (measured or {}).items()
            for seed, value in enumerate(values)
        ]
        table = pd.DataFrame(rows, columns=["run_id", "quantity", "value"])
        return gather("depth", runs, audited, {}, dict.fromkeys(runs["setting"], table))

    return make


def find(evidence: Evidence, id_: str) -> Claim:
    found = [c for c in evidence.claims if c.id == id_]
    assert len(found) == 1
    return found[0]


def without(connection: str, depth: int | None = None, seed: int | None = None) -> Callable[[pd.DataFrame], Any]:
    def keep(runs: pd.DataFrame) -> Any:
        gone = runs["connection"] == connection
        gone &= (runs["depth"] == depth) if depth else True
        gone &= (runs["seed"] == seed) if seed is not None else True
        return ~gone

    return keep


def only(**values: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda runs: np.logical_and.reduce([runs[name].isin(wanted) for name, wanted in values.items()])


def test_the_whole_chain_of_a_clear_study(world: World) -> None:
    evidence = world()
    status = {c.id: c.status for c in evidence.claims}
    for name in ("comparable", "degradation", "not_overfitting", "cured", "not_statistics"):
        assert status[name] is S, name
    for name in ("signal", "scales", "not_budget", "not_tuning", "near_identity", "solution_exists"):
        assert status[name] is N, name
    assert list(status) == list(RULES), "claims come in the order of the table"
    (verdict,) = evidence.conclusions
    assert verdict.id == "cured" and "nothing about generalisation" in verdict.not_shown


# comparable


def test_comparable_contradicted_by_an_unclean_pair(world: World, audit: pd.DataFrame) -> None:
    evidence = world(audited=audit.assign(clean=[False] + [True] * (len(audit) - 1)))
    found = find(evidence, "comparable")
    assert found.status is C and audit["run_id"].iloc[0] in found.sentence
    assert found.shown is not None and found.shown.effect == pytest.approx(14 / 15)
    assert evidence.conclusions[0].id == "not_comparable"


def test_comparable_contradicted_by_a_run_that_stopped_early(world: World) -> None:
    found = find(world(change=lambda runs: runs.assign(final_step=[59] + [60] * (len(runs) - 1))), "comparable")
    assert found.status is C and "before the budget" in found.sentence


def test_comparable_undecided_with_missing_and_unfinished_runs(world: World) -> None:
    evidence = world(keep=without("residual", 16, 3))
    found = find(evidence, "comparable")
    assert found.status is U and "residual depth 16 seed 3" in found.sentence
    assert found.command == "python -m run depth=16 connection=residual seed=3 trainer.steps=60 study=depth"
    assert "provisional" in evidence.conclusions[0].shown

    def fail(runs: pd.DataFrame) -> pd.DataFrame:
        return runs.assign(status=runs["status"].where(runs["seed"] != 2, "failed"))

    assert "6 runs of the grid" in find(world(change=fail), "comparable").sentence


# degradation


def test_degradation_is_the_corrected_paired_interval(world: World) -> None:
    found = find(world(), "degradation")
    expected = stats.ttest_rel(BAD, GOOD).confidence_interval(1 - 0.05 / 2)
    assert found.status is S and found.shown is not None
    assert found.shown.depth == 16 and found.shown.effect == pytest.approx(100 * (BAD - GOOD).mean())
    assert (found.shown.low, found.shown.high) == (
        pytest.approx(100 * expected.low),
        pytest.approx(100 * expected.high),
    )
    assert found.shown.p == pytest.approx(stats.ttest_1samp(100 * (BAD - GOOD), 1.0).pvalue)
    assert found.shown.p_holm is not None and found.shown.p_holm >= found.shown.p


@pytest.mark.parametrize("cells", [CURED, CURED | {("plain", 8): WIDE}, CURED | {("plain", 16): GOOD}])
def test_the_tables_onset_is_the_claims(world: World, loaded: LoadedStudy, cells: dict[Cell, Any]) -> None:
    keys = zip(loaded.runs["connection"], loaded.runs["depth"], loaded.runs["seed"], strict=True)
    errors = [cells[c, d][s] for c, d, s in keys]
    onsets = judge(loaded.runs.assign(final_train_error=errors, final_train_loss=0.01)).onsets.set_index("connection")
    found = find(world(cells), "degradation")
    onset = onsets.loc["plain", "onset_depth"]
    assert (found.status is S) == (not pd.isna(onset))
    assert found.shown is not None and (pd.isna(onset) or found.shown.depth == onset)


def test_degradation_contradicted_undecided_not_tested(world: World) -> None:
    flat = find(world(dict.fromkeys(CURED, GOOD)), "degradation")
    assert flat.status is C and "as well as" in flat.sentence
    open_ = find(world(CURED | {("plain", 8): WIDE, ("plain", 16): WIDE}), "degradation")
    assert open_.status is U and "seeds would decide it" in open_.sentence and "seed=0,1,2,3,4,5" in open_.command
    assert find(world(keep=only(depth=[16])), "degradation").status is N
    assert find(world(keep=without("plain")), "degradation").status is N


def test_two_seeds_decide_nothing(world: World) -> None:
    found = find(world(keep=only(seed=[0, 1])), "degradation")
    assert found.status is U and "2 of at least 3 seeds" in found.sentence
    assert find(world(keep=only(seed=[0])), "degradation").status is U


def test_on_the_floor_the_loss_decides(world: World) -> None:
    zero = {cell: np.zeros(5) for cell in CURED}
    higher = {("plain", 16): 0.5 + SEED_NOISE}  # against 0.01: 1.7 decades
    found = find(world(zero, loss=higher), "degradation")
    assert found.status is S and found.shown is not None
    assert found.shown.unit == "decades of training loss"
    assert found.shown.effect == pytest.approx(np.log10((0.5 + SEED_NOISE) / 0.01).mean())
    assert find(world(zero, loss={("plain", 16): np.full(5, 0.03)}), "degradation").status is C


def test_diverged_runs_count_at_chance_and_openly(world: World) -> None:
    def diverge(runs: pd.DataFrame) -> pd.DataFrame:
        hit = (runs["connection"] == "plain") & (runs["depth"] == 16)
        return runs.assign(status=runs["status"].where(~hit, "diverged"))

    found = find(world(change=diverge), "degradation")
    assert found.shown is not None and found.shown.num_diverged == 5
    assert found.shown.effect == pytest.approx(100 * (CHANCE - GOOD.mean()))
    assert found.sensitivity == "5 diverged runs count at chance level; without them: contradicted"


# not_overfitting


def test_not_overfitting_supported_by_hand(world: World) -> None:
    val = {("plain", 4): GOOD + 0.05, ("plain", 16): BAD + 0.06 + SEED_NOISE}
    found = find(world(val=val), "not_overfitting")
    train_rise, gap_rise = BAD - GOOD, 0.06 + SEED_NOISE - 0.05
    assert found.status is S and found.shown is not None and "degradation, not overfitting" in found.sentence
    assert found.shown.effect == pytest.approx(100 * (train_rise - gap_rise).mean())


def test_overfitting_underfitting_and_no_rise_are_told_apart(world: World) -> None:
    flat = dict.fromkeys(CURED, GOOD)
    over = find(world(flat, val={("plain", 8): GOOD + 0.2, ("plain", 16): GOOD + 0.4}), "not_overfitting")
    assert over.status is C and "This is overfitting" in over.sentence
    none = find(world(flat), "not_overfitting")
    assert none.status is C and "no rise to explain" in none.sentence
    under = find(world(dict.fromkeys(CURED, BAD)), "not_overfitting")
    assert under.status is C and "Underfitting everywhere" in under.sentence
    worse = find(world(val={("plain", 16): BAD + 0.9}), "not_overfitting")
    assert worse.status is C and "by more than training" in worse.sentence


def test_not_overfitting_undecided_and_not_tested(world: World) -> None:
    assert find(world(CURED | {("plain", 8): WIDE, ("plain", 16): WIDE}), "not_overfitting").status is U
    assert find(world(keep=only(depth=[4])), "not_overfitting").status is N


# cured


def test_cured_by_hand(world: World) -> None:
    found = find(world(), "cured")
    assert found.status is S and len(found.comparisons) == 3  # one gap, two rises
    gap = found.comparisons[0]
    expected = stats.ttest_rel(BAD, GOOD).confidence_interval(1 - 0.05 / 3)
    assert (gap.low, gap.high) == (pytest.approx(100 * expected.low), pytest.approx(100 * expected.high))
    assert gap.effect == pytest.approx(100 * (BAD - GOOD).mean()) and found.shown is gap


def test_not_cured_by_an_arm_that_is_no_better_or_rises_itself(world: World) -> None:
    same = find(world(CURED | {("residual", 16): BAD}), "cured")
    assert same.status is C and "does not cure" in same.sentence
    rises = world(CURED | {("residual", 16): GOOD + 0.1})
    assert find(rises, "cured").status is C and rises.conclusions[0].id == "not_cured"
    assert "lessens" in rises.conclusions[0].shown and "lessens" in find(rises, "cured").sentence
    assert "lessens" not in same.sentence


def test_a_connection_that_gets_better_with_depth_is_a_cure(world: World) -> None:
    found = find(world(CURED | {("residual", 4): GOOD + 0.2}), "cured")
    assert found.status is S and "or falls, at depth 8, 16." in found.sentence
    assert not any(c.equivalent for c in found.comparisons)
    equal = find(world(), "cured")
    assert [c.equivalent for c in equal.comparisons] == [False, True, True]
    assert equal.sentence.endswith("equal within the margin at every depth.")


def test_cured_undecided_and_not_tested(world: World) -> None:
    wide = world(CURED | {("residual", 16): WIDE})
    assert find(wide, "cured").status is U and wide.conclusions[0].id == "degradation"
    open_onset = world(CURED | {("plain", 8): WIDE, ("plain", 16): WIDE})
    assert find(open_onset, "cured").status is U and open_onset.conclusions[0].id == "undecided"
    nothing = world(dict.fromkeys(CURED, GOOD))
    assert find(nothing, "cured").status is N and nothing.conclusions[0].id == "no_degradation"
    assert "depth=4,8,16,32" in find(nothing, "cured").command
    assert find(world(keep=without("plain")), "cured").status is N


def test_not_significant_is_no_absence(world: World) -> None:
    """A rise of the connection whose interval holds 0 and the margin supports nothing."""
    noisy = find(world(CURED | {("residual", 16): np.array([0.0, 0.03, 0.0, 0.02, 0.01])}), "cured")
    assert noisy.status is U


# not_statistics


def test_not_statistics(world: World) -> None:
    found = find(world(), "not_statistics")
    assert found.status is S and len(found.comparisons) == 4  # two series, rise and gap at depth 16
    half = {("plain", 16): BAD / 2}
    weaker = find(world(batchstats=half), "not_statistics")
    expected = stats.ttest_rel(BAD / 2, GOOD).confidence_interval(1 - 0.05 / 4)
    rise = weaker.comparisons[0]
    assert (rise.low, rise.high) == (pytest.approx(100 * expected.low), pytest.approx(100 * expected.high))
    assert find(world(batchstats={("plain", 16): GOOD}), "not_statistics").status is C
    assert find(world(running={("plain", 16): WIDE}), "not_statistics").status is U
    assert find(world(dict.fromkeys(CURED, GOOD)), "not_statistics").status is N


def test_missing_batch_statistics_are_undecided(world: World) -> None:
    found = find(world(change=lambda runs: runs.assign(final_train_error_batchstats=None)), "not_statistics")
    assert found.status is U and "0 of at least 3 seeds" in found.sentence
    assert "trainer.batchstats_every" in found.command


# not_budget


def with_budget(steps: int, cells: Mapping[Cell, Any]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """The study's runs, and the same ones with another budget and these errors."""

    def change(runs: pd.DataFrame) -> pd.DataFrame:
        keys = zip(runs["connection"], runs["depth"], runs["seed"], strict=True)
        errors = [cells[c, d][s] for c, d, s in keys]
        longer = runs.assign(run_id=runs["run_id"] + "-longer", final_train_error=errors, setting=f"steps={steps}")
        longer = longer.assign(**{"trainer.steps": steps, "final_step": steps})
        return pd.concat([runs, longer], ignore_index=True)

    return change


def budget_claim(evidence: Evidence) -> Claim:
    return next(c for c in evidence.claims if c.id == "not_budget" and c.setting == "all")


def test_not_budget(world: World) -> None:
    found = budget_claim(world(change=with_budget(240, CURED | {("plain", 16): BAD / 2})))
    expected = stats.ttest_rel(BAD / 2, GOOD).confidence_interval(0.95)
    assert found.status is S and found.shown is not None and "240 steps" in found.shown.label
    assert (found.shown.low, found.shown.high) == (
        pytest.approx(100 * expected.low),
        pytest.approx(100 * expected.high),
    )
    assert budget_claim(world(change=with_budget(240, CURED | {("plain", 16): GOOD}))).status is C
    assert budget_claim(world(change=with_budget(240, CURED | {("plain", 16): WIDE}))).status is U
    near = budget_claim(world(change=with_budget(90, CURED)))
    assert near.status is N and "trainer.steps=60,120,240" in near.command and "study=depth_budget" in near.command


# signal and scales


def inside(names: tuple[str, ...], **cells: float) -> dict[tuple[str, int, str], Any]:
    """plain_4=0.3, residual_16=...: the same for each of these quantities, with a little noise over seeds."""
    keys = {name: name.split("_") for name in cells}
    return {(arm, int(depth), q): cells[name] + SEED_NOISE for name, (arm, depth) in keys.items() for q in names}


def test_signal(world: World) -> None:
    healthy = {"plain_4": 0.3, "residual_4": 0.3, "residual_16": 0.2}
    found = find(world(measured=inside(SIGNAL, plain_16=-2.0, **healthy)), "signal")
    assert found.status is S and "vanishing (0.01) in plain, healthy (1.6) with residual" in found.sentence
    assert found.shown is not None and found.shown.effect == pytest.approx(abs(-2 - 0.3) - abs(0.2 - 0.3))
    unlost = find(world(measured=inside(SIGNAL, plain_16=0.35, **healthy)), "signal")
    assert unlost.status is C and "have not lost their signal" in unlost.sentence
    one = inside(SIGNAL, plain_16=-2.0, **healthy) | {("plain", 16, SIGNAL[0]): 8 * WIDE - 2}
    assert find(world(measured=one), "signal").status is U
    assert find(world(), "signal").status is N
    assert "probe=default" in find(world(), "signal").command


def test_scales(world: World) -> None:
    calm = inside(SCALES, residual_4=-0.5, residual_8=-0.5, residual_16=-0.5)
    found = find(world(measured=calm), "scales")
    assert found.status is S and len(found.comparisons) == 12
    half = stats.t.ppf(1 - 0.025 / 12, 4) * stats.sem(SEED_NOISE)
    assert found.comparisons[0].low == pytest.approx(-0.5 - half)
    swamped = calm | {("residual", 16, SCALES[1]): np.full(5, -2.9)}
    assert find(world(measured=swamped), "scales").status is C
    unclear = calm | {("residual", 16, SCALES[1]): -2 + 2 * WIDE}
    assert find(world(measured=unclear), "scales").status is U
    assert find(world(), "scales").status is N
    no_ratio = {key: value for key, value in calm.items() if "ratio" not in key[2]}
    assert "adds nothing to a trunk" in find(world(measured=no_ratio), "scales").sentence

    def diverge(runs: pd.DataFrame) -> pd.DataFrame:
        hit = (runs["connection"] == "residual") & (runs["depth"] == 16) & (runs["seed"] == 0)
        return runs.assign(status=runs["status"].where(~hit, "diverged"))

    assert find(world(measured=calm, change=diverge), "scales").status is C


@pytest.mark.parametrize("id_", ["not_budget", "not_tuning", "near_identity", "solution_exists"])
def test_what_a_study_lacks_is_named_with_the_command_that_adds_it(world: World, id_: str) -> None:
    found = find(world(), id_)
    assert found.status is N and found.command.startswith("python -m run -m ")
    other = found.command.rpartition("study=")[2]
    assert f"`plainres report results/depth --with results/{other}`" in found.sentence


# the verdict


def test_every_combination_has_one_verdict() -> None:
    reached = set()
    for comparable, degradation, cured in product((S, C, U), tuple(ClaimStatus), tuple(ClaimStatus)):
        fitting = [
            r for r in VERDICTS if comparable in r.comparable and degradation in r.degradation and cured in r.cured
        ]
        assert len(fitting) == 1, (comparable, degradation, cured)
        reached.add(verdict_of(comparable, degradation, cured).id)
    assert reached == {row.id for row in VERDICTS}


def test_plain_alone_has_a_verdict(world: World) -> None:
    evidence = world(keep=only(connection=["plain"]))
    assert [c.id for c in evidence.claims] == [
        "comparable", "degradation", "not_overfitting", "not_statistics", "solution_exists",
    ]  # fmt: skip
    assert find(evidence, "comparable").status is S
    assert evidence.conclusions[0].id == "degradation"


def test_no_spread_is_one_example(world: World) -> None:
    same = CURED | {("plain", 4): np.zeros(5), ("plain", 16): np.full(5, 0.6)}
    found = find(world(same), "degradation").shown
    assert found is not None and found.flag == "no spread"
    assert found.low == pytest.approx(60 - 100 / NUM_TRAIN)


def test_at_chance_from_the_start_no_rise_can_show(world: World) -> None:
    """A contradiction would say that deep networks train as well as shallow ones, where none trains."""
    chance = np.full(len(BAD), 0.8977)
    found = world({(name, depth): chance if name == "plain" else GOOD for name, depth in CURED})
    claim = find(found, "degradation")
    assert claim.status is U and "chance level already" in claim.sentence
    assert found.conclusions[0].id == "undecided" and "no rise could show" in found.conclusions[0].shown
    assert find(found, "cured").status is U


def test_the_verdict_names_a_branch_of_ones_own(world: World) -> None:
    found = world(change=lambda runs: runs.assign(**{"model.branch": "mine:Mine"}))
    assert "with branch mine:Mine and its own init; around it he init" in found.conclusions[0].shown
