"""What sinks hear, and that nothing they do reaches training."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from plainres.errors import UserError
from plainres.launch.groups import execute_group
from plainres.pair import make_spec
from plainres.rows import read_table
from plainres.schema import TrackerConf
from plainres.store import Status
from plainres.tracking import client
from plainres.tracking.sink import check_tracker, mark_path, sink_names

SINKS = '''
import os, time
from pathlib import Path

class Notes:
    """Writes what it hears into the run's folder."""
    def __init__(self, record, folder):
        self.file = (folder / "notes.txt").open("w")
        self.say("built", record["status"], record["layout"] is not None)
    def say(self, *words):
        print(*words, file=self.file, flush=True)
    def write(self, steps, layers):
        self.say("steps", *[f"{row['step']}{row['kind'][0]}" for row in steps])
        self.say("layers", *[row["step"] for row in layers])
    def finish(self, record):
        self.say("finished", record["status"])

class Other(Notes):
    def __init__(self, record, folder):
        self.file = (folder / "other.txt").open("w")

class FailsAtInit(Notes):
    def __init__(self, record, folder):
        raise ValueError("no such account\\nsecond line")

class FailsAtWrite(Notes):
    def write(self, steps, layers):
        raise ConnectionError("gone")

class Dies(Notes):
    def write(self, steps, layers):
        os._exit(9)

class Hangs(Notes):
    def write(self, steps, layers):
        (Path.cwd() / "helper.pid").write_text(str(os.getpid()))
        time.sleep(1000)
