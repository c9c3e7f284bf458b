from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plainres.options import FieldClass
from plainres.pair import hash_identity, identity_fields, make_spec, match, partner_of, record_fields
from plainres.schema import RunConf, flatten, plain_value

ORPHANS = "a changed id orphans every stored run; update this pin only on a deliberate change of format"
OTHER = {
    "depth": 20, "seed": 3, "connection.name": "x", "connection.shortcut": "identity", "model.name": "cnn",
    "connection.shortcut_scale": 0.5, "connection.shortcut_dropout": 0.25, "connection.gate": "exclusive",
    "connection.gate_bias": -1.0, "connection.scale": "learned", "connection.alpha": None,
    "connection.alpha_power": 1.0, "connection.alpha_warmup": 5, "connection.shared_scale": True,
    "connection.drop": "linear", "connection.survival": 0.9, "connection.drop_unit": "batch",
    "connection.drop_scaling": "eval", "connection.merge": "concat", "connection.zero_init": "last_weight",
    "connection.recipe": "fixup", "model.placement": "pre_norm", "model.norm": "layer", "model.activation": "gelu",
    "model.init": "xavier", "model.stages": "even", "model.boundary": "pool", "model.heads": 2, "model.patch": 4,
    "model.mlp_ratio": 2.0,
    "model.width": 65, "model.branch_layers": 3, "data.name": "mnist1d", "data.root": "x",
    "data.cache_dir": "x", "data.content": "x", "data.size": 4, "data.val_share": 0.5, "data.subset": 20,
    "data.label_noise": 0.5, "data.random_labels": True, "data.seed": 1, "data.augment": "crop", "data.pad": 2,
    "data.crop": 4, "data.examples": 20, "data.classes": 3, "data.teacher_depth": 2, "data.residence": "stream",
    "optimizer.name": "adamw", "optimizer.lr": 0.1,
    "optimizer.momentum": 0.5, "optimizer.nesterov": True, "optimizer.betas": [0.8, 0.9], "optimizer.eps": 1e-6,
    "optimizer.weight_decay": 0.0, "optimizer.decay": "matrices", "optimizer.clip_norm": 1.0, "schedule.name": "step",
    "schedule.warmup_steps": 3, "schedule.milestones": [5], "schedule.factor": 0.5, "trainer.steps": 70,
    "trainer.batch": 64, "trainer.threads": 2, "trainer.deterministic": False, "trainer.eval_every": 7,
    "trainer.eval_early": False, "trainer.devices": 2, "trainer.precision": "bf16", "trainer.accumulate": 2,
    "trainer.checkpoint_blocks": 2, "trainer.compile": "blocks", "trainer.cuda_graph": True, "trainer.replicas": 4,
    "trainer.batchstats_every": 7, "trainer.checkpoint_every": 7, "trainer.allow_mixed_environment": True,
    "probe.own": ["x:X"], "model.branch": "x:X", "model.branch_settings": {"a": 1}, "model.branch_code": "x",
    "connection.shortcut_settings": {"a": 1}, "connection.shortcut_code": "x",
    "probe.name": "x", "probe.every": 7, "probe.jacobian": 4,
    "tracker.name": "wandb", "tracker.mode": "offline", "tracker.project": "x", "tracker.own": ["x:X"],
    "start.name": "x", "start.depth": 4, "start.noise": 0.1,
    "study": "x", "results_dir": "x", "fail_fast": True,
}  # fmt: skip
RESIDUAL = {"connection.name": "residual", "connection.shortcut": "identity"}
IDENTITY = [n for n, (kind, _) in flatten(RunConf()).items() if kind is FieldClass.IDENTITY and n != "trainer.device"]
NOT_IDENTITY = [n for n, (kind, _) in flatten(RunConf()).items() if kind is not FieldClass.IDENTITY]


@pytest.mark.parametrize(
    ("values", "device", "pinned"),
    [
        ({}, "cpu", "44136fa355b3"),
        ({}, "cuda", "98598c3acffa"),
        (RESIDUAL, "cpu", "e20ab1ce379c"),
        (RESIDUAL | {"depth": 100, "seed": 4}, "cpu", "a71df37e6b9b"),
        ({"optimizer.name": "adamw", "optimizer.lr": 1e-3, "optimizer.clip_norm": 0.5}, "cpu", "abe6df460ec3"),
        ({"schedule.name": "step", "schedule.milestones": [300, 450]}, "cpu", "57b94e38b40b"),
    ],
)
def test_run_ids_are_pinned(set_values, values, device, pinned):
    assert make_spec(set_values(values), device).run_id == pinned, ORPHANS


def test_the_defaults_hash_as_nothing_changed():
    assert hash_identity({}) == hash_identity(identity_fields(make_spec(RunConf(), "cpu").conf)) == "44136fa355b3"


def test_a_new_field_at_its_default_changes_no_id(monkeypatch, set_values):
    before = hash_identity(make_spec(set_values({"depth": 20}), "cpu").identity)

    def with_new_field(conf):
        return identity_fields(conf) | {"model.new_option": "as before"}

    monkeypatch.setattr("plainres.pair.identity_fields", with_new_field)
    spec = make_spec(set_values({"depth": 20}), "cpu")
    assert spec.identity["model.new_option"] == "as before" and spec.run_id == before
    assert hash_identity(spec.identity | {"model.new_option": "otherwise"}) != before


