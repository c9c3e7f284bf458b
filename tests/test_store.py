import subprocess
import sys

import orjson
import pytest

from plainres.errors import UserError
from plainres.store import FORMAT, RunFolder, Status, Study, read_json, write_atomic, write_json

HOLD = """
import sys
from pathlib import Path
from plainres.store import RunFolder
folder = RunFolder(Path(sys.argv[1]))
print(folder.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(study):
    return study.run_folder("a-run")


@pytest.fixture
def held_elsewhere(folder):
    """Another process holds the run."""
    command = [sys.executable, "-c", HOLD, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_write_atomic_replaces(tmp_path):
    path = tmp_path / "x"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_write_atomic_failure_leaves_the_old_content_and_no_partial(monkeypatch, tmp_path, failing, error):
    path = tmp_path / "x"
    write_atomic(path, b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(failing, fail)
    with pytest.raises(type(error)):
        write_atomic(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_json_round_trip(tmp_path):
    value = {"a": [1, None, "ü"], "b": {"c": 0.1}, "status": Status.OOM}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == {**value, "status": "oom"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'{"a": 1} x', None])
def test_read_json_of_garbage_names_file_and_remedy(tmp_path, content):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json(path)
    assert str(path) in str(caught.value) and "run again" in str(caught.value)


def test_a_study_is_made_and_opened_again(tmp_path):
    made = Study.create(tmp_path / "results", "depth")
    assert made.path == tmp_path / "results" / "depth" and made.name == "depth"
    assert read_json(made.path / "study.json") == {"format": FORMAT, "study": "depth"}
    before = (made.path / "study.json").stat().st_mtime_ns
    assert Study.create(tmp_path / "results", "depth").path == made.path == Study.open(made.path).path
    assert (made.path / "study.json").stat().st_mtime_ns == before
    assert sorted(p.name for p in made.path.iterdir()) == [".lock", "runs", "study.json"]


def test_an_empty_folder_becomes_a_study(tmp_path):
    (tmp_path / "depth").mkdir()
    Study.create(tmp_path, "depth")


def refusal(*args):
    with pytest.raises(UserError) as caught:
        Study.create(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_foreign_folder_is_refused_and_not_touched(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("x")
    message = refusal(tmp_path, "thesis")
    assert "no plainres study" in message and "study=" in message
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_study_of_another_name_is_refused(tmp_path):
    Study.create(tmp_path, "one")
    (tmp_path / "one").rename(tmp_path / "two")
    message = refusal(tmp_path, "two")
    assert "'one'" in message and "'two'" in message


def test_a_newer_format_is_refused(tmp_path):
    study = Study.create(tmp_path, "one")
    write_json(study.path / "study.json", {"format": FORMAT + 1, "study": "one"})
    assert "upgrade plainres" in refusal(tmp_path, "one")


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    message = refusal(tmp_path / "file", "one")
    assert message.startswith("results_dir=") and "cannot write" in message
    (tmp_path / "file2").write_text("x")
    assert "cannot write" in refusal(tmp_path, "file2")


def test_open_refuses_what_is_no_study(tmp_path):
    with pytest.raises(UserError, match="not a plainres study"):
        Study.open(tmp_path)


def test_runs_are_listed_in_order_and_files_are_not(study):
    for name in ("b", "a", "c"):
        study.run_folder(name).write({"status": "planned"})
    (study.path / "runs" / "notes.txt").write_text("x")
    assert [r.name for r in study.runs()] == ["a", "b", "c"]


def test_a_record_is_written_changed_and_read(folder):
    assert not folder.exists()
    folder.write({"status": Status.PLANNED, "x": {"y": 1}})
    assert folder.exists() and folder.read() == {"format": FORMAT, "status": "planned", "x": {"y": 1}}
    assert folder.update(status=Status.FAILED)["status"] == "failed"
    assert folder.read() == {"format": FORMAT, "status": "failed", "x": {"y": 1}}


def test_a_record_of_a_newer_format_is_refused(folder):
    folder.write({"status": "planned"})
    write_json(folder.path / "run.json", {"format": FORMAT + 1, "status": "planned"})
    with pytest.raises(UserError, match="upgrade plainres"):
        folder.read()


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.STALE])
def test_a_running_run_that_nobody_holds_is_stale(folder, status):
    folder.write({"status": status})
    assert folder.status() == (Status.STALE if status is Status.RUNNING else status)
    assert folder.read()["status"] == status


def test_a_running_run_is_running_while_a_process_holds_it(folder, held_elsewhere):
    folder.write({"status": Status.RUNNING})
    assert folder.status() is Status.RUNNING
    held_elsewhere.kill()
    held_elsewhere.wait()
    assert folder.status() is Status.STALE


def test_the_lock_excludes_another_process_and_dies_with_it(folder, held_elsewhere):
    assert folder.is_locked() and not folder.acquire()
    held_elsewhere.kill()
    held_elsewhere.wait()
    assert not folder.is_locked() and folder.acquire()
    folder.release()


def test_the_lock_excludes_another_object_of_this_process(folder, study):
    other = study.run_folder(folder.name)
    assert folder.acquire() and other.is_locked() and not other.acquire()
    folder.release()
    assert other.acquire()
    other.release()


def test_the_holder_sees_its_own_run_as_running(folder):
    assert folder.acquire()
    folder.write({"status": Status.RUNNING})
    assert folder.is_locked() and folder.status() is Status.RUNNING
    folder.release()


def test_progress_comes_and_goes(folder):
    assert folder.read_progress() == {}
    folder.path.mkdir(parents=True)
    folder.write_progress(step=3, loss=None)
    assert folder.read_progress() == {"step": 3, "loss": None}
    (folder.path / "progress.json").write_bytes(b"{to")
    assert folder.read_progress() == {}
    folder.clear_progress()
    assert list(folder.path.iterdir()) == []
    folder.clear_progress()


def test_finished_files_are_json_for_people(folder):
    folder.write({"status": "planned"})
    text = (folder.path / "run.json").read_bytes()
    assert text.endswith(b"}\n") and text.count(b"\n") > 2 and orjson.loads(text)


def test_folders_know_their_files(tmp_path):
    folder = RunFolder(tmp_path / "x")
    assert folder.name == "x" and folder.checkpoint == tmp_path / "x" / "checkpoint.pt"
