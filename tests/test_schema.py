from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from plainres.errors import UserError
from plainres.options import FieldClass
from plainres.schema import RunConf, flatten, plain_value, plain_values
from plainres.validation import validate

CONF = Path(__file__).parents[1] / "conf"
GROUPS = ("connection", "data", "model", "optimizer", "probe", "schedule", "start", "tracker")
NEEDS = {  # what a recipe's page asks of the model
    "fixup": {"model.norm": "none"},
    "deepnorm": {"model.placement": "post_norm", "model.norm": "layer"},
    "layernorm_scaling": {"model.placement": "pre_norm", "model.norm": "layer"},
}
DEFAULT_FILES = {
    "model": "mlp", "optimizer": "sgd", "schedule": "cosine", "probe": "default", "data": "digits",
    "connection": "plain", "tracker": "wandb", "start": "scratch",
}  # fmt: skip


def leaf_fields(conf: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for item in fields(conf):
        value = getattr(conf, item.name)
        inner = leaf_fields(value, f"{prefix}{item.name}.") if is_dataclass(value) else [(prefix + item.name, item)]
        found += inner
    return found


def test_every_field_has_a_class():
    leaves = leaf_fields(RunConf())
    assert len(leaves) > 30
    assert [name for name, item in leaves if not isinstance(item.metadata.get("class"), FieldClass)] == []
    assert set(flatten(RunConf())) == {name for name, _ in leaves}


def test_what_moves_a_bit_is_identity_and_places_are_free():
    classes = {name: kind for name, (kind, _) in flatten(RunConf()).items()}
    identity = ("trainer.threads", "trainer.device", "trainer.deterministic", "optimizer.decay", "depth", "seed")
    assert {classes[n] for n in identity} == {FieldClass.IDENTITY}
    assert {classes[n] for n in ("probe.every", "trainer.eval_every")} == {FieldClass.RECORD}
    assert {classes[n] for n in ("study", "results_dir", "tracker.mode", "fail_fast")} == {FieldClass.FREE}


def test_defaults_are_valid_and_not_shared():
    validate(RunConf())
    RunConf().optimizer.betas.append(0.5)
    assert RunConf().optimizer.betas == [0.9, 0.999]


BAD = [
    ("model.width", 0, "at least 1"),
    ("model.branch_layers", 0, "at least 1"),
    ("trainer.steps", 0, "at least 1"),
    ("trainer.batch", -1, "at least 2"),
    ("trainer.batch", 1, "at least 2"),
    ("trainer.threads", 0, "at least 1"),
    ("trainer.accumulate", 0, "at least 1"),
    ("trainer.accumulate", 3, "a divisor of trainer.batch=128"),
    ("trainer.accumulate", 128, "leaves at least two examples"),
    ("trainer.eval_every", 0, "at least 1"),
    ("trainer.batchstats_every", 0, "at least 1"),
    ("trainer.checkpoint_every", 0, "at least 1"),
    ("trainer.device", "gpu", "cuda:N"),
    ("trainer.device", "cuda:", "cuda:N"),
    ("seed", -1, "at least 0"),
    ("probe.every", -1, "at least 0"),
    ("trainer.checkpoint_blocks", -1, "at least 0"),
    ("schedule.warmup_steps", -1, "at least 0"),
    ("schedule.warmup_steps", 600, "less than trainer.steps=600"),
    ("optimizer.lr", 0.0, "above 0"),
    ("optimizer.lr", float("nan"), "above 0"),
    ("optimizer.lr", float("inf"), "above 0"),
    ("optimizer.eps", 0.0, "above 0"),
    ("schedule.factor", -0.1, "above 0"),
    ("optimizer.weight_decay", -1e-4, "at least 0"),
    ("optimizer.weight_decay", float("nan"), "at least 0"),
    ("optimizer.momentum", 1.0, "[0, 1)"),
    ("optimizer.momentum", -0.1, "[0, 1)"),
    ("optimizer.betas", [0.9], "two numbers"),
    ("optimizer.betas", [0.9, 1.0], "two numbers"),
    ("optimizer.clip_norm", 0.0, "null or"),
    ("optimizer.clip_norm", float("inf"), "null or"),
    ("schedule.milestones", [10], "empty unless schedule=step"),
    ("study", "a/b", "letters, digits"),
    ("study", "", "letters, digits"),
    ("study", "..", "letters, digits"),
    ("connection.name", "-x", "letters, digits"),
    ("data.size", 0, "null or a whole number"),
    ("data.crop", 0, "null or a whole number"),
    ("data.subset", 0, "null or"),
    ("data.pad", -1, "at least 0"),
    ("data.seed", -1, "at least 0"),
    ("data.examples", 9, "at least 10"),
    ("data.classes", 1, "at least 2"),
    ("data.teacher_depth", 0, "at least 1"),
    ("data.val_share", 1.0, "between 0 and 1"),
    ("data.label_noise", 1.5, "in [0, 1]"),
    ("data.content", "abc", "null; it is measured"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_a_bad_value_is_refused_with_field_value_and_what_is_allowed(set_values, name, value, allowed):
    with pytest.raises(UserError) as caught:
        validate(set_values({name: value}))
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: must be ") and allowed in message and "\n" not in message


@pytest.mark.parametrize("marks", [[], [0], [600], [300, 300], [400, 300], [-1, 5]])
def test_step_schedule_refuses_milestones_that_are_not_rising_steps(set_values, marks):
    with pytest.raises(UserError, match=r"^schedule.milestones="):
        validate(set_values({"schedule.name": "step", "schedule.milestones": marks}))


@pytest.mark.parametrize(
    "values",
    [
        {"schedule.name": "step", "schedule.milestones": [1, 599]},
        {"schedule.warmup_steps": 599},
        {"schedule.warmup_steps": 0},
        {"optimizer.momentum": 0.0},
        {"optimizer.clip_norm": 1.0},
        {"trainer.device": "cuda:1"},
        {"trainer.device": "auto"},
    ],
)
def test_values_on_the_edge_are_allowed(set_values, values):
    validate(set_values(values))


def test_nesterov_without_momentum_is_refused(set_values):
    with pytest.raises(UserError, match=r"^optimizer.nesterov=True.*momentum=0"):
        validate(set_values({"optimizer.nesterov": True, "optimizer.momentum": 0.0}))


@pytest.mark.parametrize("values", [{"connection.shortcut": "identity"}, {"connection.name": "residual"}])
def test_the_name_plain_belongs_to_the_arm_that_adds_nothing(set_values, values):
    with pytest.raises(UserError, match=r"^connection\.name="):
        validate(set_values(values))


def test_enums_become_text_and_nested_values_json():
    values = plain_values(RunConf())
    assert type(values["model"]["name"]) is str and values["optimizer"]["betas"] == [0.9, 0.999]
    assert plain_value(RunConf().connection.shortcut) == "none"


@pytest.mark.parametrize("path", sorted(p for g in GROUPS for p in (CONF / g).glob("*.yaml")), ids=lambda p: p.stem)
def test_a_group_file_sets_only_schema_fields_and_valid_values(set_values, path):
    values = yaml.safe_load(path.read_text())
    group = path.parent.name
    known = flatten(getattr(RunConf(), group))
    assert set(values) <= set(known)
    assert values["name"] == path.stem
    needs = NEEDS.get(path.stem, {}) if group == "connection" else {"depth": 20} if group == "start" else {}
    validate(set_values(needs | {f"{group}.{name}": value for name, value in values.items()}))


def test_default_files_and_schema_agree():
    for group, stem in DEFAULT_FILES.items():
        written = yaml.safe_load((CONF / group / f"{stem}.yaml").read_text())
        defaults = plain_values(getattr(RunConf(), group))
        assert written == {name: defaults[name] for name in written}, f"conf/{group}/{stem}.yaml"


def test_config_yaml_and_schema_agree():
    written = yaml.safe_load((CONF / "config.yaml").read_text())
    chosen = {k: v for item in written.pop("defaults") if isinstance(item, dict) for k, v in item.items()}
    assert {group: chosen[group] for group in DEFAULT_FILES} == DEFAULT_FILES
    written.pop("hydra")
    defaults = plain_values(RunConf())
    assert written == {name: defaults[name] for name in written}
    assert set(written["trainer"]) == set(defaults["trainer"])


@pytest.mark.parametrize("path", sorted((CONF / "sweep").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_sweep_file_sets_only_schema_fields(path):
    values = yaml.safe_load(path.read_text())
    varied = values.pop("hydra")["sweeper"]["params"]
    values.pop("defaults", None)  # which files it starts from; that they exist is tested by expanding it
    leaves = {
        f"{k}.{i}" if isinstance(v, dict) else k for k, v in values.items() for i in (v if isinstance(v, dict) else [0])
    }
    known = set(flatten(RunConf()))
    assert leaves <= known and set(varied) <= known | set(GROUPS) | {"+arm"}
