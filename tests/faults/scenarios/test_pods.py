"""The training itself is struck: attempt 2, resumed from a checkpoint."""

from collections.abc import Callable

import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(strikes.kill_rank, id="a rank"),
        pytest.param(strikes.kill_shim, id="a shim"),
        pytest.param(strikes.kill_gang, id="the gang"),
    ],
)
def test_a_pod_is_killed(
    strike: Callable[[TrainingJob], None], submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strike(job)
    check_all(job, attempts=2)


def test_everything_is_killed_at_once(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_everything(platform, job)
    check_all(job, attempts=2)


def test_the_platform_is_killed_and_the_pods_live(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    """The next start adopts what still runs."""
    job = submit()
    job.wait_for_strike()
    ranks = job.ranks()
    platform.kill_everything()
    assert job.ranks() == ranks
    platform.start()
    check_all(job, attempts=1)
