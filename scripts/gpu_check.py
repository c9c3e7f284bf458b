"""The work of gpu_check.sh."""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# Two depths of cifar_resnet, both arms; on a CPU as little as shows that all of it works.
DEPTHS, STEPS, WARM_UP, EXAMPLES, BATCH = ("20,110", 150, 20, 2560, 128) if CUDA else ("8,14", 4, 2, 160, 32)
SWEEP = [
    "-m", "model=cifar_resnet", f"depth={DEPTHS}", "connection=plain,residual", "seed=0", "data=synthetic",
    "data.size=32", f"data.examples={EXAMPLES}", "data.augment=crop_flip", "tracker=none", "probe=off",
    f"trainer.steps={STEPS}", f"trainer.batch={BATCH}", f"schedule.warmup_steps={WARM_UP}", f"trainer.device={DEVICE}",
    f"trainer.eval_every={STEPS}", f"trainer.batchstats_every={STEPS}",
]  # fmt: skip
MODES = {
    "float32": [],
    "tf32": ["trainer.precision=tf32"],
    "bf16": ["trainer.precision=bf16"],
    "fp16": ["trainer.precision=fp16"],
    "compile=blocks": ["trainer.compile=blocks"],
    "cuda_graph": ["trainer.cuda_graph=true"],
    "cuda_graph, bf16": ["trainer.cuda_graph=true", "trainer.precision=bf16"],
}
ONLY_CUDA = ("tf32", "fp16", "cuda_graph", "cuda_graph, bf16")


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "results" / "gpu_check.json"
    console, began = Console(), time.monotonic()
    console.print(f"device: {torch.cuda.get_device_name() if CUDA else 'no CUDA device here: on the CPU'}")
    with tempfile.TemporaryDirectory() as place:
        tests = gpu_tests()
        console.print(f"gpu tests: {tests}")
        bench = benchmark(Path(place))
        modes = [mode(name, Path(place), console) for name in MODES if CUDA or name not in ONLY_CUDA]
    left_out = [] if CUDA else [f"mode {name}: needs CUDA" for name in ONLY_CUDA]
    found = {
        "commit": _text("git", "rev-parse", "HEAD"), "device": DEVICE, "tests": tests, **bench, "modes": modes,
        "left_out": left_out, "seconds": round(time.monotonic() - began),
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")
    console.print(table(found))
    for line in left_out:
        console.print(f"left out: {line}")
    console.print(f"{found['seconds']} s; written to {out}", soft_wrap=True)
    sys.exit("failed" in tests or any("error" in one for one in modes))


def gpu_tests() -> str:
    """The last line of pytest: without a GPU every test is skipped with its reason."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip().splitlines()[-1].strip("= ")


def benchmark(place: Path) -> dict[str, Any]:
    """Machine and rows of the benchmark, shortened: it shares six minutes."""
    file, share = place / "bench.json", "0.5" if CUDA else "0.1"
    command = [sys.executable, "benchmarks/bench.py", "--device", DEVICE, "--rounds", "5", "--share", share]
    command += ["--only", "step", "probes", "images", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"machine": {}, "rows": [], "bench_error": done.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def mode(name: str, place: Path, console: Console) -> dict[str, Any]:
    """The sweep in one mode: milliseconds a step and the final training loss of each run."""
    study = re.sub(r"\W+", "_", name)
    command = [sys.executable, "-m", "run", *SWEEP, *MODES[name], f"study={study}", f"results_dir={place}"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    console.print(f"{name}: {seconds:.0f} s")
    if done.returncode:
        return {"name": name, "error": (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}
    runs = {}
    for file in sorted((place / study / "runs").glob("*/run.json")):
        record = json.loads(file.read_text())
        key = f"{record['config']['connection']['name']} {record['config']['depth']}"
        runs[key] = {
            "ms_a_step": 1000 * record["seconds"]["train"] / STEPS, "train_loss": record["final"]["train_loss"],
            "peak_memory_mib": record["peak_memory_mib"],
        }  # fmt: skip
    return {"name": name, "seconds": seconds, "runs": runs}


def table(found: dict[str, Any]) -> Table:
    """Everything that was measured."""
    made = Table(title=f"{found['device']}, commit {found['commit'][:10]}, gpu tests: {found['tests']}", box=None)
    for column in ("what", "value", "target", "met"):
        made.add_column(column)
    for row in found["rows"]:
        met = {True: "yes", False: "NO", None: ""}[row["met"]]
        made.add_row(row["name"], f"{row['value']:.3g} {row['unit']}", row["target"], met)
    for one in found["modes"]:
        for key, run in one.get("runs", {}).items():
            loss = f"{run['ms_a_step']:.1f} ms a step, final loss {run['train_loss']:.3f}"
            made.add_row(f"cifar_resnet, {one['name']}: {key}", loss, "", "")
        if "error" in one:
            made.add_row(f"cifar_resnet, {one['name']}", one["error"], "", "NO")
    return made


def _text(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
