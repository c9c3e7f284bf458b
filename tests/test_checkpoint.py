import pickle
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F

from plainres import checkpoint
from plainres.checkpoint import Position
from plainres.optim import build_optimizer

POSITION = Position(
    step=3,
    running={"wrong": 5.0, "loss": 0.1 + 0.2, "examples": 48.0},
    lengths={"steps": 10, "layers": 20},
    last_eval={"step": 2, "train_error": 0.25},
    seconds={"train": 1.5},
)
PLACE = {"code_hash": "abc", "threads": "1"}
RULES = [{}, {"optimizer.name": "adamw", "optimizer.decay": "matrices"}]


@pytest.fixture(params=RULES, ids=["sgd", "adamw"])
def make_parts(request, make_conf, make_network, make_flat, tiny_data):
    def make(updates):
        conf = make_conf("residual", request.param)
        network = make_network(conf)
        flat = make_flat(network, conf)
        optimizer = build_optimizer(conf.optimizer, flat)
        train((network, flat, optimizer), tiny_data, updates)
        return network, flat, optimizer

    return make


def train(parts, data, updates):
    network, flat, optimizer = parts
    for _ in range(updates):
        flat.zero_grad()
        F.cross_entropy(network(data.train.images), data.train.y_N).backward()
        optimizer.step()


def bits(parts):
    network, flat, optimizer = parts
    states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().clone() for t in [flat.data, *network.buffers(), *states]]


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_round_trip_is_bit_equal_and_training_goes_on_as_if_nothing_happened(tmp_path, make_parts, tiny_data):
    path, parts, other = tmp_path / "checkpoint.pt", make_parts(3), make_parts(1)
    checkpoint.save(path, *parts, POSITION, PLACE)
    saved = bits(parts)
    train(parts, tiny_data, 2)
    content = checkpoint.read(path)
    position = checkpoint.restore(content, *other)
    assert asdict(position) == asdict(POSITION) and content["place"] == PLACE
    assert equal(bits(other), saved)
    train(other, tiny_data, 2)
    assert equal(bits(other), bits(parts))


def test_parameters_are_still_views_after_a_restore(tmp_path, make_parts):
    path, parts, other = tmp_path / "checkpoint.pt", make_parts(2), make_parts(0)
    checkpoint.save(path, *parts, POSITION, PLACE)
    checkpoint.restore(checkpoint.read(path), *other)
    assert torch.equal(other[0].head.weight, parts[0].head.weight)
    other[1].data.zero_()
    assert other[0].head.weight.abs().sum() == 0


@pytest.fixture
def saved(tmp_path, make_conf, make_network, make_flat):
    conf = make_conf()
    network = make_network(conf)
    flat = make_flat(network, conf)
    path = tmp_path / "checkpoint.pt"
    args = (network, flat, build_optimizer(conf.optimizer, flat), POSITION, PLACE)
    checkpoint.save(path, *args)
    return path, args


def test_loads_without_running_code(saved):
    assert torch.load(saved[0], weights_only=True)["format"] == checkpoint.FORMAT


def test_none_where_there_is_none(tmp_path):
    assert checkpoint.read(tmp_path / "checkpoint.pt") is None


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_no_checkpoint(saved, share):
    whole = saved[0].read_bytes()
    saved[0].write_bytes(whole[: int(share * len(whole))])
    assert checkpoint.read(saved[0]) is None


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 500, b"not a checkpoint", b"PK\x03\x04" + b"x" * 100, b"\x80\x02.", b"{}"]
)
def test_a_garbled_file_is_no_checkpoint(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    assert checkpoint.read(path) is None


def test_garbage_inside_a_whole_file_is_no_checkpoint_and_never_an_exception(saved):
    whole = bytearray(saved[0].read_bytes())
    begin = whole.index(b"data.pkl")
    draw = torch.Generator().manual_seed(0)
    for _ in range(40):
        broken = bytearray(whole)
        for place in torch.randint(begin, begin + 1500, (8,), generator=draw).tolist():
            broken[place] = (broken[place] + 37) % 256
        saved[0].write_bytes(broken)
        assert checkpoint.read(saved[0]) is None


def test_other_formats_are_no_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    for content in ({"format": checkpoint.FORMAT + 1}, {}, [1], torch.zeros(2)):
        torch.save(content, path)
        assert checkpoint.read(path) is None


class Malicious:
    def __reduce__(self):
        return exec, ("raise SystemExit('code of a checkpoint was run')",)


def test_a_file_that_would_run_code_is_no_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"format": checkpoint.FORMAT, "position": Malicious()}, path)
    assert checkpoint.read(path) is None
    path.write_bytes(pickle.dumps(Malicious()))
    assert checkpoint.read(path) is None


def test_a_flipped_bit_in_the_weights_is_noticed(saved):
    whole = bytearray(saved[0].read_bytes())
    weights = saved[1][1].data.detach().numpy().tobytes()
    whole[whole.index(weights) + 11] ^= 1
    saved[0].write_bytes(whole)
    assert checkpoint.read(saved[0]) is None


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_while_writing_leaves_the_old_file_whole(monkeypatch, saved, failing):
    path, (network, flat, optimizer, position, place) = saved
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, full)
    flat.data.zero_()
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, network, flat, optimizer, position, place)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.pt"]
