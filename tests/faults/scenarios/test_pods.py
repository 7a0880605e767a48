"""Training processes fail: attempt 2 resumes from a checkpoint."""

from collections.abc import Callable, Iterator

import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

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


@pytest.fixture
def one_slot_each(platform: StandalonePlatform) -> Iterator[None]:
    """Sleeping jobs hold all but one slot of each node, so that two ranks are two pods."""

    def sleep(devices: int) -> TrainingJob:
        with platform.client() as client:
            spec = {"name": "sleep", "command": "sleep 3600", "resources": {"devices": devices}}
            answer = client.post("/v1/jobs", json={"spec": spec})
        answer.raise_for_status()
        sleeper = TrainingJob(platform, answer.json()["job_id"])
        wait_until(lambda: sleeper.state()["state"] == "running", "a sleeper runs")
        return sleeper

    def end(sleeper: TrainingJob) -> None:
        with platform.client() as client:
            client.post(f"/v1/jobs/{sleeper.job_id}/cancel").raise_for_status()
        assert sleeper.wait_final()["state"] == "cancelled"

    # Each is placed with the least free space: the first node, all of the second, the first again.
    first, whole, second = sleep(1), sleep(2), sleep(1)
    end(whole)
    last = sleep(1)
    end(second)
    yield
    end(first)
    end(last)


@pytest.mark.usefixtures("one_slot_each")
def test_a_rank_of_a_gang_of_two_pods_is_killed(submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    assert len(job.pods()) == 2
    strikes.kill_rank(job)
    check_all(job, attempts=2)
    assert len(job.pods(attempt=2)) == 2


def test_everything_is_killed_at_once(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_everything(platform, job)
    check_all(job, attempts=2)


def test_the_platform_is_killed_and_the_pods_survive(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    """The next start adopts the running pods."""
    job = submit()
    job.wait_for_strike()
    ranks = job.ranks()
    platform.kill_everything()
    assert job.ranks() == ranks
    platform.start()
    check_all(job, attempts=1)
