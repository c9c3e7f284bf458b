"""A sweep as one SLURM array job, a task for every run that has not ended, submitted by submitit.

    results/<study>/slurm/<job>.json                      whose task is whose, so that the same command finds them
    results/<study>/slurm/<job>_<task>_0_log.out, .err    what a task printed

Run ids, folders, locks, skip and resume are those of every launcher: the tasks find all they need in the run folders.
"""

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from plainres.errors import UserError
from plainres.job import Outcome
from plainres.launch.follow import Task, follow
from plainres.launch.queue import check_tools, queued_tasks
from plainres.launch.settings import SlurmConf
from plainres.pair import RunSpec
from plainres.store import FINISHED, Status, Study, read_json, write_json

if TYPE_CHECKING:
    from plainres.launch.sweep import Sweep


def check_slurm(settings: SlurmConf) -> None:
    """
    Raises:
        UserError: settings that are not allowed, no SLURM here, or submitit is not installed.
    """
    settings.check()
    check_tools()
    try:
        import submitit  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UserError("hydra/launcher=slurm: submitit is missing; pip install 'plainres[slurm]'") from error


def run_on_slurm(sweep: "Sweep", settings: SlurmConf) -> list[Outcome]:
    """Submit, and follow the runs to their ends.

    Raises:
        SystemExit: 0 once the runs are in the queue, with ``wait=false``.
        KeyboardInterrupt: the user does not want to wait any longer; the tasks go on.
        UserError: sbatch refused, or squeue does not answer.
    """
    tasks = submit(sweep, settings)
    if settings.wait:
        return follow(sweep, tasks, settings.parallel)
    text = f"plainres: not waiting: plainres status {sweep.study.path} shows the runs; the same command with"
    sweep.console.print(Text(f"{text} hydra.launcher.wait=true waits and writes the report"), soft_wrap=True)
    raise SystemExit(0)


def submit(sweep: "Sweep", settings: SlurmConf) -> dict[str, Task]:
    """Put every run that has not ended into the queue, unless an earlier command's task for it is still there.

    Returns:
        the tasks by name of run.

    Raises:
        UserError: sbatch refused.
    """
    tasks = _still_queued(sweep.study)
    names = {spec.name for spec in sweep.specs}
    tasks = {name: task for name, task in tasks.items() if name in names}
    if tasks:
        sweep.console.print(Text(f"plainres: {len(tasks)} runs are in the queue already"), soft_wrap=True)
    wanted = [s for s in sweep.specs if s.name not in tasks and _to_do(sweep.study, s)]
    if not wanted:
        return tasks
    folder = sweep.study.path / "slurm"
    new = submit_runs(_executor(folder, settings, wanted), sweep.study, wanted)
    job = next(iter(new.values())).job
    text = f"plainres: job {job}: {len(new)} runs, at most {settings.parallel} at a time; logs: {folder}"
    sweep.console.print(Text(text), soft_wrap=True)
    return tasks | new


def submit_runs(executor: Any, study: Study, specs: list[RunSpec]) -> dict[str, Task]:
    """Hand runs to an executor of submitit, and write down which task is whose.

    Raises:
        UserError: the scheduler's own words, in one line.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from plainres.launch.task import RunTask

    folder = study.path / "slurm"
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())
    attempts = {s.name: study.run_folder(s.name).read().get("attempts", 0) for s in specs}
    try:
        with redirect_stderr(io.StringIO()):  # submitit prints what it then raises
            jobs = executor.map_array(RunTask(), specs, [study] * len(specs))
    except (FailedJobError, FailedSubmissionError) as error:
        for left in set(folder.iterdir()) - before:
            left.unlink()
        lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines() if line.strip()]
        raise UserError(
            f"hydra/launcher=slurm: sbatch refused the job ({'; '.join(lines)}); nothing was submitted; correct "
            "hydra.launcher.partition, account, qos, constraint, time_min, mem_gb or gpus"
        ) from error
    tasks = {s.name: Task(str(job.job_id), attempts[s.name]) for s, job in zip(specs, jobs, strict=True)}
    for job in {t.job for t in tasks.values()}:
        mine = {name: {"task": t.id, "attempts": t.attempts} for name, t in tasks.items() if t.job == job}
        write_json(folder / f"{job}.json", {"job": job, "runs": mine})
    return tasks


def _to_do(study: Study, spec: RunSpec) -> bool:
    folder = study.run_folder(spec.name)
    return folder.status() not in (*FINISHED, Status.RUNNING)


def _still_queued(study: Study) -> dict[str, Task]:
    """Runs of this study that an earlier command put into the queue and that are still in it.

    Raises:
        UserError: the scheduler does not answer, so that nobody can know.
    """
    records = [read_json(path) for path in sorted((study.path / "slurm").glob("*.json"))]
    if not records:
        return {}
    queued = queued_tasks(record["job"] for record in records)
    if queued is None:
        raise UserError(
            "hydra/launcher=slurm: squeue does not answer, so it is not known which runs are in the queue; try again"
        )
    known = {name: Task(t["task"], t["attempts"]) for record in records for name, t in record["runs"].items()}
    return {name: task for name, task in known.items() if task.id in queued}


def _executor(folder: Path, settings: SlurmConf, specs: list[RunSpec]) -> Any:
    import submitit

    threads = max(s.conf.trainer.threads for s in specs)
    cpus = settings.cpus or threads
    given = {name: getattr(settings, name) for name in ("partition", "account", "qos", "constraint")}
    executor = submitit.SlurmExecutor(folder=folder, max_num_timeout=settings.requeues)
    executor.update_parameters(
        job_name=f"plainres-{folder.parent.name}",
        time=settings.time_min,
        mem=f"{round(1024 * settings.mem_gb)}M",
        cpus_per_task=cpus,
        srun_args=[f"--cpus-per-task={cpus}"],  # from SLURM 22.05 on, a step does not inherit it
        array_parallelism=settings.parallel,
        signal_delay_s=settings.grace_seconds,
        setup=[f"export OMP_NUM_THREADS={threads}", *settings.setup],
        additional_parameters={"requeue": True},  # for a node that is taken back
        **{name: value for name, value in given.items() if value is not None},
        **({"gpus_per_node": settings.gpus} if settings.gpus else {}),
    )
    return executor
