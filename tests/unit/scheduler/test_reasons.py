"""The sentences on why a job waits, and who holds what it could use."""

from dataclasses import replace

import pytest

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.reasons import (
    HolderOf,
    Position,
    Waiting,
    holders,
    position_of,
    why_behind,
    why_never,
    why_not_placed,
    without_other_tenants,
)
from tests.unit.scheduler.builders import make_holding, make_job, make_node, make_snapshot

GPUS = make_job("a", 3, device_type="gpu").kind
ANY = make_job("a", 3).kind


def closed(number: int, why: str = "cordoned", **changes):
    return make_node(f"n{number}", 8, unschedulable=why, **{"device_type": "gpu", **changes})


@pytest.mark.parametrize(
    ("kind", "nodes", "want"),
    [
        (GPUS, [], "0 gpu devices, 3 are needed"),
        (ANY, [make_node("n", 2)], "2 devices of one type, 3 are needed"),
        (
            GPUS,
            [closed(1), closed(2, "disk is full"), make_node("n", 2)],
            "0 gpu devices, 3 are needed; not counted: n1 (cordoned), n2 (disk is full)",
        ),
        (ANY, [closed(1)], "0 devices of one type, 3 are needed; not counted: n1 (cordoned)"),
        (
            GPUS,
            [closed(1, pool="other"), closed(2, is_removed=True), closed(3, device_type="cpu")],
            "0 gpu devices, 3 are needed",
        ),
        (
            GPUS,
            [closed(number, "x") for number in range(4)],
            "0 gpu devices, 3 are needed; not counted: n0 (x), n1 (x), n2 (x), n3 (x)",
        ),
        (
            GPUS,
            [closed(number, "x") for number in range(6)],
            "0 gpu devices, 3 are needed; not counted: n0 (x), n1 (x), n2 (x), n3 (x) and 2 more",
        ),
    ],
)
def test_what_the_pool_lacks_is_said_with_the_nodes_that_accept_nothing(kind, nodes, want):
    reason, detail = why_never(kind, make_snapshot(nodes).occupancy)
    assert (reason, detail) == (WaitingReason.POOL_WITHOUT_NODES, f"pool default has {want}")


@pytest.mark.parametrize(
    ("kind", "num_free", "reason", "detail"),
    [
        (GPUS, 0, WaitingReason.NO_FREE_DEVICES, "all gpu devices of pool default are in use"),
        (ANY, 0, WaitingReason.NO_FREE_DEVICES, "all devices of pool default are in use"),
        (
            ANY,
            1,
            WaitingReason.GANG_INCOMPLETE,
            "1 of the 3 devices are free; a gang starts only as a whole",
        ),
    ],
)
def test_a_job_that_nothing_blocks_waits_for_devices(kind, num_free, reason, detail):
    assert why_not_placed(kind, num_free) == (reason, detail)


@pytest.mark.parametrize(
    ("priority", "reason"),
    [
        (4, WaitingReason.BEHIND_HIGHER_PRIORITY),
        (5, WaitingReason.BEHIND_EARLIER_SUBMISSION),
        (6, WaitingReason.BEHIND_EARLIER_SUBMISSION),
    ],
)
def test_a_job_is_behind_a_higher_priority_only_below_it(priority, reason):
    blocker = make_job("b", priority=5)
    assert why_behind(replace(ANY, priority=priority), blocker)[0] is reason


NODES = [
    make_node("n1", 4),
    make_node("n2", 4, unschedulable="cordoned"),
    make_node("n3", 4, pool="other"),
    make_node("n4", 1),
    make_node("n5", 4, device_type="gpu"),
]


def test_only_slots_that_the_job_could_use_are_counted_equal_holders_by_id():
    held = [
        make_holding("z", ("n1", 0), ("n2", 0), ("n3", 0), ("n5", 0)),
        make_holding("y", ("n1", 1)),
        make_holding("x", ("n4", 0), ("n1", 2)),
        make_holding("w", ("n2", 1), ("n3", 1)),
    ]
    kind = make_job(devices=5, device_type="cpu").kind
    assert holders(kind, make_snapshot(NODES, holdings=held).occupancy) == (
        HolderOf("job_x", 2),
        HolderOf("job_y", 1),
        HolderOf("job_z", 1),
    )


def test_eight_holders_are_named():
    node = make_node("n1", 9)
    held = [make_holding(f"{number}", ("n1", number)) for number in range(9)]
    found = holders(make_job().kind, make_snapshot([node], holdings=held).occupancy)
    assert [each.job_id for each in found] == [f"job_{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("unreachable", "named"),
    [
        (("n1",), "n1"),
        (("a", "b", "c", "d"), "a, b, c, d"),
        (("a", "b", "c", "d", "e", "f"), "a, b, c, d and 2 more"),
    ],
)
def test_slots_that_stay_held_name_the_nodes_that_do_not_answer(unreachable, named):
    held = replace(make_holding("h", ("n1", 0)), unreachable=unreachable)
    (found,) = holders(make_job().kind, make_snapshot(holdings=[held]).occupancy)
    assert found.detail == f"does not answer: {named}; held until its pods are proven gone"


def test_a_position_has_the_reason_of_the_last_decision_or_the_announced_one():
    jobs = [make_job("a"), make_job("b", 1, 2), make_job("c", 1, 3)]
    jobs[2] = replace(jobs[2], announced=WaitingReason.BACKING_OFF)
    snapshot = make_snapshot(waiting=jobs, holdings=[make_holding("h", ("n1", 0))])
    waiting = [
        Waiting((), WaitingReason.BUDGET_REACHED, "nobody"),
        Waiting((jobs[0],), WaitingReason.NO_FREE_DEVICES, "all are in use"),
        Waiting((jobs[0], jobs[1]), WaitingReason.BEHIND_EARLIER_SUBMISSION, "behind a"),
    ]
    held = (HolderOf("job_h", 1),)
    assert [position_of(job, snapshot, waiting) for job in jobs] == [
        Position(1, WaitingReason.NO_FREE_DEVICES, "all are in use", held),
        Position(2, WaitingReason.BEHIND_EARLIER_SUBMISSION, "behind a", held),
        Position(3, WaitingReason.BACKING_OFF, "", held),
    ]


def test_a_tenant_reads_the_names_of_its_own_jobs_only():
    own, other = f"job_{'a' * 26}", f"job_{'b' * 26}"
    found = (HolderOf(own, 2), HolderOf(other, 1))
    detail = f"{own} was submitted earlier than {other}"
    assert without_other_tenants(detail, found, lambda job_id: job_id == own) == (
        f"{own} was submitted earlier than another tenant's job",
        (HolderOf(own, 2),),
    )
