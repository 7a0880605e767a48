"""Which jobs start, and why the others wait."""

from itertools import product

import pytest

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.cycle import Decision, decide
from services.scheduler.core.model import Holding, Slot
from services.scheduler.core.reasons import HolderOf, Waiting, holders
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
    "a job that backs off blocks nothing": (
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
    "a job that the pool is too small for blocks nothing": (
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
    assert reasons(decision) == want_reasons
    assert not decision.is_cut


def reasons(decision: Decision) -> dict[str, WaitingReason]:
    return {job.job_id: entry.reason for entry in decision.waiting for job in entry.jobs}


def test_jobs_of_two_kinds_take_turns_in_their_order():
    jobs = [make_job(str(number), 1 + number % 2, number) for number in range(6)]

    decision = decide(make_snapshot([make_node("n1", 9)], jobs), NOW)

    assert [grant.job_id for grant in decision.grants] == [job.job_id for job in jobs]


def test_a_job_of_any_type_is_behind_the_first_that_waits_for_one_of_them():
    jobs = [
        make_job("a", 2, 1, device_type="gpu"),
        make_job("b", 2, 2, device_type="cpu"),
        make_job("c", 1, 3),
    ]
    nodes = [make_node("n1", 2), make_node("g1", 2, device_type="gpu")]
    holdings = [make_holding("h", ("n1", 0)), make_holding("g", ("g1", 0))]

    waiting = decide(make_snapshot(nodes, jobs, holdings), NOW).waiting

    (behind,) = (each for each in waiting if each.jobs == (jobs[2],))
    assert behind.detail == "job_a was submitted earlier and waits for devices"


def test_a_gang_of_any_type_lacks_least_of_the_type_with_most_free():
    nodes = [make_node("n1", 4), make_node("g1", 4, device_type="gpu")]
    holdings = [make_holding("h", ("n1", 0), ("n1", 1)), make_holding("g", ("g1", 0))]

    (waiting,) = decide(make_snapshot(nodes, [make_job("a", 4)], holdings), NOW).waiting

    assert waiting.detail.startswith("3 of the 4 devices are free")


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
    nodes = [make_node("n1", 2, is_removed=True), make_node("n2", 1)]

    decision = decide(make_snapshot(nodes, [make_job("a", 1), make_job("b", 2, 2)]), NOW)

    assert [grant.slots for grant in decision.grants] == [(Slot("n2", 0),)]


@pytest.mark.parametrize(
    ("changes", "held", "num_free"),
    [
        pytest.param({}, [5], 2, id="slots of a processor: only their number counts"),
        pytest.param({}, [5, 6, 7, 8], 0, id="more are held than there still are"),
        pytest.param({"device_type": "gpu"}, [5], 3, id="devices that the node no longer has"),
        pytest.param(
            {"device_type": "gpu", "first_device": None}, [5], 2, id="devices without numbers"
        ),
    ],
)
def test_a_node_that_lost_slots_while_they_are_held(changes, held, num_free):
    node = make_node("n1", 3, **changes)
    holding = make_holding("h", *(("n1", number) for number in held))
    jobs = [make_job(str(number), 1, number) for number in range(4)]

    decision = decide(make_snapshot([node, make_node("n2", 0)], jobs, [holding]), NOW)

    assert len(decision.grants) == num_free


def test_the_holders_of_what_a_job_could_use_are_named_largest_first():
    held = [make_holding("h", ("n1", 0)), make_holding("g", ("n1", 1), ("n1", 2))]
    snapshot = make_snapshot([NODE], [], held)

    assert holders(make_job(devices=3).kind, snapshot.occupancy) == (
        HolderOf("job_g", 2),
        HolderOf("job_h", 1),
    )


def test_one_cycle_is_bounded_and_says_that_it_was_cut():
    waiting = [make_job(f"{number:03}", 1, number) for number in range(10)]
    snapshot = make_snapshot([make_node("n1", 10)], waiting)

    decision = decide(snapshot, NOW, max_grants=3)

    assert [grant.job_id for grant in decision.grants] == ["job_000", "job_001", "job_002"]
    assert decision.is_cut


def test_only_a_new_reason_is_announced():
    first = make_job("a", announced=WaitingReason.NO_FREE_DEVICES)
    jobs = (first, make_job("b"), make_job("c", announced=WaitingReason.BACKING_OFF))
    waiting = Waiting(jobs, WaitingReason.NO_FREE_DEVICES, "")

    assert [job.job_id for job in waiting.unannounced()] == ["job_b", "job_c"]


def test_a_job_of_higher_priority_that_comes_or_goes_is_no_news_to_the_queue():
    """With 10,000 jobs in the queue each of them would be 10,000 events that are kept for ever."""
    earlier, higher = WaitingReason.BEHIND_EARLIER_SUBMISSION, WaitingReason.BEHIND_HIGHER_PRIORITY
    for before, now in ((earlier, higher), (higher, earlier)):
        assert not list(Waiting((make_job("a", announced=before),), now, "").unannounced())
    assert list(
        Waiting((make_job("a", announced=WaitingReason.BACKING_OFF),), higher, "").unannounced()
    )


MIXED = [make_node("n1", 2), make_node("g1", 4, device_type="gpu")]
CPUS = make_holding("h", ("n1", 0), ("n1", 1))
GPUS = make_holding("g", ("g1", 0), ("g1", 1), ("g1", 2))
BY_TYPE = {
    "a job that waits for one type does not block another": (
        [CPUS],
        [make_job("a", 1, 1, device_type="cpu"), make_job("b", 1, 2, device_type="gpu")],
        ["job_b"],
        {"job_a": WaitingReason.NO_FREE_DEVICES},
    ),
    "but every later job of its own": (
        [CPUS, GPUS],
        [make_job("a", 2, 1, device_type="gpu"), make_job("b", 1, 2, device_type="gpu")],
        [],
        {
            "job_a": WaitingReason.GANG_INCOMPLETE,
            "job_b": WaitingReason.BEHIND_EARLIER_SUBMISSION,
        },
    ),
    "a job of any type takes the type that no earlier job waits for": (
        [CPUS],
        [make_job("a", 1, 1, device_type="cpu"), make_job("b", 1, 2)],
        ["job_b"],
        {"job_a": WaitingReason.NO_FREE_DEVICES},
    ),
    "a job of any type that waits blocks every type it could use": (
        [CPUS, GPUS],
        [make_job("a", 2, 1), make_job("b", 1, 2, device_type="gpu")],
        [],
        {
            "job_a": WaitingReason.GANG_INCOMPLETE,
            "job_b": WaitingReason.BEHIND_EARLIER_SUBMISSION,
        },
    ),
    "but not a type of which the pool has too few for it": (
        [GPUS],
        [make_job("a", 3, 1), make_job("b", 1, 2, device_type="cpu")],
        ["job_b"],
        {"job_a": WaitingReason.GANG_INCOMPLETE},
    ),
    "a job of any type is behind once each of its types is waited for": (
        [CPUS, GPUS],
        [
            make_job("a", 1, 1, device_type="cpu"),
            make_job("b", 2, 2, device_type="gpu"),
            make_job("c", 1, 3),
        ],
        [],
        {
            "job_a": WaitingReason.NO_FREE_DEVICES,
            "job_b": WaitingReason.GANG_INCOMPLETE,
            "job_c": WaitingReason.BEHIND_EARLIER_SUBMISSION,
        },
    ),
}


@pytest.mark.parametrize(
    ("holdings", "waiting", "want_granted", "want_reasons"), BY_TYPE.values(), ids=BY_TYPE.keys()
)
def test_blocking_is_by_device_type(holdings, waiting, want_granted, want_reasons):
    decision = decide(make_snapshot(MIXED, waiting, holdings), NOW)

    assert [grant.job_id for grant in decision.grants] == want_granted
    assert reasons(decision) == want_reasons


def test_the_holder_of_devices_of_nodes_that_were_cut_again_is_named():
    gpus = make_node("n1", 4, device_type="gpu")
    slots = (Slot("gone", 0), Slot("gone", 1))
    held = Holding("job_h", "alloc_h_1", slots, devices=(2, 3))
    other = Holding("job_o", "alloc_o_1", (Slot("far", 0),), devices=(7,))
    snapshot = make_snapshot([gpus], [make_job("a", 3)], [held, other])

    (waiting,) = decide(snapshot, NOW).waiting

    assert waiting.reason is WaitingReason.GANG_INCOMPLETE
    assert holders(waiting.jobs[0].kind, snapshot.occupancy) == (HolderOf("job_h", 2),)


@pytest.mark.parametrize(("first_device", "want"), [(0, ["job_a"]), (None, [])])
def test_slots_of_a_node_that_lost_devices_are_held_by_number_or_by_count(first_device, want):
    """Where devices have no numbers of ours, what is held takes up any of those that are left."""
    node = make_node("n1", 2, device_type="gpu", first_device=first_device)
    held = make_holding("h", ("n1", 6), ("n1", 7))

    decision = decide(make_snapshot([node], [make_job("a", 2)], [held]), NOW)

    assert [grant.job_id for grant in decision.grants] == want


def test_kinds_behind_a_blocked_one_are_not_looked_at_one_by_one(monkeypatch):
    placed = []
    monkeypatch.setattr(
        "services.scheduler.core.cycle.place_job", lambda *asked: placed.append(asked)
    )
    nodes = [make_node("n1"), make_node("n2", device_type="gpu")]
    waiting = [
        make_job(f"{priority}-{devices}", devices, number, priority=priority)
        for number, (priority, devices) in enumerate(product(range(100), (1, 2)))
    ]

    decision = decide(make_snapshot(nodes, waiting), NOW)

    assert len(placed) == 1
    assert {job for each in decision.waiting for job in each.jobs} == {*waiting}
    last = next(each for each in decision.waiting if waiting[0] in each.jobs)
    assert last.reason is WaitingReason.BEHIND_HIGHER_PRIORITY
    assert last.detail == "job_99-1 has priority 99 and waits for devices"


def test_each_job_that_backs_off_is_told_what_became_of_its_last_run():
    jobs = [
        make_job(name, 1, number, not_before=after(5), last_run=last_run)
        for number, (name, last_run) in enumerate(
            [("a", "attempt 1 failed: boom"), ("b", "attempt 2 was lost"), ("c", ""), ("d", "")]
        )
    ]
    told = {
        tuple(job.job_id for job in waiting.jobs): waiting.detail
        for waiting in decide(make_snapshot([], jobs), NOW).waiting
    }
    assert told == {
        ("job_a",): "attempt 1 failed: boom; the next attempt waits before it starts",
        ("job_b",): "attempt 2 was lost; the next attempt waits before it starts",
        ("job_c", "job_d"): "the next attempt waits before it starts",
    }
