import math

import pytest
import torch

from plainres import environment, job
from plainres.environment import differences, place
from plainres.errors import UserError
from plainres.job import planned_record
from plainres.pair import make_spec
from plainres.rows import parse_lines, read_table
from plainres.store import RunFolder, Status, write_json
from plainres.tracking.client import Tracker


def fail_with(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.fixture
def short(make_conf):
    return lambda connection="plain", values=None: make_conf(connection, {"trainer.steps": 6} | (values or {}))


def test_a_complete_run_leaves_a_record_that_says_everything(execute, short, study):
    conf = short("residual")
    outcome, folder = execute(conf)
    record = folder.read()
    assert (outcome.status, outcome.skipped, outcome.message) == (Status.COMPLETE, False, "")
    assert outcome.seconds > 0 and outcome.name == folder.name
    assert record["identity"]["depth"] == 6 and record["config"]["model"]["width"] == 6
    assert record["attempts"] == 1 and record["error"] is None and record["diverged"] is None
    assert record["audit"]["clean"] and record["audit"]["partner"] == "plain"
    assert record["data"]["num_train"] == 1437 and record["study"] == study.name
    assert record["environment"]["code_hash"] == environment.code_hash()
    assert record["num_parameters"] == 64 * 6 + 4 * 36 + 5 * 12 + 70
    assert record["forward_flops"] == 2 * (64 * 6 + 4 * 36 + 6 * 10)  # matrix products of one example
    assert len(record["response_labels"]) == len(record["layout"]["layer"]) == 6
    assert {p.name for p in folder.path.iterdir()} == {
        ".lock", "run.json", "checkpoint.pt", "steps.parquet", "layers.parquet",
    }  # fmt: skip
    assert not folder.is_locked()
    again = planned_record(make_spec(conf, "cpu"), study)
    assert {k: record[k] for k in again if k != "status"} == {k: v for k, v in again.items() if k != "status"}


@pytest.mark.parametrize(
    "values", [{}, {"optimizer.lr": 1e30, "schedule.warmup_steps": 0}], ids=["complete", "diverged"]
)
def test_a_finished_run_is_skipped_and_not_touched(monkeypatch, execute, short, values):
    first, folder = execute(short("plain", values))
    record = folder.read()
    monkeypatch.setattr(job, "_train", fail_with(AssertionError("trained again")))
    outcome, _ = execute(short("plain", values))
    assert (outcome.status, outcome.skipped, outcome.message) == (first.status, True, "")
    assert folder.read() == record


def test_lines_that_a_kill_left_behind_are_dropped_when_skipping(execute, short):
    _, folder = execute(short())
    (folder.path / "steps.jsonl").write_text("")
    assert execute(short())[0].skipped
    assert not (folder.path / "steps.jsonl").exists()
    assert read_table(folder, "steps", {}).num_rows > 0


def test_a_run_held_elsewhere_is_left_alone(execute, short, study):
    held = study.run_folder(make_spec(short(), "cpu").name)
    assert held.acquire()
    outcome, folder = execute(short())
    held.release()
    assert (outcome.status, outcome.skipped) == (Status.RUNNING, True) and "another process" in outcome.message
    assert not folder.exists()


def final_rows(folder):
    layout = folder.read()["layout"]
    return [read_table(folder, table, layout) for table in ("steps", "layers")]


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "missing"])
def test_a_broken_checkpoint_means_starting_again(tmp_path, execute, short, study, content):
    conf = short("residual")
    _, folder = execute(conf, stop_at=4)
    assert folder.read()["status"] == "interrupted"
    if content is None:
        folder.checkpoint.unlink()
    else:
        folder.checkpoint.write_bytes(content)
    assert execute(conf)[0].status == "complete"
    _, other = execute(conf, into=type(study).create(tmp_path, "undisturbed"))
    assert all(a.equals(b) for a, b in zip(final_rows(folder), final_rows(other), strict=True))
    assert folder.read()["final"] == other.read()["final"]


