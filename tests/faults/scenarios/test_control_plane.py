"""A part of the platform fails; training continues in attempt 1 with the same processes.

A submission made while a part is down is neither lost nor duplicated: like clients, the test
repeats the same request until there is a reply. It becomes one job that succeeds once.
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
    """Submits another job concurrently; repeated calls submit the same one."""
    request_id = f"meanwhile-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(1) as executor:
        yield lambda: executor.submit(TrainingJob.submit_until_taken, platform, request_id)


@pytest.mark.parametrize("part", [*SERVICES, "kafka", "postgres"])
def test_a_part_is_killed_during_a_submission(
    part: str, submit: Submit, another: Another, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_parts_during(job, [part], another)
    other = another().result()
    check_all(job, attempts=1)
    check_all(other, attempts=1)


def test_the_broker_is_stopped_for_a_minute_during_a_submission(
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
