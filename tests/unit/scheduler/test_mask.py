"""Where pods fit beside other pods, and what a job that does not fit is told."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.cycle import MAX_MEMORIES, decide
from services.scheduler.core.mask import Mask, Misfit, NodeRoom, Request, added
from services.scheduler.core.model import Holding, Slot
from tests.unit.scheduler.builders import NOW, make_job, make_node, make_snapshot

GIB = 1000 * 2**30
SHARED = Request({"cpu": 1000, "memory": GIB}, {"pods": 1000})
DEVICES = Request({"cpu": 1000, "memory": GIB, "gpu": 1000}, {"pods": 1000, "hca": 1000})


def has(cpu: float = 2, memory: float = 8, **more: int) -> dict[str, int]:
    return {"cpu": int(1000 * cpu), "memory": int(memory * GIB), "pods": 110_000, **more}


def cpus(amount: float, pods: int = 1) -> dict[str, int]:
    return {"cpu": int(1000 * amount), "pods": 1000 * pods}


def masked(rooms: dict[str, NodeRoom], nodes, waiting=(), holdings=()):
    snapshot = make_snapshot(nodes, waiting, holdings)
    mask = Mask(rooms, SHARED, DEVICES)
    return replace(snapshot, occupancy=replace(snapshot.occupancy, mask=mask))


def granted(snapshot) -> dict[str, list[str]]:
    return {
        grant.job_id: [slot.node_id for slot in grant.slots]
        for grant in decide(snapshot, NOW).grants
    }


def waits(snapshot) -> dict[str, tuple[WaitingReason, str]]:
    return {
        job.job_id: (each.reason, each.detail)
        for each in decide(snapshot, NOW).waiting
        for job in each.jobs
    }


@pytest.mark.parametrize(
    ("room", "request_", "want"),
    [
        (NodeRoom(has()), SHARED, 2),
        (NodeRoom(has(), cpus(0.1)), SHARED, 1),
        (NodeRoom(has(), cpus(1.5)), SHARED, 0),
        (NodeRoom(has(8, 3)), SHARED, 3),
        (NodeRoom(has(8, 8)), SHARED.with_memory(4 * GIB), 2),
        (NodeRoom(has(8), cpus(0, pods=110)), SHARED, 0),
        (NodeRoom(has(8, gpu=4000, hca=1000)), DEVICES, 4),
        (NodeRoom(has(8, gpu=4000)), DEVICES, 0),  # nothing of what a pod requests once
        (NodeRoom(has(8), misfit=Misfit(SHARED.of(3), "no")), SHARED, 2),
        (NodeRoom(has(8), misfit=Misfit(SHARED.of(1), "no")), SHARED, 0),
        (NodeRoom(has(8), misfit=Misfit({}, "no")), SHARED, 0),
        (NodeRoom(has(8), misfit=Misfit({"hca": 1000}, "no")), SHARED, 8),
        (NodeRoom(has(8, 64), misfit=Misfit(SHARED.of(2), "")), SHARED.with_memory(8 * GIB), 1),
    ],
)
def test_the_slots_of_the_largest_pod_that_fits(room, request_, want) -> None:
    assert room.most_slots(request_, {}, 8) == want


def test_a_gang_of_two_is_not_placed_beside_a_daemon_that_leaves_room_for_one() -> None:
    waiting = [make_job("a", 2)]
    alone = masked({"n1": NodeRoom(has())}, [make_node()], waiting)
    assert granted(alone) == {"job_a": ["n1", "n1"]}
    shared = masked({"n1": NodeRoom(has(), cpus(0.1))}, [make_node()], waiting)
    assert granted(shared) == {}
    assert waits(shared)["job_a"] == (
        WaitingReason.NO_ROOM,
        "beside other pods, pool default has room for 1 devices, 2 are needed; node n1: 1.9 of 2 "
        "CPUs are free for jobs (other pods request 100m)",
    )


def test_one_that_others_leave_no_room_for_blocks_nobody() -> None:
    nodes = [make_node("n1"), make_node("n2")]
    rooms = {"n1": NodeRoom(has(), cpus(0.1)), "n2": NodeRoom(has(), cpus(2))}
    snapshot = masked(rooms, nodes, [make_job("large", 3, 1), make_job("small", 1, 2)])
    assert granted(snapshot) == {"job_small": ["n1"]}
    assert "node n2: 0 of 2 CPUs are free" in waits(snapshot)["job_large"][1]


def test_one_that_waits_for_our_own_jobs_keeps_its_turn() -> None:
    held = [Holding("job_h", "alloc_h", (Slot("n1", 0),))]
    rooms = {"n1": NodeRoom(has(3), cpus(0.5))}
    waiting = [make_job("first", 2, 1), make_job("second", 1, 2)]
    snapshot = masked(rooms, [make_node("n1", 3)], waiting, held)
    assert granted(snapshot) == {}
    reason, detail = waits(snapshot)["job_first"]
    assert reason is WaitingReason.GANG_INCOMPLETE
    assert "1.5 of 3 CPUs are free for jobs (other pods request 500m, jobs 1)" in detail
    assert waits(snapshot)["job_second"][0] is WaitingReason.BEHIND_EARLIER_SUBMISSION


def test_jobs_of_one_decision_share_what_is_left() -> None:
    jobs = [make_job(str(number), 1, number, memory_bytes=3 * 2**30) for number in range(4)]
    assert granted(masked({"n1": NodeRoom(has(8, 8))}, [make_node("n1", 8)], jobs)) == {
        "job_0": ["n1"],
        "job_1": ["n1"],
    }


def test_memory_that_a_job_holds_is_not_given_again() -> None:
    held = [Holding("job_h", "alloc_h", (Slot("n1", 0),), memory_bytes=6 * 2**30)]
    jobs = [make_job("a", 1, memory_bytes=4 * 2**30), make_job("b", 1, 2, memory_bytes=2**30)]
    snapshot = masked({"n1": NodeRoom(has(8, 8))}, [make_node("n1", 8)], jobs, held)
    assert granted(snapshot) == {}
    assert "2 of 8 GiB of memory are free for jobs (jobs 6)" in waits(snapshot)["job_a"][1]


def test_the_next_attempt_goes_to_another_node_than_where_it_did_not_fit() -> None:
    nodes = [make_node("n1"), make_node("n2")]
    misfit = Misfit(SHARED.of(2), "a pod did not fit")
    rooms = {"n1": NodeRoom(has(), misfit=misfit), "n2": NodeRoom(has())}
    waiting = [make_job("a", 2), make_job("b", 1, 2)]
    assert granted(masked(rooms, nodes, waiting)) == {"job_a": ["n2", "n2"], "job_b": ["n1"]}
    rooms["n2"] = NodeRoom(has(), misfit=Misfit({}, "out of disk"))
    assert granted(masked(rooms, nodes, waiting)) == {"job_b": ["n1"]}
    detail = waits(masked(rooms, nodes, waiting))["job_a"][1]
    assert detail.endswith("; node n1: a pod did not fit; node n2: out of disk")


def test_ever_more_different_memories_are_rounded_up() -> None:
    """Each that differs costs as much as there are nodes."""
    jobs = [
        make_job(str(each), 1, each, memory_bytes=11 * 2**30 // 10 + each, priority=each)
        for each in range(MAX_MEMORIES + 1)
    ]
    snapshot = masked({"n1": NodeRoom(has(64, 8))}, [make_node("n1", 64)], jobs)
    assert len(granted(snapshot)) == 3
    assert len(granted(masked({"n1": NodeRoom(has(64, 8))}, [make_node("n1", 64)], jobs[1:]))) == 7


def test_nodes_that_accept_nothing_are_named_with_their_words() -> None:
    nodes = [make_node("n1"), make_node("n2", unschedulable="DiskPressure: it is full")]
    held = [Holding("job_h", "alloc_h", (Slot("n1", 0), Slot("n1", 1)))]
    snapshot = masked({"n1": NodeRoom(has())}, nodes, [make_job("a")], held)
    assert waits(snapshot)["job_a"][1].endswith("; not counted: n2 (DiskPressure: it is full)")


@st.composite
def shared_fleets(draw):
    """Nodes that others use in part, with jobs that hold slots and jobs that wait."""
    nodes = [make_node(f"n{each}", draw(st.integers(1, 6))) for each in range(3)]
    rooms = {
        node.node_id: NodeRoom(
            has(draw(st.integers(0, 6)), draw(st.integers(0, 6))),
            cpus(draw(st.integers(0, 30)) / 10),
            draw(st.sampled_from([None, Misfit({}, "no"), Misfit(SHARED.of(2), "no")])),
        )
        for node in nodes
    }
    memory = st.none() | st.integers(1, 6 * 2**30)
    jobs = [
        make_job(str(each), draw(st.integers(1, 6)), each, memory_bytes=draw(memory))
        for each in range(draw(st.integers(0, 6)))
    ]
    return masked(rooms, nodes, jobs)


@given(shared_fleets())
def test_what_is_granted_fits_beside_others_and_every_other_job_has_a_reason(snapshot) -> None:
    decision = decide(snapshot, NOW)
    kinds = {job.job_id: job.kind for job in snapshot.queue}
    mask = snapshot.occupancy.mask
    used: dict[str, dict[str, int]] = {}
    for grant in decision.grants:
        request = SHARED.with_memory(kinds[grant.job_id].slot_memory)
        for node_id in {slot.node_id for slot in grant.slots}:
            number = sum(slot.node_id == node_id for slot in grant.slots)
            used[node_id] = added(used.get(node_id, {}), request.of(number))
    for node_id, ours in used.items():
        assert min(mask.rooms[node_id].left(ours).values()) >= 0
        assert mask.rooms[node_id].misfit != Misfit({}, "no")
    waiting = {job.job_id for each in decision.waiting for job in each.jobs}
    assert waiting | {grant.job_id for grant in decision.grants} == kinds.keys()
