"""A series of failures on one platform; `make test-faults` runs every scenario.

The tests are independent and run in any order.
"""

import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform

pytestmark = pytest.mark.timeout(600)


def test_every_service_is_killed_in_one_job(submit: Submit, check_all: CheckAll) -> None:
    job = submit(hyperparameters={"pause_seconds": 0.25})
    job.wait_for_strike()
    strikes.kill_every_service(job)
    check_all(job, attempts=1)


@pytest.mark.parametrize("part", ["kafka", "postgres"])
def test_the_infrastructure_is_killed(part: str, submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_part_during(job, part)
    check_all(job, attempts=1)


def test_the_whole_gang_is_killed(submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_gang(job)
    check_all(job, attempts=2)


def test_everything_is_killed_at_once(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_everything(platform, job)
    check_all(job, attempts=2)
