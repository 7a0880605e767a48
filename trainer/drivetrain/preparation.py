"""What a run needs before its first step: its directory, its sink of samples, its metric."""

import logging
from pathlib import Path

from pydantic import ValidationError

from drivetrain import environment as environments
from drivetrain import local_runs, manifests
from drivetrain.environment import Environment
from drivetrain.errors import DrivetrainError
from drivetrain.parallel import World
from drivetrain.reporting import FileSink, ShimSink, Sink
from drivetrain.samples import LastAndBest
from drivetrain.storage import create_storage
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.jobs import CheckpointPolicy, Goal

_DEFAULT_EVERY_MINUTES = 5.0

_logger = logging.getLogger("drivetrain")


def settle_local(
    environment: Environment, world: World, experiment: local_runs.Experiment
) -> Environment:
    """A local run gets its directory from rank 0, and counts its attempts by its checkpoints."""
    if not environment.is_local:
        return environment
    choice = None
    if world.rank == 0:
        directory = local_runs.choose_directory(environment.job_directory / "runs", experiment)
        keys = create_storage(directory).list("checkpoints/")
        fence = manifests.highest_fence(key.removeprefix("checkpoints/") for key in keys)
        choice = (str(directory), fence + 1)
    directory_, attempt = world.share(choice)
    return environments.in_directory(environment, Path(directory_), attempt)


def make_policy(every_steps: int | None, every_minutes: float | None) -> CheckpointPolicy:
    """The script's checkpoint policy; every five minutes by default."""
    if every_steps is None and every_minutes is None:
        return CheckpointPolicy(every_minutes=_DEFAULT_EVERY_MINUTES)
    try:
        return CheckpointPolicy(every_steps=every_steps, every_minutes=every_minutes)
    except ValidationError as error:
        wrong = [f"checkpoint_{e.field} {e.message}: {e.fix}" for e in field_errors(error)]
        raise DrivetrainError("; ".join(wrong)) from None


def open_sink(environment: Environment) -> Sink:
    """The shim in a pod; a file in a local run."""
    if environment.control_socket is not None:
        return ShimSink(environment.control_socket)
    name = f"samples-{environment.rank}.jsonl" if environment.rank else "samples.jsonl"
    return FileSink(environment.directory / name)


def make_last_and_best(environment: Environment) -> LastAndBest:
    """The last and best values, with the job's metric."""
    metric = environment.job.metric if environment.job else None
    if metric is None:
        return LastAndBest()
    return LastAndBest(metric.name, is_maximized=metric.goal is Goal.MAXIMIZE)


def log_to_stderr() -> None:
    """Show the package's messages, unless the script has its own logging."""
    if logging.root.handlers or _logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("drivetrain: %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
