"""What the live view is told of a run, and how seldom."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from plainres import progress, transfer
from plainres.progress import PROGRESS_SECONDS, Progress
from plainres.transfer import LateScalar, to_device


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def folder(study):
    made = study.run_folder("one")
    made.path.mkdir(parents=True)
    return made


def test_steps_are_written_twice_a_second_at_most(folder, clock):
    told = Progress(folder, 9, "cpu")
    told.step(1, torch.tensor(2.0), None)
    assert (folder.read_progress()["step"], folder.read_progress()["loss"]) == (1, 2.0)
    clock[0] += PROGRESS_SECONDS * 0.9
    told.step(2, torch.tensor(1.0), None)
    assert folder.read_progress()["step"] == 1
    clock[0] += PROGRESS_SECONDS * 0.2
    told.step(3, torch.tensor(math.inf), {"train_error": 0.5})
    found = folder.read_progress()
    assert (found["step"], found["steps"], found["loss"], found["train_error"]) == (3, 9, None, 0.5)


def test_an_evaluation_is_written_a_little_sooner(folder, clock):
    told = Progress(folder, 9, "cpu")
    told.step(1, torch.tensor(2.0), None)
    clock[0] += PROGRESS_SECONDS / 4
    told.evaluated(2, {"train_error": 0.5})
    assert folder.read_progress()["step"] == 1
    clock[0] += PROGRESS_SECONDS / 4
    told.evaluated(3, {"train_error": 0.25})
    assert folder.read_progress()["step"] == 3 and folder.read_progress()["train_error"] == 0.25
    assert folder.read_progress()["loss"] == 2.0


def test_a_gpu_answers_an_earlier_question(monkeypatch):
    """With an event that stands in for the device's."""

    class Event:
        arrived = False

        def record(self, stream):
            assert stream == "the stream of cpu"

        def query(self):
            return Event.arrived

    monkeypatch.setattr(transfer.torch.cuda, "Event", Event)
    monkeypatch.setattr(transfer.torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    late = LateScalar("cpu")
    late._on_gpu = True
    assert late.ask(torch.tensor(1.0)) is None
    assert late.ask(torch.tensor(2.0)) is None, "not there yet, and not asked again"
    Event.arrived = True
    assert late.ask(torch.tensor(3.0)) == 1.0 and late.ask(torch.tensor(4.0)) == 3.0


def test_tensors_on_a_cpu_stay_where_they_are():
    x = torch.randn(3)
    assert to_device(x, "cpu") is x and to_device(x, "meta").device.type == "meta"


def test_readings_of_a_gpu_are_copied_behind_what_is_queued_there(monkeypatch):
    """With torch's fake tensors, which have a device and no numbers."""
    said = []

    class Event:
        def record(self, stream):
            said.append(stream)

        def synchronize(self):
            said.append("waited")

    monkeypatch.setattr(transfer.torch.cuda, "Event", Event)
    monkeypatch.setattr(transfer.torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    with FakeTensorMode():
        packed = transfer.pack([torch.empty(2, 3, device="cuda:1"), torch.empty((), device="cuda:1")])
        arriving = transfer.Arriving(packed)
    assert packed.shape == (7,) and str(packed.device) == "cuda:1"
    assert said == ["the stream of cuda:1"], "and nobody waits yet"
    assert arriving._host.device.type == "cpu" and arriving._host.shape == (7,)
    arriving._host = torch.arange(7.0)
    assert arriving.array().tolist() == list(range(7)) and said[1:] == ["waited"]
