"""Who starts, and what those who wait are told."""

import pytest

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.cycle import decide
from services.scheduler.core.model import Holding, Slot
from services.scheduler.core.reasons import HolderOf, Waiting, is_news
from tests.unit.scheduler.builders import (
    NOW,
    after,
    make_holding,
    make_job,
    make_node,
    make_snapshot,
)

NODE = make_node("n1", 4)
HELD_3 = make_holding("h", ("n1", 0), ("n1", 1), ("n1", 2))
HELD_4 = make_holding("h", *(("n1", number) for number in range(4)))

CASES = {
    "an empty pool takes everyone, in order": (
        [],
        [make_job("a", 2, 1), make_job("b", 2, 2)],
        ["job_a", "job_b"],
        {},
    ),
    "higher priority goes first, whenever it came": (
        [HELD_3],
        [make_job("a", 1, 1), make_job("b", 1, 2, priority=5)],
        ["job_b"],
        {"job_a": WaitingReason.NO_FREE_DEVICES},
    ),
    "the first that does not fit blocks those behind it, though they would fit": (
        [HELD_3],
        [make_job("a", 2, 1), make_job("b", 1, 2)],
        [],
        {
            "job_a": WaitingReason.GANG_INCOMPLETE,
            "job_b": WaitingReason.BEHIND_EARLIER_SUBMISSION,
        },
    ),
    "behind a blocked job of higher priority": (
        [HELD_4],
        [make_job("a", 1, 1), make_job("b", 1, 2, priority=1)],
        [],
        {
            "job_b": WaitingReason.NO_FREE_DEVICES,
            "job_a": WaitingReason.BEHIND_HIGHER_PRIORITY,
        },
    ),
    "a job that backs off blocks nobody": (
        [HELD_3],
        [make_job("a", 1, 1, not_before=after(5)), make_job("b", 1, 2)],
        ["job_b"],
        {"job_a": WaitingReason.BACKING_OFF},
    ),
    "a backoff that has passed is over": (
        [],
        [make_job("a", 1, 1, not_before=NOW)],
        ["job_a"],
        {},
    ),
    "a job that the pool is too small for blocks nobody": (
        [],
        [make_job("a", 5, 1), make_job("b", 1, 2)],
        ["job_b"],
        {"job_a": WaitingReason.POOL_WITHOUT_NODES},
    ),
    "a pool without nodes": (
        [],
        [make_job("a", 1, 1, pool="other")],
        [],
        {"job_a": WaitingReason.POOL_WITHOUT_NODES},
    ),
}


@pytest.mark.parametrize(
    ("holdings", "waiting", "want_granted", "want_reasons"), CASES.values(), ids=CASES.keys()
)
def test_decide(holdings, waiting, want_granted, want_reasons):
    decision = decide(make_snapshot([NODE], waiting, holdings), NOW)

    assert [grant.job_id for grant in decision.grants] == want_granted
    assert {entry.job_id: entry.reason for entry in decision.waiting} == want_reasons
    assert not decision.is_cut


def test_one_pool_does_not_block_another():
    nodes = [make_node("n1", 1), make_node("m1", 1, pool="other")]
    waiting = [make_job("a", 1, 1), make_job("b", 1, 2, pool="other")]
    holdings = [make_holding("h", ("n1", 0))]

    decision = decide(make_snapshot(nodes, waiting, holdings), NOW)

    assert [grant.job_id for grant in decision.grants] == ["job_b"]


def test_a_gang_is_spread_over_nodes_only_when_it_must():
    nodes = [make_node("n1", 1), make_node("n2", 2), make_node("n3", 2)]

    decision = decide(make_snapshot(nodes, [make_job("a", 2), make_job("b", 3, 2)]), NOW)

    placed = {grant.job_id: grant.slots for grant in decision.grants}
    assert placed == {
        "job_a": (Slot("n2", 0), Slot("n2", 1)),
        "job_b": (Slot("n1", 0), Slot("n3", 0), Slot("n3", 1)),
    }


def test_an_allocation_has_one_device_type():
    nodes = [make_node("n1", 2), make_node("n2", 2, device_type="gpu")]

    three = decide(make_snapshot(nodes, [make_job("a", 3)]), NOW)
    gpu = decide(make_snapshot(nodes, [make_job("a", 2, device_type="gpu")]), NOW)

    assert three.waiting[0].reason is WaitingReason.POOL_WITHOUT_NODES
    assert gpu.grants[0].device_type == "gpu"
    assert {slot.node_id for slot in gpu.grants[0].slots} == {"n2"}


def test_a_removed_node_takes_nothing_new():
    nodes = [make_node("n1", 2, is_schedulable=False), make_node("n2", 1)]

    decision = decide(make_snapshot(nodes, [make_job("a", 1), make_job("b", 2, 2)]), NOW)

    assert [grant.slots for grant in decision.grants] == [(Slot("n2", 0),)]


def test_who_waits_is_told_its_place_and_who_holds_what():
    holdings = [make_holding("h", ("n1", 0)), make_holding("g", ("n1", 1), ("n1", 2))]
    waiting = [make_job("a", 3, 1), make_job("b", 1, 2)]

    decision = decide(make_snapshot([NODE], waiting, holdings), NOW)

    assert [entry.position for entry in decision.waiting] == [1, 2]
    assert decision.waiting[0].holders == (HolderOf("job_g", 2), HolderOf("job_h", 1))


def test_one_cycle_is_bounded_and_says_that_it_was_cut():
    waiting = [make_job(f"{number:03}", 1, number) for number in range(10)]
    snapshot = make_snapshot([make_node("n1", 10)], waiting)

    decision = decide(snapshot, NOW, max_grants=3)

    assert [grant.job_id for grant in decision.grants] == ["job_000", "job_001", "job_002"]
    assert decision.is_cut


NEWS = {
    "never told": (None, 3, True),
    "nothing changed": (("no_free_devices", 3), 3, False),
    "another reason": (("gang_incomplete", 3), 3, True),
    "one place ahead, near the front": (("no_free_devices", 4), 3, True),
    "one place ahead, far back": (("no_free_devices", 101), 100, False),
    "ten places ahead, far back": (("no_free_devices", 110), 100, True),
}


@pytest.mark.parametrize(("told", "position", "want"), NEWS.values(), ids=NEWS.keys())
def test_what_is_news(told, position, want):
    waiting = Waiting("job_a", WaitingReason.NO_FREE_DEVICES, "", position)

    assert is_news(told, waiting) is want


def test_who_holds_the_devices_of_nodes_cut_anew_is_named():
    gpus = make_node("n1", 4, device_type="gpu")
    slots = (Slot("gone", 0), Slot("gone", 1))
    held = Holding("job_h", "alloc_h_1", slots, devices=(2, 3))
    other = Holding("job_o", "alloc_o_1", (Slot("far", 0),), devices=(7,))
    snapshot = make_snapshot([gpus], [make_job("a", 3)], [held, other])

    (waiting,) = decide(snapshot, NOW).waiting

    assert waiting.reason is WaitingReason.GANG_INCOMPLETE
    assert waiting.holders == (HolderOf("job_h", 2),)