def test_the_seconds_of_all_attempts_are_counted(execute, short):
    _, folder = execute(short(), stop_at=4)
    before = folder.read()["seconds"]["total"]
    execute(short())
    seconds = folder.read()["seconds"]
    assert seconds["total"] > before > 0
    assert seconds["total"] >= sum(v for name, v in seconds.items() if name != "total") * 0.99


# A failure belongs to its run alone.


def test_a_failure_leaves_status_message_and_traceback(monkeypatch, execute, short):
    with monkeypatch.context() as patched:
        patched.setattr(job, "compact", fail_with(RuntimeError("boom")))
        outcome, folder = execute(short())
    record = folder.read()
    assert outcome.status == record["status"] == "failed" and not outcome.skipped
    assert outcome.message.startswith("RuntimeError: boom") and "traceback.txt" in outcome.message
    assert record["error"] == {"kind": "RuntimeError", "message": outcome.message}
    assert "boom" in folder.traceback.read_text() and "_train" in folder.traceback.read_text()
    assert not folder.is_locked() and not (folder.path / "progress.json").exists()
    outcome, _ = execute(short())
    record = folder.read()
    assert outcome.status == record["status"] == "complete"
    assert record["error"] is None and record["attempts"] == 2 and not folder.traceback.exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        ),
    ],
    ids=["python", "cuda", "cpu"],
)
def test_out_of_memory_has_a_status_and_a_remedy(monkeypatch, execute, short, error):
    monkeypatch.setattr(job, "assemble", fail_with(error))
    outcome, folder = execute(short())
    assert outcome.status == folder.read()["status"] == "oom"
    assert "trainer.batch=128" in outcome.message
    assert folder.traceback.exists()


def test_torch_says_so_when_a_cpu_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert job.out_of_memory(caught.value)
    assert not job.out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_mistake_of_the_user_is_one_line_without_traceback(monkeypatch, execute, short):
    monkeypatch.setattr(job, "assemble", fail_with(UserError("x=1: must be 2")))
    outcome, folder = execute(short())
    assert (outcome.status, outcome.message) == (Status.FAILED, "x=1: must be 2")
    assert folder.read()["error"]["message"] == "x=1: must be 2" and not folder.traceback.exists()


def test_a_full_disk_is_a_failure_that_is_reported_all_the_same(monkeypatch, execute, short):
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patched:
        patched.setattr("plainres.store.write_atomic", fail_with(full))
        patched.setattr("plainres.checkpoint.write_atomic", fail_with(full))
        outcome, _ = execute(short())
    assert outcome.status is Status.FAILED and "No space left" in outcome.message
    assert execute(short())[0].status is Status.COMPLETE


@pytest.mark.parametrize("content", [b"{gar", b"[]", b""])
def test_an_unreadable_record_fails_its_own_run_and_raises_nothing(execute, short, study, content):
    folder = study.run_folder(make_spec(short(), "cpu").name)
    folder.path.mkdir(parents=True)
    (folder.path / "run.json").write_bytes(content)
    outcome, _ = execute(short())
    assert outcome.status is Status.FAILED and not outcome.skipped and outcome.message
    assert not folder.is_locked()


@pytest.mark.parametrize("record", [{"status": "no such"}, {}], ids=str)
def test_a_record_without_a_known_status_is_written_anew(execute, short, study, record):
    study.run_folder(make_spec(short(), "cpu").name).write(record)
    assert execute(short())[0].status is Status.COMPLETE


def test_an_unreadable_record_of_another_run_harms_nobody(execute, short, study):
    other = study.run_folder("mlp-plain-d100-s0-0123456789ab")
    other.path.mkdir(parents=True)
    (other.path / "run.json").write_bytes(b"{gar")
    assert execute(short())[0].status is Status.COMPLETE


