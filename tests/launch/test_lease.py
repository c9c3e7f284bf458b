"""GPU slots, with devices that are not there: processes that hold them, die with them, and wait for them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from plainres.errors import Interrupted
from plainres.launch.lease import lease, slots_folder, visible_gpus

FAKE = {"cuda:0": "a", "cuda:1": "b"}
# Holds a slot for a moment and writes down which, from when to when.
HOLDER = """
import sys, time
from pathlib import Path
from plainres.launch.lease import lease
with lease({"cuda:0": "a", "cuda:1": "b"}, 2, Path(sys.argv[1]), lambda: False) as device:
    began = time.monotonic()
    time.sleep(float(sys.argv[2]))
    print(device, began, time.monotonic(), flush=True)
"""


def start(folder: Path, seconds: float) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )


def test_no_device_has_more_jobs_than_it_may(tmp_path: Path) -> None:
    processes = [start(tmp_path, 0.4) for _ in range(9)]
    held = [process.communicate(timeout=60)[0].split() for process in processes]
    for device in FAKE:
        spans = [(float(began), float(ended)) for name, began, ended in held if name == device]
        assert spans, "both devices are used"
        assert max(sum(b <= began < e for b, e in spans) for began, _ in spans) <= 2
    assert len(held) == 9


def test_a_killed_process_frees_its_slot(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with lease({"cuda:0": "a"}, 1, tmp_path, lambda: False):
            pass
        time.sleep(0.01)
        try:
            with lease({"cuda:0": "a"}, 1, tmp_path, lambda: True):
                pass
        except Interrupted:  # the process holds it
            break
    process.kill()
    process.communicate()
    with lease({"cuda:0": "a"}, 1, tmp_path, lambda: True) as device:
        assert device == "cuda:0"


def test_devices_fill_evenly(tmp_path: Path) -> None:
    def take() -> lease:
        return lease(FAKE, 2, tmp_path, lambda: True)

    with take() as one, take() as two, take() as three, take() as four:
        assert [one, two, three, four] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
        with pytest.raises(Interrupted), take():
            pass


def test_which_devices_a_run_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus("auto", 2) == visible_gpus("cuda", 2) == {"cuda:0": "0", "cuda:1": "1"}
    assert visible_gpus("cuda:1", 2) == {"cuda:1": "1"}
    assert visible_gpus("cpu", 2) == visible_gpus("auto", 0) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5")
    assert visible_gpus("cuda", 2) == {"cuda:0": "3", "cuda:1": "GPU-5"}, "two sweeps mean one device by one name"
    assert slots_folder().is_absolute()
