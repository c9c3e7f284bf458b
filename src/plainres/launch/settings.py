"""What a launcher can be told (``hydra.launcher.NAME=``), typed for Hydra. None of it moves a bit of a run."""

from dataclasses import dataclass, field

from plainres.errors import require


@dataclass
class LocalConf:
    """Settings of ``hydra/launcher=local``.

    Attributes:
        jobs: parallel jobs; 0 for as many as this machine bears.
        jobs_per_gpu: that may train on one device at the same time.
    """

    _target_: str = "hydra_plugins.plainres.PlainresLauncher"
    jobs: int = 0
    jobs_per_gpu: int = 1

    def check(self) -> None:
        """
        Raises:
            UserError: a value that is not allowed.
        """
        require(self.jobs >= 0, "hydra.launcher.jobs", self.jobs, "a whole number of at least 0")
        per_gpu = self.jobs_per_gpu
        require(per_gpu >= 1, "hydra.launcher.jobs_per_gpu", per_gpu, "a whole number of at least 1")


@dataclass
class SlurmConf:
    """Settings of ``hydra/launcher=slurm``: of every task of the array job, a run each.

    Attributes:
        partition, account, qos, constraint: as sbatch takes them; null leaves them to the cluster.
        time_min: time limit in minutes.
        cpus: cores; 0 for ``trainer.threads``.
        gpus: 0, or 1 to train on a GPU.
        mem_gb: memory in GiB.
        parallel: tasks that may run at the same time.
        requeues: how often a run may go on after its time limit.
        grace_seconds: how long before the time limit a run is told to write its checkpoint.
        setup: lines of shell before a run, such as ``module load cuda``.
        wait: stay with the live view and write the report; false submits and returns.
    """

    _target_: str = "hydra_plugins.plainres.SlurmLauncher"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_min: int = 60
    cpus: int = 0
    gpus: int = 0
    mem_gb: float = 4.0
    parallel: int = 256
    requeues: int = 10
    grace_seconds: int = 120
    setup: list[str] = field(default_factory=list)
    wait: bool = True

    def check(self) -> None:
        """
        Raises:
            UserError: a value that is not allowed.
        """
        for name, least in {"time_min": 1, "cpus": 0, "parallel": 1, "requeues": 0, "grace_seconds": 1}.items():
            value = getattr(self, name)
            require(value >= least, f"hydra.launcher.{name}", value, f"a whole number of at least {least}")
        require(self.gpus in (0, 1), "hydra.launcher.gpus", self.gpus, "0 or 1", "a run trains on one device")
        require(self.mem_gb > 0, "hydra.launcher.mem_gb", self.mem_gb, "above 0")
        require(
            self.grace_seconds < 60 * self.time_min,
            "hydra.launcher.grace_seconds",
            self.grace_seconds,
            f"less than the time limit of {60 * self.time_min} seconds",
        )

    def device(self, wanted: str) -> str:
        """The device of a run: what its node will have, not what the submitting machine has.

        Args:
            wanted: ``trainer.device``.

        Raises:
            UserError: it contradicts ``gpus``.
        """
        has = "cuda" if self.gpus else "cpu"
        require(
            wanted in ("auto", has),
            "trainer.device",
            wanted,
            f"auto or {has} with hydra.launcher.gpus={self.gpus}",
            "hydra.launcher.gpus=1 asks for a GPU, 0 for none",
        )
        return has