'''
pytestmark = pytest.mark.usefixtures("helpers")


@pytest.fixture
def conf_with(own_module, make_conf, monkeypatch, tmp_path):
    """conf_with("Notes", ...): a small run with these sinks."""
    own_module("sinks", SINKS)
    monkeypatch.chdir(tmp_path)

    def make(*names, **values):
        own = [f"sinks:{name}" for name in names]
        return make_conf("plain", {"tracker.own": own, "trainer.checkpoint_every": 4} | values)

    return make


def untracked(folder, name):
    mark = mark_path(folder.path, f"sinks:{name}")
    return mark.read_text() if mark.exists() else None


def wait(study, folder, conf):
    return client.await_sinks(study.path, [folder.path], sink_names(conf.tracker))


def heard(folder, file="notes.txt"):
    return [line.split() for line in (folder.path / file).read_text().splitlines()]


def rows_said(lines):
    return tuple([word for line in lines if line[0] == table for word in line[1:]] for table in ("steps", "layers"))


def test_a_sink_hears_every_row_once_whichever_way_the_run_ends(conf_with, execute, study):
    conf = conf_with("Notes", "Other")
    outcome, folder = execute(conf, stop_at=6)
    assert outcome.status is Status.INTERRUPTED and wait(study, folder, conf) == []
    first = heard(folder)
    assert (first[0][0], first[0][2], first[-1]) == ("built", "True", ["finished", "interrupted"])
    at_6 = rows_said(first)
    outcome, folder = execute(conf)
    assert outcome.status is Status.COMPLETE and wait(study, folder, conf) == []
    again = heard(folder)
    assert (again[0][0], again[-1]) == ("built", ["finished", "complete"])
    layout = folder.read()["layout"]
    tables = {name: read_table(folder, name, layout).to_pylist() for name in ("steps", "layers")}
    steps = list(dict.fromkeys(f"{row['step']}{row['kind'][0]}" for row in tables["steps"]))
    layers = list(dict.fromkeys(str(row["step"]) for row in tables["layers"]))
    assert rows_said(again) == (steps, layers) == rows_said(heard(folder, "other.txt")), "from the first row again"
    assert at_6 == tuple([word for word in words if int(word.rstrip("eu")) < 6] for words in (steps, layers))
    assert untracked(folder, "Notes") is None


def test_sinks_hear_replicas_whole_and_one_after_the_other(conf_with, study):
    conf = conf_with("Notes", **{"trainer.replicas": 2})
    specs = [make_spec(replace(conf, seed=seed), "cpu") for seed in (0, 1)]
    folders = [study.run_folder(spec.name) for spec in specs]
    calls = iter(range(1000))
    outcomes = execute_group(specs, study, lambda: next(calls) > 12)
    assert {o.status for o in outcomes} == {Status.INTERRUPTED}
    assert [wait(study, folder, conf) for folder in folders] == [[], []]
    for folder in folders:
        lines = heard(folder)
        assert (lines[0][:2], lines[-1]) == (["built", "interrupted"], ["finished", "interrupted"])
        assert 0 < len(rows_said(lines)[0]) < 10
    execute_group(specs, study, lambda: False)
    assert [wait(study, folder, conf) for folder in folders] == [[], []]
    for folder in folders:
        lines, table = heard(folder), read_table(folder, "steps", {}).to_pylist()
        assert (lines[0][:2], lines[-1]) == (["built", "complete"], ["finished", "complete"])
        assert rows_said(lines)[0] == list(dict.fromkeys(f"{row['step']}{row['kind'][0]}" for row in table))


def test_a_run_that_diverges_has_all_its_rows_heard(conf_with, execute, study):
    conf = conf_with("Notes", **{"optimizer.lr": 1e30, "schedule.warmup_steps": 0})
    outcome, folder = execute(conf)
    assert outcome.status is Status.DIVERGED and wait(study, folder, conf) == []
    lines = heard(folder)
    assert lines[-1] == ["finished", "diverged"]
    steps = {row["step"] for row in read_table(folder, "steps", {}).to_pylist()}
    assert {int(word[:-1]) for word in rows_said(lines)[0]} == steps != set()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("FailsAtInit", "ValueError: no such account", marks=pytest.mark.slow),
        ("FailsAtWrite", "ConnectionError: gone"),
    ],
)
def test_a_sink_that_fails_costs_one_line_and_the_next_run_has_a_fresh_one(conf_with, execute, study, name, why):
    for seed in range(2):
        conf = conf_with(name, "Other", seed=seed)
        outcome, folder = execute(conf)
        assert outcome.status is Status.COMPLETE and not outcome.message
        (line,) = wait(study, folder, conf)
        assert line.startswith(f"tracker sinks:{name}: 1 of 1 runs have not arrived there in full ({why});")
        assert untracked(folder, name).startswith(why)
        assert heard(folder, "other.txt")[-1] == ["finished", "complete"], "the sink beside it hears all the same"


@pytest.mark.slow
def test_a_sink_that_hangs_is_not_waited_for(conf_with, execute, study, monkeypatch, tmp_path):
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.5)
    conf = conf_with("Hangs")
    outcome, folder = execute(conf)
    assert outcome.status is Status.COMPLETE
    began = time.monotonic()
    (line,) = wait(study, folder, conf)
    assert time.monotonic() - began < 5 and line.startswith("tracker sinks:Hangs: 1 of 1 runs have not arrived")
    until = time.monotonic() + 20
    while not (tmp_path / "helper.pid").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(int((tmp_path / "helper.pid").read_text()), signal.SIGKILL)


def test_a_full_pipe_is_no_wait(conf_with, execute, study):
    conf = conf_with("Hangs")
    tracker = client.Tracker(conf.tracker, study.path)
    tracker._begin({"no": "such message"})
    helper = client.open_helper("sinks:Hangs")._process.pid
    os.kill(helper, signal.SIGSTOP)
    began = time.monotonic()
    for _ in range(3000):  # more than a pipe holds
        tracker.on_checkpoint({"steps": 10**9, "layers": 10**9})
    assert time.monotonic() - began < 2
    os.kill(helper, signal.SIGKILL)
    assert "it does not listen" in mark_path(study.path, "sinks:Hangs").read_text()


@pytest.mark.slow
def test_a_helper_that_is_killed_is_replaced_and_told_everything(conf_with, execute, study, monkeypatch):
    conf = conf_with("Notes")
    tell, killed = client.Tracker.on_checkpoint, []

    def kill_first(self, lengths):
        if not killed:
            killed.append(client.open_helper("sinks:Notes")._process.pid)
            os.kill(killed[0], signal.SIGKILL)
            os.waitpid(killed[0], 0)
        tell(self, lengths)

    monkeypatch.setattr(client.Tracker, "on_checkpoint", kill_first)
    _, folder = execute(conf)
    assert wait(study, folder, conf) == []
    table = read_table(folder, "steps", folder.read()["layout"]).to_pylist()
    assert rows_said(heard(folder))[0] == list(dict.fromkeys(f"{row['step']}{row['kind'][0]}" for row in table))


@pytest.mark.slow
def test_a_sink_that_dies_again_and_again_is_given_up(conf_with, execute, study):
    texts = []
    for seed in range(client.MOST_STARTS + 2):
        _, folder = execute(conf_with("Dies", seed=seed))
        texts.append(untracked(folder, "Dies"))
        if helper := client._helpers.get("sinks:Dies"):
            os.waitpid(helper._process.pid, 0)
    assert "given up" in texts[-1] and "given up" not in texts[0]


def test_a_sink_without_the_two_methods_is_refused(conf_with, own_module):
    own_module("others", "class Half:\n    def write(self, steps, layers): pass\nwhat = 1")
    for text, words in {
        "others:Half": "must be a class with the methods write and finish",
        "others:what": "must be a class with",
        "others:None_": "others has no None_; it has Half",
        "nowhere:X": "cannot import nowhere",
        "others": "of the form package.module:Class",
    }.items():
        with pytest.raises(UserError) as caught:
            check_tracker(TrackerConf(own=[text]))
        assert str(caught.value).startswith(f"tracker.own={text}: ") and words in str(caught.value)


def test_wandb_mode_is_checked_before_anything_is_trained(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "ofline")
    with pytest.raises(UserError, match=r"^WANDB_MODE=ofline: must be online, offline or disabled"):
        check_tracker(TrackerConf())


@pytest.mark.parametrize(("variable", "names"), [("disabled", []), ("offline", ["wandb"]), ("", ["wandb"])])
def test_wandb_can_be_switched_off_by_its_own_variable(monkeypatch, variable, names):
    monkeypatch.setenv("WANDB_MODE", variable)
    assert sink_names(TrackerConf()) == names


def test_nothing_of_wandb_is_imported_by_a_training_process():
    code = "import sys, plainres.job, plainres.launch.sweep; print('wandb' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
