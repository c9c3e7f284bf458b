"""Named random draws. Nothing here, or anywhere in plainres, leaves torch's global generator moved.

Every draw has a generator of its own, seeded by SHA-256 of (seed, name): the initial value of a parameter
depends on its name alone, the order of an epoch on its number alone. So both arms of a pair draw the same
numbers whatever other parameters they have, and a resumed run needs no generator state.
"""

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from plainres.options import Precision


def generator(seed: int, *name: str | int) -> torch.Generator:
    """A CPU generator whose stream is a function of ``seed`` and ``name`` only."""
    text = "/".join([str(seed), *map(str, name)])
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@contextmanager
def global_draws(seed: int, *name: str | int) -> Iterator[None]:
    """For code that is not ours and draws from the global generators: they are seeded by name, then put back."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    start = generator(seed, *name).initial_seed()
    random.seed(start)
    np.random.seed(start % 2**32)
    torch.default_generator.manual_seed(start)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def epoch_order(seed: int, epoch: int, num_examples: int) -> torch.Tensor:
    """Order of the training examples in one epoch: (num_examples,) int64, a function of seed and epoch."""
    return torch.randperm(num_examples, generator=generator(seed, "order", epoch))


def evaluation_order(num_examples: int) -> torch.Tensor:
    """The fixed permutation of ``train_error_batchstats``: one for all runs of a data set."""
    return torch.randperm(num_examples, generator=generator(0, "evaluation order"))


def set_determinism(
    threads: int, deterministic: bool, device_kind: str, precision: Precision = Precision.float32
) -> None:
    """Reset every process-wide setting that moves a bit, at the start of each run.

    A warm worker trains many runs: nothing of the one before may leak into the next.
    """
    if device_kind == "cuda" and deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set at import
    # torch.use_deterministic_algorithms is this call, after importing the compiler, which costs 1.3 s a process.
    torch._C._set_deterministic_algorithms(deterministic, warn_only=False)
    torch.backends.cudnn.benchmark = False
    tf32 = precision is Precision.tf32
    torch.backends.cudnn.allow_tf32 = tf32  # torch's default is True: convolutions would round to 10 bits
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.set_default_dtype(torch.float32)


@contextmanager
def process_settings_kept() -> Iterator[None]:
    """Puts back what ``set_determinism`` sets for the whole process, and the global generators: it may be a user's.

    Within, numbers are float32, whatever they were before.
    """
    cudnn, own = torch.backends.cudnn, torch.utils.deterministic
    draws = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads, dtype, matmul = torch.get_num_threads(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
    strict, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fill = own.fill_uninitialized_memory  # type: ignore[attr-defined]  # set at import
    benchmark, allow_tf32 = cudnn.benchmark, cudnn.allow_tf32
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        random.setstate(draws[0])
        np.random.set_state(draws[1])
        torch.set_rng_state(draws[2])
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(matmul)
        torch._C._set_deterministic_algorithms(strict, warn_only=warn_only)
        own.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        cudnn.benchmark, cudnn.allow_tf32 = benchmark, allow_tf32
