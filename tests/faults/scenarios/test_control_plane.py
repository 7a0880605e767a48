"""The platform is struck, the training is not: attempt 1 all the way, same processes."""

import os
import signal
import time

import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import SERVICES, StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("part", [*SERVICES, "kafka", "postgres"])
def test_a_part_is_killed(part: str, submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_part_during(job, part)
    check_all(job, attempts=1)


@pytest.mark.parametrize("part", ["scheduler", "kafka", "postgres"])
def test_a_submission_made_meanwhile_is_neither_lost_nor_doubled(
    part: str, platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    """The client does what clients do: it sends the same request again until it is answered."""
    job = submit()
    job.wait_for_strike()
    os.kill(platform.pid(part), signal.SIGKILL)

    def submit_again() -> TrainingJob | None:
        try:
            return TrainingJob.submit(platform, f"meanwhile-{part}")
        except (AssertionError, OSError) as error:
            print(f"not accepted yet: {error!r}")
            return None
        except Exception as error:
            if (
                "Connect" in type(error).__name__
                or "Read" in type(error).__name__
                or "HTTPStatus" in type(error).__name__
            ):
                return None
            raise

    other = wait_until(submit_again, "the submission is taken", seconds=60, every=0.2)
    platform.wait_ready(part)
    check_all(job, attempts=1)
    check_all(other, attempts=1)


def test_the_broker_stands_still_for_a_minute(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    ranks, step = job.ranks(), job.step()
    broker = platform.pid("kafka")
    os.kill(broker, signal.SIGSTOP)
    try:
        job.wait_step(step + 50)
        assert job.ranks() == ranks
        time.sleep(60)  # the failure itself lasts this long
    finally:
        os.kill(broker, signal.SIGCONT)
    check_all(job, attempts=1)
