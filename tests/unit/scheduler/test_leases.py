"""Silence counts only while the scheduler receives its own beacons."""

import pytest
from aiokafka.partitioner import DefaultPartitioner

from services.scheduler.core.leases import Steadiness, after_beacon, silence_limit
from services.scheduler.leases import partition_keys

STEADY = {0: Steadiness(99, 0), 1: Steadiness(100, 10)}
CASES = {
    "silent for a whole lease": (80, STEADY, True),
    "a heartbeat within the lease": (90, STEADY, False),
    "no beacon has come back yet": (0, {}, False),
    "the beacon of one partition never came back": (0, {0: STEADY[0]}, False),
    "the beacon has stopped, with the broker": (
        0,
        {0: Steadiness(93, 0), 1: STEADY[1]},
        False,
    ),
    "the last beacon is just not too old": (80, {0: Steadiness(94, 0), 1: STEADY[1]}, True),
    "the beacon is back since one lease, and not longer": (
        0,
        {0: Steadiness(99, 85), 1: STEADY[1]},
        False,
    ),
    "the beacon is back for a little more than a lease": (
        80,
        {0: Steadiness(99, 84.9), 1: STEADY[1]},
        True,
    ),
    "the beacon is back, but not for a whole lease": (
        0,
        {0: Steadiness(99, 86), 1: STEADY[1]},
        False,
    ),
}


@pytest.mark.parametrize(("heard_at", "beacons", "want"), CASES.values(), ids=CASES.keys())
def test_when_silence_counts(heard_at, beacons, want):
    limit = silence_limit(beacons, 2, now=100, lease=15, interval=2)
    assert (limit is not None and heard_at < limit) is want


def test_a_pause_of_the_beacon_starts_the_count_again():
    steady = after_beacon(after_beacon(None, 10, interval=2), 12, interval=2)
    assert steady == Steadiness(last_at=12, steady_since=10)

    assert after_beacon(steady, 18, interval=2) == Steadiness(last_at=18, steady_since=10)
    assert after_beacon(steady, 19, interval=2) == Steadiness(last_at=19, steady_since=19)


def test_every_partition_gets_a_beacon_of_its_own():
    keys = partition_keys("beacon-x", 7)

    partitioner, partitions = DefaultPartitioner(), list(range(7))
    assert [partitioner(key.encode(), partitions, partitions) for key in keys] == partitions
