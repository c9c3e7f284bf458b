"""A synthetic study in the real format, for tests of everything that reads one. Values imitate the default study."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plainres.options import Shortcut
from plainres.pair import RunSpec, make_spec
from plainres.rows import RowWriter, compact, drop_lines
from plainres.schema import ConnectionConf, OptimizerConf, RunConf, ScheduleConf, StartConf, TrainerConf
from plainres.store import RunFolder, Status, Study

NUM_TRAIN, NUM_VAL, CHANCE = 1437, 360, 0.8977
PLAIN_ERROR = {10: 0.0, 20: 0.0, 50: 0.65, 100: 0.88}
CHECKS = ("parameters", "draws", "order", "operations", "optimizer", "schedule", "budget")
NO_ADDITION = "no addition: not a residual ratio"
SCRATCH = StartConf()
Key = tuple[str, int, int]  # connection, depth, seed


@dataclass(frozen=True)
class FakeStudy:
    """What to write. Keys of ``status`` are (connection, depth, seed); all others are complete.

    ``starts`` holds (depth of the source, noise) of further runs that are built from a trained network, at each deeper
    depth; they end at ``built_errors`` (connection, depth, seed), else at 0.
    """

    depths: Sequence[int] = (10, 20, 50, 100)
    connections: Sequence[str] = ("plain", "residual")
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    lrs: Sequence[float] = (0.03,)
    steps: int = 600
    probes: bool = True
    gains: bool = False
    status: dict[Key, Status] = field(default_factory=dict)
    missing: Collection[Key] = ()
    errors: dict[Key, float] = field(default_factory=dict)
    starts: Sequence[tuple[int, float]] = ()
    built_errors: dict[Key, float] = field(default_factory=dict)

    def write(self, results_dir: Path, name: str = "depth") -> Path:
        """Write the study and return its folder."""
        study = Study.create(results_dir, name)
        for lr in self.lrs:
            for depth in self.depths:
                for connection in self.connections:
                    for seed in self.seeds:
                        if (connection, depth, seed) not in self.missing:
                            self._write_run(study, lr, connection, depth, seed)
                            for start in self.starts:
                                if start[0] < depth:
                                    self._write_run(study, lr, connection, depth, seed, StartConf("built", *start))
        return study.path

    def _write_run(
        self, study: Study, lr: float, connection: str, depth: int, seed: int, start: StartConf = SCRATCH
    ) -> None:
        spec = self.spec(study.name, lr, connection, depth, seed, start)
        status = self.status.get((connection, depth, seed), Status.COMPLETE)
        folder = study.run_folder(spec.name)
        record = _head(spec, status, study.name)
        if status is Status.PLANNED:
            folder.write(record)
            return
        last = self.steps if status is Status.COMPLETE else self.steps // 3
        layout = layout_of(depth)
        error = self.errors.get((connection, depth, seed), _final_error(connection, depth, seed))
        if start.depth is not None:
            error = self.built_errors.get((connection, depth, seed), 0.0)
            source = self.spec(study.name, lr, connection, start.depth, seed)
            record["construction"] = construction_of(source, depth, start)
        steps = [step for step in eval_steps(self.steps) if step <= last]
        rows = [_evaluation(step, self.steps, error, depth, seed, start) for step in steps]
        record |= _body(spec, status, layout, rows, last)
        folder.write(record)
        _write_rows(folder, record, rows, probe_steps(self.steps, last) if self.probes else [], self.gains)
        if status is Status.FAILED:
            folder.traceback.write_text("Traceback: boom\n")
        if status in (Status.COMPLETE, Status.DIVERGED):
            compact(folder, layout)
            drop_lines(folder)

    def spec(
        self, study: str, lr: float, connection: str, depth: int, seed: int, start: StartConf = SCRATCH
    ) -> RunSpec:
        """The run spec of one cell."""
        shortcut = Shortcut.none if connection == "plain" else Shortcut.identity
        conf = RunConf(
            depth=depth,
            seed=seed,
            connection=ConnectionConf(connection, shortcut),
            start=start,
            optimizer=OptimizerConf(lr=lr),
            trainer=TrainerConf(steps=self.steps),
            schedule=replace(ScheduleConf(), warmup_steps=min(20, self.steps - 1)),
            study=study,
        )
        return make_spec(conf, "cpu")


def eval_steps(steps: int) -> list[int]:
    """0, 1, 2, 5, 10, 20, then every 50, the last included."""
    return sorted({s for s in (0, 1, 2, 5, 10, 20, *range(50, steps, 50), steps) if s <= steps})


def probe_steps(steps: int, last: int) -> list[int]:
    """0, powers of 2 up to 32, then every 50, the last included; those before ``last``."""
    wanted = {0, 1, 2, 4, 8, 16, 32, *range(50, steps, 50), steps - 1}
    return sorted(s for s in wanted if s < min(steps, last))


def learning_rate(step: int, steps: int) -> float:
    """Warm-up over 20 steps, then cosine."""
    return float(0.03 * min(1, (step + 1) / 20) * (1 + np.cos(np.pi * step / steps)) / 2)


def layout_of(depth: int) -> dict[str, list[str]]:
    """Names of the members of each scope."""
    blocks = (depth - 2) // 2
    branch = [f"blocks.{b}.branch.{i}" for b in range(blocks) for i in range(2)]
    normed = ["stem", *branch]
    return {
        "layer": [*[f"{name}.op.weight" for name in normed], "head.weight"],
        "norm_scale": [f"{name}.norm.weight" for name in normed],
        "norm_shift": [f"{name}.norm.bias" for name in normed],
        "bias": ["head.bias"],
        "block": [f"blocks.{b}" for b in range(blocks)],
        "trunk": ["trunk"],
    }


def _final_error(connection: str, depth: int, seed: int) -> float:
    noise = np.random.default_rng([depth, seed, len(connection)])
    if connection != "plain":
        return float(round(noise.choice([0, 0, 0, 1]) * (depth >= 100))) / NUM_TRAIN
    mean = float(np.interp(depth, list(PLAIN_ERROR), list(PLAIN_ERROR.values())))
    return float(np.clip(round((mean + noise.normal(0, 0.035) * (mean > 0.1)) * NUM_TRAIN), 0, NUM_TRAIN)) / NUM_TRAIN


def construction_of(source: RunSpec, depth: int, start: StartConf) -> dict[str, Any]:
    """The record of a network that was built from a source without error."""
    assert start.depth is not None
    return {
        "source": source.run_id,
        "source_name": source.name,
        "num_inserted_blocks": (depth - start.depth) // 2,
        "max_output": 12.0,
        "max_output_difference": 3e-5,
        "tolerance": 1e-3,
        "train_error": 0.0,
        "source_train_error": 0.0,
        "max_output_difference_batchstats": 0.5,
        "train_error_batchstats": 1 / NUM_TRAIN,
        "source_train_error_batchstats": 0.0,
        "perturbed_train_error": start.noise / 10 if start.noise else None,
    }


def _evaluation(step: int, steps: int, final: float, depth: int, seed: int, start: StartConf) -> dict[str, Any]:
    tau = steps * (0.02 + 0.0025 * depth * (1 + final))
    decay = float(np.exp(-step / tau) - np.exp(-steps / tau)) / float(1 - np.exp(-steps / tau))
    wobble = 0.02 * float(np.sin(seed * 5 + step / 40)) * decay
    train = float(np.clip(final + (CHANCE - final) * decay + wobble, 0, 1))
    if start.depth is not None:  # from the source's 0 to where it ends
        train = final * step / steps
    val = min(1.0, train + 0.03 * (1 - train))
    values = {
        "train_error": train,
        "train_loss": 2.3 * train + 0.01,
        "train_error_running": None if step == 0 else min(1.0, train * 1.02),
        "train_loss_running": None if step == 0 else 2.3 * train + 0.02,
        "val_error": val,
        "val_loss": 2.3 * val,
    }
    if step % 150 == 0:
        values["train_error_batchstats"] = train
    why = "no update yet"
    reasons = dict.fromkeys(("train_error_running", "train_loss_running"), why) if step == 0 else {}
    return {"step": step, "kind": "eval", "values": values, "reasons": reasons}


def _head(spec: RunSpec, status: Status, study: str) -> dict[str, Any]:
    c = spec.conf
    return {
        "run_id": spec.run_id,
        "pair_id": spec.pair_id,
        "name": spec.name,
        "study": study,
        "status": str(status),
        "config": {
            "depth": c.depth,
            "seed": c.seed,
            "connection": {"name": c.connection.name, "shortcut": str(c.connection.shortcut)},
            "model": {"name": str(c.model.name), "width": c.model.width},
            "trainer": {"steps": c.trainer.steps},
        },
        "identity": spec.identity,
    }


def _body(
    spec: RunSpec, status: Status, layout: dict[str, list[str]], rows: list[dict[str, Any]], last: int
) -> dict[str, Any]:
    depth = spec.conf.depth
    final = {"step": last} | rows[-1]["values"]
    failed = status in (Status.FAILED, Status.OOM)
    return {
        "num_parameters": 64 * 64 * depth,
        "layout": layout,
        "data": {
            "num_train": NUM_TRAIN,
            "num_val": NUM_VAL,
            "num_classes": 10,
            "chance_error": CHANCE,
            "sha256": "ab" * 32,
        },
        "audit": audit_of(spec),
        "environment": environment(),
        "seconds": {
            "train": 0.05 * depth,
            "evaluation": 0.3,
            "probes": 0.4,
            "store": 0.1,
            "tracker": 0.0,
            "total": 0.05 * depth + 0.9,
        },
        "peak_memory_mib": None,
        "peak_memory_reason": "not measured in a fake run",
        "final": final if status is Status.COMPLETE else None,
        "last_finite": final,
        "diverged": {"step": last - 1, "where": "forward", "layer": layout["layer"][3]}
        if status is Status.DIVERGED
        else None,
        "error": {"kind": "RuntimeError", "message": "boom", "traceback": "traceback.txt"} if failed else None,
        "created": "2026-11-29T12:00:00+00:00",
        "started": "2026-11-29T12:00:01+00:00",
        "finished": "2026-11-29T12:00:09+00:00",
    }


def environment() -> dict[str, Any]:
    """A fixed environment record."""
    return {
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty_hash": None,
        "code_hash": "feedc0de",
        "versions": {"python": "3.11.7", "torch": "2.14.1", "numpy": "2.4.6"},
        "device_kind": "cpu",
        "device_name": "Fake CPU",
        "threads": 1,
        "cpu": "Fake CPU",
        "hostname": "fake",
        "platform": "Linux",
        "precision": "float32",
    }


def signature(depth: int) -> dict[str, Any]:
    """What an audit compares; equal in both arms."""
    return {"num_parameters": 64 * 64 * depth} | {check: f"{check}-{depth}" for check in CHECKS[1:]}


def audit_of(spec: RunSpec) -> dict[str, Any]:
    """A clean audit, in which the residual arm declares its addition."""
    own = signature(spec.conf.depth)
    if spec.conf.connection.name == "plain":
        return {
            "partner": None,
            "signature": own,
            "partner_signature": None,
            "checks": [],
            "declared": [],
            "clean": True,
        }
    partner = FakeStudy(steps=spec.conf.trainer.steps).spec(
        spec.conf.study, spec.conf.optimizer.lr, "plain", spec.conf.depth, spec.conf.seed, spec.conf.start
    )
    checks = [{"check": c, "this": "a", "partner": "a", "result": "equal", "why": ""} for c in CHECKS]
    return {
        "partner": {"run_id": partner.run_id, "connection": "plain"},
        "signature": own,
        "partner_signature": dict(own),
        "checks": checks,
        "declared": ["adds the identity to the branch"],
        "clean": True,
    }


def _write_rows(
    folder: RunFolder, record: dict[str, Any], rows: list[dict[str, Any]], probes: list[int], gains: bool
) -> None:
    writer = RowWriter(folder)
    for row in rows:
        writer.write("steps", row)
    steps = record["identity"]["trainer.steps"]
    connection, depth, seed = (record["identity"][k] for k in ("connection.name", "depth", "seed"))
    for step in probes:
        values = {"lr": learning_rate(step, steps), "grad_norm_total": 1.0, "clip_coef": 1.0}
        writer.write("steps", {"step": step, "kind": "update", "values": values})
        row = _probe(step, connection == "plain", depth, seed)
        if gains:
            gain = block_gains(connection, depth, seed)
            row["values"]["block"] |= {"block_gain": gain} | jacobians(gain, connection)
            row["values"]["trunk"] = {"end_to_end_top": [float(np.prod(gain))], "end_to_end_bottom": [0.0]}
        writer.write("layers", row)
    writer.close()


def jacobians(gain: list[float], connection: str) -> dict[str, list[float]]:
    """Largest singular values twice the gains; smallest ones 0 but for the sums of residual blocks."""
    top, zeros = [2 * value for value in gain], [0.0] * len(gain)
    bottom = zeros if connection == "plain" else [0.3] * len(gain)
    names = ("jacobian_sum_top", "jacobian_sum_bottom", "jacobian_top", "jacobian_bottom")
    return dict(zip(names, (top, bottom, top, zeros), strict=True))


def block_gains(connection: str, depth: int, seed: int) -> list[float]:
    """About 1.3 a block in plain nets and 1 + 1/l in others; the same at every step."""
    blocks = np.arange((depth - 2) // 2)
    gain = np.full(len(blocks), 1.3) if connection == "plain" else 1 + 1 / (blocks + 2)
    noise = np.random.default_rng([depth, seed]).normal(0, 0.02, len(blocks))
    return [float(value) for value in (gain * np.exp(noise)).astype(np.float32)]


def _probe(step: int, plain: bool, depth: int, seed: int) -> dict[str, Any]:
    noise = np.random.default_rng([step, depth, seed, plain])
    layers, blocks = np.linspace(0, 1, depth), np.linspace(0, 1, (depth - 2) // 2)
    progress = np.log1p(step) / np.log1p(600)
    slope = (0.06 * depth if plain else 1.5) * (1 - 0.6 * progress)

    def jitter(x: np.ndarray) -> np.ndarray:
        return (x * np.exp(noise.normal(0, 0.12, x.shape))).astype(np.float32)

    grad = jitter(0.3 * np.exp(slope * (1 - layers)) * np.exp(-2 * progress))
    layer = {
        "grad_norm": grad,
        "grad_rms": grad / 64,
        "weight_norm": jitter(np.full(depth, 11.0)),
        "update_ratio": jitter(3e-3 * np.exp(slope * (1 - layers) - 3 * progress)),
        "weight_grad_product": 11 * grad,
        "response_std": [
            *jitter(np.full(depth - 1, 1.0) if plain else 0.9 - 0.6 * layers[:-1] * progress).tolist(),
            None,
        ],
        "dead_fraction": [*jitter(np.full(depth - 1, 0.2)).tolist(), None],
    }
    growth = np.full_like(blocks, 8.0) if plain else 8 * np.sqrt(1 + blocks * len(blocks))
    branch = jitter(np.full_like(blocks, 8.0))
    nothing: list[float | None] = [None] * len(blocks)
    ratio = nothing if plain else jitter(branch / growth).tolist()
    block = {
        "input_norm": jitter(growth),
        "shortcut_norm": nothing if plain else jitter(growth).tolist(),
        "branch_norm": branch,
        "output_norm": jitter(growth * (1 + 0.3 * blocks)),
        "branch_ratio": ratio,
        "branch_over_input": jitter(np.full_like(blocks, 1.0)).tolist() if plain else nothing,
    }
    norm = {"grad_norm": grad[:-1], "update_ratio": jitter(np.full(depth - 1, 1e-3))}
    return {
        "step": step,
        "values": {"layer": layer, "block": block, "norm_scale": norm, "norm_shift": norm},
        "reasons": {"layer": _reasons(layer), "block": _reasons(block)},
    }


def _reasons(values: dict[str, Any]) -> dict[str, dict[str, str]]:
    """A reason for every value that does not exist, as our own rows have."""
    missing = {name: [i for i, v in enumerate(row) if v is None] for name, row in values.items()}
    return {name: {str(i): NO_ADDITION for i in at} for name, at in missing.items() if at}