def test_an_unmatched_pair_does_not_start(monkeypatch, execute, short):
    report = {"clean": False, "undeclared": ["operations: relu here, tanh in the partner"], "checks": []}
    monkeypatch.setattr(job, "audit", lambda conf, data: report)
    outcome, folder = execute(short("residual"))
    assert outcome.status == folder.read()["status"] == "failed"
    assert "the pair is not matched: operations: relu here" in outcome.message
    assert not folder.checkpoint.exists() and folder.read()["audit"] == report


def test_interrupted_says_how_to_go_on(execute, short):
    outcome, folder = execute(short(), stop_at=2)
    assert outcome.status == folder.read()["status"] == "interrupted" and "same command" in outcome.message
    assert not (folder.path / "progress.json").exists() and not folder.is_locked()


# Other code, other versions, other hardware.


def trained_elsewhere(folder, **changes):
    record = folder.read()
    folder.update(environment=record["environment"] | changes)


@pytest.mark.parametrize(
    "changes", [{"code_hash": "0" * 16}, {"device_name": "another CPU"}, {"precision": "bfloat16"}], ids=str
)
def test_a_partner_trained_elsewhere_is_refused(execute, short, changes):
    _, partner = execute(short("plain"))
    trained_elsewhere(partner, **changes)
    outcome, folder = execute(short("residual"))
    (name,) = changes
    assert outcome.status == folder.read()["status"] == "failed"
    assert partner.name in outcome.message and name in outcome.message
    assert "study=NAME" in outcome.message and "allow_mixed_environment" in outcome.message
    outcome, _ = execute(short("residual", {"trainer.allow_mixed_environment": True}))
    assert outcome.status is Status.COMPLETE


def test_another_version_of_torch_is_refused(execute, short):
    _, partner = execute(short("plain"))
    versions = partner.read()["environment"]["versions"]
    trained_elsewhere(partner, versions=versions | {"torch": "1.0"})
    assert "versions.torch: 1.0 there" in execute(short("residual"))[0].message


def test_what_moves_no_bit_is_no_reason_to_refuse(execute, short):
    _, partner = execute(short("plain"))
    trained_elsewhere(partner, commit="0" * 40, dirty_hash="x", hostname="another", cores=96)
    assert execute(short("residual"))[0].status is Status.COMPLETE


def test_runs_of_other_pairs_do_not_matter(execute, short):
    _, other = execute(short("plain", {"seed": 1}))
    trained_elsewhere(other, code_hash="0" * 16)
    assert execute(short("residual"))[0].status is Status.COMPLETE


def test_a_partner_that_was_refused_and_never_trained_does_not_matter(monkeypatch, execute, short):
    _, plain = execute(short("plain"), stop_at=2)
    with monkeypatch.context() as patched:
        patched.setattr(environment, "code_hash", lambda: "f" * 16)
        assert execute(short("residual"))[0].status is Status.FAILED
    outcome, _ = execute(short("plain"))
    assert outcome.status is Status.COMPLETE, outcome.message
    assert plain.read()["status"] == "complete"


def test_resuming_elsewhere_is_refused_and_changes_nothing(monkeypatch, execute, short):
    _, folder = execute(short(), stop_at=3)
    before, rows = folder.checkpoint.read_bytes(), (folder.path / "steps.jsonl").read_bytes()
    trained_in = folder.read()["environment"]
    with monkeypatch.context() as patched:
        patched.setattr(environment, "code_hash", lambda: "f" * 16)
        outcome, _ = execute(short())
    assert outcome.status is Status.FAILED
    assert folder.name in outcome.message and "bit-identical" in outcome.message and "code_hash" in outcome.message
    assert folder.checkpoint.read_bytes() == before and (folder.path / "steps.jsonl").read_bytes() == rows
    assert folder.read()["environment"] == trained_in, "the rows were made there"
    assert execute(short())[0].status is Status.COMPLETE


