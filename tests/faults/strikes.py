"""The failures, each a real one. A strike gets the platform and a training job."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from drivetrain_schemas.topics import SERVICES
from tests.standalone_platform import StandalonePlatform
from tests.training_job import STRIKE_BEFORE, TrainingJob


def kill(pids: Iterable[int]) -> None:
    """kill -9, all at once."""
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_part_during(
    job: TrainingJob, part: str, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Kill one part of the platform: the same ranks make steps while it is down.

    `meanwhile` is called right after the kill and does not wait.
    """
    ranks, step = job.ranks(), job.step()
    assert step < STRIKE_BEFORE, f"struck too late: step {step}"
    old = job.platform.pid(part)
    kill([old])
    meanwhile()
    job.wait_step(step + 5)
    assert job.ranks() == ranks
    job.platform.wait_ready(part, other_than=old)


def kill_every_service(job: TrainingJob) -> None:
    for service in SERVICES:
        kill_part_during(job, service)


def kill_rank(job: TrainingJob) -> None:
    """The rank of the last pod."""
    kill(job.ranks()[-1:])


def kill_shim(job: TrainingJob) -> None:
    kill(job.shims()[-1:])


def kill_gang(job: TrainingJob) -> None:
    kill([*job.ranks(), *job.shims()])


def kill_everything(platform: StandalonePlatform, job: TrainingJob) -> None:
    platform.kill_everything(*job.ranks(), *job.shims())
    platform.start()
