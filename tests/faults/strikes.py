"""The failures, each a real one. A strike gets the platform and a training job."""

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterable, Sequence

from tests.standalone_platform import StandalonePlatform
from tests.training_job import STRIKE_BEFORE, TrainingJob


def kill(pids: Iterable[int]) -> None:
    """kill -9, all at once."""
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_parts_during(
    job: TrainingJob, parts: Sequence[str], meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Kill these parts of the platform at once: the same ranks make steps while they are down.

    `meanwhile` is called right after the kill and does not wait.
    """
    ranks, step = job.ranks(), job.step()
    assert step < STRIKE_BEFORE, f"struck too late: step {step}"
    old = {part: job.platform.pid(part) for part in parts}
    kill(old.values())
    meanwhile()
    job.wait_step(step + 5)
    assert job.ranks() == ranks
    for part, pid in old.items():
        job.platform.wait_ready(part, other_than=pid)


def kill_rank(job: TrainingJob) -> None:
    """The rank of the last pod."""
    kill(job.ranks()[-1:])


def kill_shim(job: TrainingJob) -> None:
    kill(job.shims()[-1:])


def kill_gang(job: TrainingJob) -> None:
    kill(job.processes())


def kill_everything(platform: StandalonePlatform, *jobs: TrainingJob) -> None:
    """kill -9 of the platform and of the newest attempt of each job, at once; then start it."""
    pods = [job.processes(job.attempts()[-1]) for job in jobs]
    platform.kill_everything(*itertools.chain(*pods))
    platform.start()