def test_resuming_elsewhere_when_asked_to_is_recorded(monkeypatch, execute, short):
    _, folder = execute(short(), stop_at=3)
    monkeypatch.setattr(environment, "code_hash", lambda: "f" * 16)
    outcome, _ = execute(short("plain", {"trainer.allow_mixed_environment": True}))
    assert outcome.status is Status.COMPLETE
    (entry,) = folder.read()["environment_history"]
    assert entry["at"] and any(c.startswith("code_hash: ") and "f" * 16 in c for c in entry["changed"])


def test_place_holds_what_moves_a_bit():
    found = environment.describe("cpu", 1)
    here = place(found)
    assert set(here) >= {"code_hash", "versions.torch", "versions.numpy", "device_kind", "threads", "precision"}
    assert not {"commit", "hostname", "cores"} & set(here) and differences(here, dict(here)) == []
    other = place(environment.describe("cpu", 2))
    assert differences(here, other) == ["threads: 2 there, 1 here"]
    assert differences(here, {}) and differences(here, {"new": "x"} | here) == ["new: x there, None here"]


def test_a_run_of_a_newer_plainres_is_not_touched(execute, short, study):
    _, folder = execute(short(), stop_at=2)
    write_json(folder.path / "run.json", folder.read() | {"format": 99})
    before = (folder.path / "run.json").read_bytes()
    outcome, _ = execute(short())
    assert outcome.status is Status.FAILED and "upgrade plainres" in outcome.message
    assert (folder.path / "run.json").read_bytes() == before


def test_the_last_evaluation_that_was_finite_is_kept(execute, short):
    values = {"optimizer.lr": 1e30, "schedule.warmup_steps": 0, "trainer.eval_every": 1}
    _, folder = execute(short("plain", values))
    last = folder.read()["last_finite"]
    assert last["step"] == 0 and all(math.isfinite(v) for v in last.values())


class Listener(Tracker):
    """Notes what a run tells its sinks, and what its files hold then."""

    def __init__(self, conf, folder):
        super().__init__(conf, folder)
        self.folder, self.heard = RunFolder(folder), []

    def start(self):
        self.heard.append(("start", self.folder.read()["layout"] is not None))

    def on_checkpoint(self, lengths):
        lines = parse_lines((self.folder.path / "steps.jsonl").read_bytes()[: lengths["steps"]])
        self.heard.append(("rows", len(lines)))

    def end(self):
        self.heard.append(("end", self.folder.read()["status"]))


@pytest.fixture
def listener(monkeypatch):
    listeners = []
    make = lambda conf, folder: listeners.append(Listener(conf, folder)) or listeners[-1]  # noqa: E731
    monkeypatch.setattr(job, "Tracker", make)
    return listeners


def num_rows(folder, before=math.inf):
    table = read_table(folder, "steps", folder.read()["layout"])
    return len({(r["step"], r["kind"]) for r in table.to_pylist() if r["step"] < before})


def test_a_tracker_hears_of_rows_only_when_a_checkpoint_covers_them(execute, short, listener):
    conf = short("plain", {"trainer.checkpoint_every": 4})
    outcome, _ = execute(conf, stop_at=5)
    assert outcome.status == "interrupted"
    _, folder = execute(conf)
    interrupted, complete = (found.heard for found in listener)
    at_4, at_5 = num_rows(folder, 4), num_rows(folder, 5)
    assert interrupted == [("start", True), ("rows", at_4), ("rows", at_5), ("end", "interrupted")]
    assert complete == [("start", True), ("rows", num_rows(folder)), ("end", "complete")]


def test_a_tracker_hears_of_the_end_of_runs_that_diverge_or_fail(monkeypatch, execute, short, listener):
    values = {"optimizer.lr": 1e30, "schedule.warmup_steps": 0}
    execute(short("plain", values))
    monkeypatch.setattr(job, "compact", fail_with(RuntimeError("boom")))
    execute(short())
    assert [found.heard[-1] for found in listener] == [("end", "diverged"), ("end", "failed")]
    assert listener[0].heard == [("start", True), ("end", "diverged")], "no checkpoint covers these rows"