@pytest.mark.parametrize("name", IDENTITY)
def test_every_identity_field_changes_the_run_id(set_values, name):
    changed, default = (make_spec(conf, "cpu") for conf in (set_values({name: OTHER[name]}), RunConf()))
    assert changed.run_id != default.run_id
    assert (changed.pair_id != default.pair_id) is (not name.startswith("connection."))


@pytest.mark.parametrize("name", NOT_IDENTITY)
def test_record_and_free_fields_never_change_an_id(set_values, name):
    changed, default = (make_spec(conf, "cpu") for conf in (set_values({name: OTHER[name]}), RunConf()))
    assert (changed.run_id, changed.pair_id, changed.name) == (default.run_id, default.pair_id, default.name)


def test_the_device_enters_as_its_kind(set_values):
    auto = make_spec(RunConf(), "cuda:1")
    assert auto.run_id == make_spec(set_values({"trainer.device": "cuda:0"}), "cuda:0").run_id
    assert auto.run_id != make_spec(RunConf(), "cpu").run_id
    assert (auto.device, auto.conf.trainer.device) == ("cuda:1", "cuda")


def test_spec_carries_id_and_label(set_values):
    spec = make_spec(set_values(RESIDUAL | {"seed": 2}), "cpu")
    assert spec.name == f"mlp-residual-d010-s2-{spec.run_id}"
    assert len(spec.run_id) == 12 and spec.run_id == hash_identity(spec.identity)


def test_record_fields_are_those_of_the_schema():
    assert set(record_fields(RunConf())) == {
        "trainer.eval_every", "trainer.eval_early", "probe.own", "trainer.batchstats_every", "probe.every",
        "probe.jacobian",
    }  # fmt: skip


def test_partner_is_plain_and_equal_in_all_else(set_values):
    conf = set_values(RESIDUAL | {"depth": 20, "optimizer.lr": 0.1})
    partner = partner_of(conf)
    assert partner == set_values({"depth": 20, "optimizer.lr": 0.1})
    assert make_spec(partner, "cpu").pair_id == make_spec(conf, "cpu").pair_id
    assert partner_of(partner) is None


values_of_identity = st.fixed_dictionaries(
    {},
    optional={
        "depth": st.integers(3, 200),
        "seed": st.integers(0, 2**40),
        "model.width": st.integers(1, 512),
        "optimizer.lr": st.floats(1e-6, 10),
        "optimizer.clip_norm": st.none() | st.floats(0.1, 10),
        "schedule.milestones": st.lists(st.integers(1, 500), max_size=3),
        "optimizer.nesterov": st.booleans(),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=values_of_identity, name=st.sampled_from(IDENTITY))
def test_equal_settings_equal_id_one_other_field_other_id(set_values, values, name):
    identity = make_spec(set_values(values), "cpu").identity
    assert hash_identity(identity) == make_spec(set_values(dict(reversed(values.items()))), "cpu").run_id
    other = plain_value(OTHER[name])
    if identity[name] != other:
        assert hash_identity(identity | {name: other}) != hash_identity(identity)


@pytest.fixture
def table(set_values):
    confs = [
        set_values(arm | {"depth": depth, "seed": seed, "optimizer.betas": [0.9, 0.99]})
        for depth in (10, 20) for seed in (0, 1) for arm in ({}, RESIDUAL)
    ]  # fmt: skip
    return pd.DataFrame([make_spec(c, "cpu").identity for c in confs], index=range(100, 108))


def groups_of(table, matched):
    return sorted(sorted(part.index) for _, part in table.groupby(matched.groups))


def test_match_over_connections(table):
    matched = match(table, ["connection"])
    assert groups_of(table, matched) == [[100, 101], [102, 103], [104, 105], [106, 107]]
    assert matched.unmatched.empty


def test_match_over_depths(table):
    assert groups_of(table, match(table, ["depth"])) == [[100, 104], [101, 105], [102, 106], [103, 107]]
    assert groups_of(table, match(table, ["connection", "depth"])) == [[100, 101, 104, 105], [102, 103, 106, 107]]


def test_match_reports_rows_without_a_partner(table):
    table.loc[103, "optimizer.lr"] = 0.5
    matched = match(table.drop(index=104), ["connection"])
    assert sorted(matched.unmatched.index) == [102, 103, 105]


def test_a_free_name_is_no_prefix_of_another_field(table):
    table.loc[101, "depth"] = 11
    with pytest.raises(KeyError, match="no identity field is named dep"):
        match(table, ["dep", "connection"])


def test_match_tells_null_from_a_value(table):
    table["optimizer.clip_norm"] = [None, None, None, 1.0, None, None, None, None]
    assert sorted(match(table, ["connection"]).unmatched.index) == [102, 103]


def test_match_of_nothing_is_nothing(table):
    matched = match(table.iloc[:0], ["connection"])
    assert len(matched.groups) == 0 and matched.unmatched.empty


def test_match_refuses_a_table_without_an_identity_column(table):
    with pytest.raises(KeyError, match=r"optimizer\.eps, trainer\.threads"):
        match(table.drop(columns=["trainer.threads", "optimizer.eps"]), ["connection"])
    match(table.drop(columns=["depth"]), ["connection", "depth"])


def test_a_spec_keeps_what_it_was_made_of():
    conf = RunConf()
    spec = make_spec(conf, "cpu")
    assert conf.trainer.device == "auto"
    assert spec.conf == replace(conf, trainer=replace(conf.trainer, device="cpu"))
