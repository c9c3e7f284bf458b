"""Where a run was made: code, versions, hardware. No torch at import."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

from plainres.options import Precision

PACKAGE = Path(__file__).parent
LIBRARIES = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "hydra-core")


# Parts of the package that only read what a run has written: they cannot move a bit of it.
READING_SIDE = ("analysis", "figures", "report", "theory", "tracking", "cli.py")


@lru_cache(maxsize=1)
def code_hash() -> str:
    """SHA-256 over the package's training code: its state with or without a repository."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] in READING_SIDE:
            continue
        digest.update(relative.as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _git(*args: str) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", str(PACKAGE), *args], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


@lru_cache(maxsize=1)
def commit_state() -> dict[str, Any]:
    """Commit, and a hash of what the working tree changes in code and configuration (None when clean)."""
    # An installed copy may lie inside some other repository: only tracked code has a commit.
    tracked = _git("ls-files", "--error-unmatch", "environment.py") is not None
    if not tracked:
        return {"commit": None, "dirty_hash": None, "reason": "not running from a git checkout of plainres"}
    root = _git("rev-parse", "--show-toplevel") or "."
    places = ("--", f"{root}/src", f"{root}/conf")
    changed = _git("status", "--porcelain", *places)
    diff = (changed or "") + (_git("diff", "HEAD", *places) or "")
    dirty = hashlib.sha256(diff.encode()).hexdigest()[:16] if changed else None
    return {"commit": _git("rev-parse", "HEAD"), "dirty_hash": dirty}


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that can move a number."""
    found = {"python": platform.python_version(), "plainres": importlib.metadata.version("plainres")}
    return found | {name: importlib.metadata.version(name) for name in LIBRARIES}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe(
    device: str, threads: int, precision: Precision = Precision.float32, engine: str = "eager"
) -> dict[str, Any]:
    """The environment that run.json keeps."""
    kind = device.partition(":")[0]
    return commit_state() | {
        "code_hash": code_hash(),
        "versions": versions(),
        "device_kind": kind,
        "device_name": _device_name(device),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "precision": str(precision),
        "engine": engine,
        "platform": platform.platform(),
    }


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return _cpu_name()


# What must be equal for two runs to be a pair, and for a resumed run to be bit-identical. Git's commit is not
# among them: it moves with every edit of a README, the hash of the code does not.
PLACE_KEYS = ("code_hash", "versions", "device_kind", "device_name", "threads", "precision", "engine")


def place(environment: dict[str, Any]) -> dict[str, str]:
    """The part of an environment that can move a bit, flat and as text."""
    flat: dict[str, str] = {}
    for key in PLACE_KEYS:
        value = environment.get(key)
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": str(v) for name, v in value.items()}
        else:
            flat[key] = str(value)
    return flat


def differences(mine: dict[str, str], other: dict[str, str]) -> list[str]:
    """Readable differences between two places."""
    names = sorted(mine.keys() | other.keys())
    return [f"{n}: {other.get(n)} there, {mine.get(n)} here" for n in names if mine.get(n) != other.get(n)]
