"""The platform is struck, the training is not: attempt 1 all the way, same processes.

A submission made while a part is away is neither lost nor doubled: it is sent as clients send it,
the same request again until it is answered, and becomes one job that succeeds once.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from drivetrain_schemas.topics import SERVICES
from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(900)
Another = Callable[[], Future[TrainingJob]]


@pytest.fixture
def another(platform: StandalonePlatform) -> Iterator[Another]:
    """Submits another job beside what the test does; the same one, however often it is called."""
    request_id = f"meanwhile-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(1) as executor:
        yield lambda: executor.submit(TrainingJob.submit_until_taken, platform, request_id)


@pytest.mark.parametrize("part", [*SERVICES, "kafka", "postgres"])
def test_a_part_is_killed_and_a_submission_comes_meanwhile(
    part: str, submit: Submit, another: Another, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_part_during(job, part, another)
    other = another().result()
    check_all(job, attempts=1)
    check_all(other, attempts=1)


def test_the_broker_stands_still_for_a_minute_and_a_submission_comes_meanwhile(
    platform: StandalonePlatform, submit: Submit, another: Another, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    ranks, step = job.ranks(), job.step()
    broker = platform.pid("kafka")
    os.kill(broker, signal.SIGSTOP)
    another()
    try:
        job.wait_step(step + 50)
        assert job.ranks() == ranks
        time.sleep(60)  # the failure itself lasts this long
    finally:
        os.kill(broker, signal.SIGCONT)
    other = another().result()
    check_all(job, attempts=1)
    check_all(other, attempts=1)
