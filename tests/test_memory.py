"""What a step frees is there for the next one; what a run leaves goes back to the system."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, torch
from plainres import memory

def step():
    return [torch.ones(4_000_000) for _ in range(4)]  # 16 MB each

def faults_of_steps():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024

without = faults_of_steps()
memory.keep_freed()
kept = faults_of_steps()
held = resident()
memory.keep_freed()
print(without, kept, held - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_pages_are_kept_between_steps_and_given_back_between_runs() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    without, kept, given_back = map(float, done.stdout.split())
    pages = 5 * 4 * 16e6 / 4096
    assert without > 0.2 * pages, "glibc does not give memory back by itself any more: keep_freed can go"
    assert kept < 0.1 * pages
    assert given_back > 50, "MiB"
