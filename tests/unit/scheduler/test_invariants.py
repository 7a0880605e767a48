"""`check` finds what must not be."""

from dataclasses import replace

import pytest

from services.scheduler.core.invariants import check
from tests.unit.scheduler.builders import make_holding, make_job, make_node, make_snapshot

CASES = {
    "a slot that is held twice": (
        make_snapshot(
            holdings=[make_holding("a", ("n1", 0)), make_holding("b", ("n1", 0))],
        ),
        "slot 0 of n1 is held 2 times",
    ),
    "a device that is held twice": (
        make_snapshot(
            holdings=[
                replace(make_holding("a", ("n1", 0)), devices=(3,)),
                replace(make_holding("b", ("n1", 1)), devices=(3,)),
            ],
        ),
        "device 3 is held 2 times",
    ),
    "a job with two allocations": (
        make_snapshot(
            holdings=[make_holding("a", ("n1", 0)), make_holding("a", ("n1", 1), attempt=2)],
        ),
        "job_a holds 2 allocations",
    ),
    "a job that waits and holds": (
        make_snapshot(waiting=[make_job("a")], holdings=[make_holding("a", ("n1", 0))]),
        "job_a waits although it holds slots",
    ),
    "an allocation without slots": (
        make_snapshot(holdings=[make_holding("a")]),
        "alloc_a_1 holds no slot",
    ),
    "an unknown node": (
        make_snapshot(holdings=[make_holding("a", ("n9", 0))]),
        "alloc_a_1 holds slots of the unknown node n9",
    ),
    "a job that waits twice": (
        make_snapshot(waiting=[make_job("a"), make_job("a")]),
        "job_a waits 2 times",
    ),
}


@pytest.mark.parametrize(("snapshot", "want"), CASES.values(), ids=CASES.keys())
def test_found(snapshot, want):
    assert want in check(snapshot)


def test_a_sound_snapshot_breaks_nothing():
    snapshot = make_snapshot([make_node()], [make_job("b")], [make_holding("a", ("n1", 1))])

    assert check(snapshot) == ()
