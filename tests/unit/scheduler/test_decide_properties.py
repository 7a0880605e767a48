"""What holds for every snapshot, however odd."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.cycle import Grant, decide
from services.scheduler.core.invariants import check
from services.scheduler.core.model import Holding, Kind, Node, QueuedJob, Slot
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.queue import Queue
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
            is_removed=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    waiting = tuple(
        QueuedJob(
            f"job_{number}",
            Kind(
                draw(POOLS),
                draw(st.none() | TYPES),
                draw(st.integers(1, 6)),
                draw(st.integers(-1, 1)),
            ),
            number,
            draw(st.sampled_from([None, after(-1), after(1)])),
        )
        for number in range(draw(st.integers(0, 6)))
    )
    every = [Slot(node.node_id, number) for node in nodes for number in range(node.num_slots)]
    held = tuple(slot for slot in every if draw(st.booleans()))
    holdings = {}
    if held:
        holdings["alloc_h"] = Holding("job_h", "alloc_h", held, devices_of(nodes, held))
    return Snapshot(Occupancy(nodes, holdings), Queue.of(waiting))


def devices_of(nodes: tuple[Node, ...], slots: tuple[Slot, ...]) -> tuple[int, ...]:
    known = {node.node_id: node for node in nodes}
    devices = (known[slot.node_id].device_of(slot.number) for slot in slots)
    return tuple(device for device in devices if device is not None)


def ordered(snapshot: Snapshot) -> list[QueuedJob]:
    return sorted(snapshot.queue, key=lambda job: job.order)


def applied(snapshot: Snapshot) -> Snapshot:
    """The snapshot after every grant is carried out."""
    grants = decide(snapshot, NOW).grants
    granted = {grant.job_id for grant in grants}
    occupancy = snapshot.occupancy
    holdings = {
        f"alloc_{grant.job_id}": Holding(
            grant.job_id,
            f"alloc_{grant.job_id}",
            grant.slots,
            devices_of(occupancy.nodes, grant.slots),
        )
        for grant in grants
    }
    return Snapshot(
        Occupancy(occupancy.nodes, {**occupancy.holdings, **holdings}),
        snapshot.queue.changed([job for job in snapshot.queue if job.job_id in granted], []),
    )


@given(snapshots())
def test_grants_break_no_invariant(snapshot):
    assert check(snapshot) == ()
    assert check(applied(snapshot)) == ()


@given(snapshots())
def test_every_job_is_granted_whole_or_waits_for_one_reason(snapshot):
    decision = decide(snapshot, NOW)

    granted = {grant.job_id: grant for grant in decision.grants}
    waiting = [job.job_id for entry in decision.waiting for job in entry.jobs]
    assert sorted([*granted, *waiting]) == sorted(job.job_id for job in snapshot.queue)
    for job in snapshot.queue:
        if job.job_id in granted:
            assert len(granted[job.job_id].slots) == job.kind.devices


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(snapshot, random):
    nodes, waiting = list(snapshot.occupancy.nodes), list(snapshot.queue)
    random.shuffle(nodes)
    random.shuffle(waiting)

    shuffled = Snapshot(Occupancy(tuple(nodes), snapshot.occupancy.holdings), Queue.of(waiting))

    first, second = decide(shuffled, NOW), decide(snapshot, NOW)
    assert first.grants == second.grants
    assert set(first.waiting) == set(second.waiting)


@given(snapshots())
def test_deciding_again_after_applying_grants_nothing_more(snapshot):
    assert decide(applied(snapshot), NOW).grants == ()


@given(snapshots())
def test_the_decision_is_that_of_a_walk_job_by_job(snapshot):
    """The rule as one would write it down, without kinds, lines and rooms."""
    granted: dict[str, Grant] = {}
    blocked: set[tuple[str, str]] = set()
    free = {place: dict(nodes) for place, nodes in snapshot.occupancy.free.items()}
    for job in ordered(snapshot):
        kind = job.kind
        if job.not_before is not None and job.not_before > NOW:
            continue
        usable = [
            name
            for name, num_slots in snapshot.occupancy.capacities.get(kind.pool, {}).items()
            if kind.device_type in (None, name) and num_slots >= kind.devices
        ]
        open_types = [name for name in usable if (kind.pool, name) not in blocked]
        placed = [
            (len({slot.node_id for slot in slots}), name, slots)
            for name in open_types
            if (slots := placement(kind.devices, free.get((kind.pool, name), {}))) is not None
        ]
        if not placed:
            blocked.update((kind.pool, name) for name in open_types)
            continue
        _, device_type, slots = min(placed)
        granted[job.job_id] = Grant(job.job_id, device_type, slots)
        nodes = free[kind.pool, device_type]
        free[kind.pool, device_type] = {
            node_id: tuple(slot for slot in left if slot not in slots)
            for node_id, left in nodes.items()
        }

    decision = decide(snapshot, NOW)

    assert {grant.job_id: grant for grant in decision.grants} == granted


def placement(devices: int, free: Mapping[str, Sequence[Slot]]) -> tuple[Slot, ...] | None:
    """Node after node: the smallest that takes all that is missing, else the largest."""
    left = {node_id: slots for node_id, slots in free.items() if slots}
    chosen: list[Slot] = []
    while (missing := devices - len(chosen)) > 0:
        if not left:
            return None
        enough = [(len(slots), node_id) for node_id, slots in left.items() if len(slots) >= missing]
        most = [(-len(slots), node_id) for node_id, slots in left.items()]
        _, node_id = min(enough or most)
        chosen += left.pop(node_id)[:missing]
    return tuple(sorted(chosen))


@given(snapshots())
def test_no_job_gets_devices_that_an_earlier_one_waits_for(snapshot):
    decision = decide(snapshot, NOW)

    blocked = {
        entry.jobs[0].job_id
        for entry in decision.waiting
        if entry.reason in ("no_free_devices", "gang_incomplete")
    }
    granted = {grant.job_id: grant.device_type for grant in decision.grants}
    waited_for: set[tuple[str, str]] = set()
    for job in ordered(snapshot):
        if job.job_id in granted:
            assert (job.kind.pool, granted[job.job_id]) not in waited_for
        elif job.job_id in blocked:
            usable = snapshot.occupancy.usable_types(job.kind)
            waited_for.update((job.kind.pool, name) for name in usable)


@given(snapshots())
def test_no_slot_of_a_removed_node_is_granted(snapshot):
    gone = {node.node_id for node in snapshot.occupancy.nodes if not node.is_schedulable}

    granted = {slot.node_id for grant in decide(snapshot, NOW).grants for slot in grant.slots}

    assert not granted & gone


@given(snapshots())
def test_a_held_device_is_granted_by_no_node(snapshot):
    nodes = snapshot.occupancy.nodes
    again = {f"{node.node_id}-again": node for node in nodes if node.is_schedulable}
    cut = tuple(replace(node, node_id=node_id) for node_id, node in again.items())
    held = {
        device for holding in snapshot.occupancy.holdings.values() for device in holding.devices
    }

    free = Occupancy((*nodes, *cut), snapshot.occupancy.holdings).free

    for of_type in free.values():
        for node_id in of_type.keys() & again.keys():
            assert not {again[node_id].device_of(slot.number) for slot in of_type[node_id]} & held


@given(snapshots(), st.data())
def test_a_queue_that_is_changed_is_the_queue_made_from_what_is_left(snapshot, data):
    jobs = list(snapshot.queue)
    picked = st.lists(st.sampled_from(jobs), unique=True) if jobs else st.just([])
    removed = data.draw(picked)
    kept = [job for job in jobs if job not in removed]

    changed = snapshot.queue.changed(removed, [])

    assert changed == Queue.of(kept)
    assert changed.changed([], removed) == snapshot.queue
    in_pool = [job for job in ordered(snapshot) if job.kind.pool == "default"]
    assert [snapshot.queue.position(job) for job in in_pool] == list(range(1, len(in_pool) + 1))
