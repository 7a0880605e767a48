"""Brokers of a cluster of three fail while a job trains and fifty jobs are submitted."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.faults.broker_checks import (
    BROKERS,
    active_controller,
    check_everything,
    submissions,
)
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(1200)
SLOW = {"hyperparameters": {"pause_seconds": 0.3}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePlatform]:
    platform = StandalonePlatform(tmp_path_factory.mktemp("cluster") / "home", brokers=3)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def strike(platform: StandalonePlatform, *brokers: str, number: int = signal.SIGKILL) -> None:
    """A signal to these brokers at once, then wait until each is ready again."""
    old = {name: platform.pid(name) for name in brokers}
    for pid in old.values():
        os.kill(pid, number)
    for name, pid in old.items():
        platform.wait_ready(name, other_than=pid)


def test_each_broker_is_killed_in_turn(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "each-in-turn", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for name in BROKERS:
            strike(cluster, name)
    check_everything(cluster, job, others)


def test_the_active_controller_is_killed(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "controller", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for _ in range(2):
            strike(cluster, active_controller(cluster))
    check_everything(cluster, job, others)


def test_two_brokers_are_killed_at_once(cluster: StandalonePlatform) -> None:
    """Nothing can be written for a while: everybody waits, and training continues."""
    job = TrainingJob.submit(cluster, "two-at-once", **SLOW)
    job.wait_for_strike()
    ranks, step = job.ranks(), job.step()
    with submissions(cluster) as others:
        strike(cluster, *BROKERS[:2])
        strike(cluster, *BROKERS[1:])
    job.wait_step(step + 5)
    assert job.ranks() == ranks
    check_everything(cluster, job, others)


def test_a_rolling_restart(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "rolling", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for name in BROKERS:
            strike(cluster, name, number=signal.SIGTERM)
    check_everything(cluster, job, others)
