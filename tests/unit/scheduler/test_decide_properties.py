"""What holds for every snapshot, however odd."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.cycle import decide
from services.scheduler.core.invariants import check
from services.scheduler.core.model import Holding, Node, QueuedJob, Slot
from services.scheduler.core.queue import in_order
from services.scheduler.core.snapshot import Snapshot
from tests.unit.scheduler.builders import NOW, after

POOLS = st.sampled_from(["default", "other"])
TYPES = st.sampled_from(["cpu", "gpu"])


@st.composite
def snapshots(draw) -> Snapshot:
    nodes = tuple(
        Node(
            f"n{number}",
            draw(POOLS),
            draw(TYPES),
            draw(st.integers(1, 4)),
            first_device=4 * number,
            is_schedulable=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    waiting = tuple(
        QueuedJob(
            f"job_{number}",
            draw(POOLS),
            draw(st.integers(1, 6)),
            number,
            draw(st.integers(-1, 1)),
            draw(st.none() | TYPES),
            draw(st.sampled_from([None, after(-1), after(1)])),
        )
        for number in range(draw(st.integers(0, 6)))
    )
    every = [Slot(node.node_id, number) for node in nodes for number in range(node.num_slots)]
    held = tuple(slot for slot in every if draw(st.booleans()))
    holdings = (Holding("job_h", "alloc_h", held, devices_of(nodes, held)),) if held else ()
    return Snapshot(nodes, waiting, holdings)


def devices_of(nodes: tuple[Node, ...], slots: tuple[Slot, ...]) -> tuple[int, ...]:
    known = {node.node_id: node for node in nodes}
    devices = (known[slot.node_id].device_of(slot.number) for slot in slots)
    return tuple(device for device in devices if device is not None)


def applied(snapshot: Snapshot) -> Snapshot:
    """What becomes of it when every grant is carried out."""
    grants = decide(snapshot, NOW).grants
    granted = {grant.job_id for grant in grants}
    return replace(
        snapshot,
        waiting=tuple(job for job in snapshot.waiting if job.job_id not in granted),
        holdings=snapshot.holdings
        + tuple(
            Holding(
                grant.job_id,
                f"alloc_{grant.job_id}",
                grant.slots,
                devices_of(snapshot.nodes, grant.slots),
            )
            for grant in grants
        ),
    )


@given(snapshots())
def test_grants_break_no_invariant(snapshot):
    assert check(snapshot) == ()
    assert check(applied(snapshot)) == ()


@given(snapshots())
def test_every_job_is_granted_whole_or_told_why_it_waits(snapshot):
    decision = decide(snapshot, NOW)

    granted = {grant.job_id: grant for grant in decision.grants}
    told = {entry.job_id for entry in decision.waiting}
    assert granted.keys() | told == {job.job_id for job in snapshot.waiting}
    assert not granted.keys() & told
    for job in snapshot.waiting:
        if job.job_id in granted:
            assert len(granted[job.job_id].slots) == job.devices


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(snapshot, random):
    nodes, waiting = list(snapshot.nodes), list(snapshot.waiting)
    random.shuffle(nodes)
    random.shuffle(waiting)

    shuffled = Snapshot(tuple(nodes), tuple(waiting), snapshot.holdings)

    assert decide(shuffled, NOW) == decide(snapshot, NOW)


@given(snapshots())
def test_deciding_again_after_applying_grants_nothing_more(snapshot):
    assert decide(applied(snapshot), NOW).grants == ()


@given(snapshots())
def test_nobody_overtakes_a_blocked_job_of_its_pool(snapshot):
    decision = decide(snapshot, NOW)

    granted = {grant.job_id for grant in decision.grants}
    free_to_block = {
        entry.job_id
        for entry in decision.waiting
        if entry.reason in ("no_free_devices", "gang_incomplete")
    }
    for pool in ("default", "other"):
        queue = [job.job_id for job in in_order(snapshot.waiting) if job.pool == pool]
        blocked = [queue.index(job_id) for job_id in queue if job_id in free_to_block]
        assert len(blocked) <= 1
        assert not granted & set(queue[blocked[0] :] if blocked else [])


@given(snapshots())
def test_no_slot_of_a_removed_node_is_granted(snapshot):
    gone = {node.node_id for node in snapshot.nodes if not node.is_schedulable}

    granted = {slot.node_id for grant in decide(snapshot, NOW).grants for slot in grant.slots}

    assert not granted & gone


@given(snapshots())
def test_a_held_device_is_granted_by_no_node(snapshot):
    whole = [node for node in snapshot.nodes if node.is_schedulable]
    cut_anew = tuple(replace(node, node_id=f"{node.node_id}-anew") for node in whole)
    held = {device for holding in snapshot.holdings for device in holding.devices}

    snapshot = replace(snapshot, nodes=(*snapshot.nodes, *cut_anew))

    for node in cut_anew:
        free = {node.device_of(slot.number) for slot in snapshot.free_slots(node)}
        assert not free & held
