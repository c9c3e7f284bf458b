"""Whole runs with a user's branch: identity by the text of its file, resuming, pairs."""

from pathlib import Path

import pytest
import torch

from plainres.job import execute as execute_job
from plainres.launch.prepare import prepare
from plainres.models.own import with_code
from plainres.pair import make_spec
from plainres.store import Status, Study

EXAMPLE = (Path(__file__).parents[2] / "experiments" / "own-branch-glu" / "my_branches.py").read_text()


def test_the_file_and_the_settings_are_identity(own_module, make_conf):
    conf = make_conf("residual", {"model.branch": "changing:Mine"})
    path = own_module("changing", EXAMPLE.replace("GatedLinear", "Mine"))
    first = make_spec(with_code(conf), "cpu")
    plain = make_spec(with_code(make_conf("plain", {"model.branch": "changing:Mine"})), "cpu")
    assert first.pair_id == plain.pair_id and first.run_id != plain.run_id
    hidden = make_conf("residual", {"model.branch": "changing:Mine", "model.branch_settings": {"hidden": 3}})
    path.write_text(path.read_text() + "# another text\n")
    ids = {first.run_id, make_spec(with_code(conf), "cpu").run_id, make_spec(with_code(hidden), "cpu").run_id}
    assert len(ids) == 3
    default = make_conf("residual")
    assert make_spec(with_code(default), "cpu").run_id == make_spec(default, "cpu").run_id


def test_a_file_that_changed_after_planning_fails_in_a_clear_line(own_module, make_conf, tmp_path):
    path = own_module("edited", EXAMPLE)
    study, (spec,) = prepare(
        [make_conf("residual", {"model.branch": "edited:GatedLinear"} | {"results_dir": str(tmp_path)})]
    )
    path.write_text(path.read_text() + "# edited\n")
    outcome = execute_job(spec, study, lambda: False)
    assert outcome.status is Status.FAILED
    assert outcome.message == "the file of your branch or shortcut has changed since this run was checked; start again"


def test_a_run_resumes_to_the_same_bits(make_own, tmp_path, execute):
    conf = with_code(make_own("residual", "cnn", {"trainer.checkpoint_every": 4, "model.width": 4, "depth": 4}))
    _, whole = execute(conf)
    weights = torch.load(whole.checkpoint, weights_only=True)
    other = Study.create(tmp_path, "again")
    execute(conf, stop_at=7, into=other)
    outcome, folder = execute(conf, into=other)
    assert outcome.status is Status.COMPLETE
    again = torch.load(folder.checkpoint, weights_only=True)
    assert torch.equal(weights["parameters"], again["parameters"])
    assert all(torch.equal(b, again["buffers"][n]) for n, b in weights["buffers"].items())
    assert any("num_batches_tracked" in n for n in weights["buffers"])


@pytest.mark.parametrize("family", ["mlp", "cnn", "transformer", "vit"])
def test_a_pair_with_own_branch_runs(make_own, tmp_path, family):
    confs = [make_own(c, family, {"results_dir": str(tmp_path), "study": family}) for c in ("plain", "residual")]
    study, specs = prepare(confs)
    for spec in specs:
        assert execute_job(spec, study, lambda: False).status is Status.COMPLETE
        assert spec.conf.model.branch_code
