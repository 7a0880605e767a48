"""A decision over the whole queue, with all that is derived from the fleet and from what is held.

Nodes, held slots, waiting kinds and jobs, budgets that are used up, and grants grow together.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from services.scheduler.core.cycle import MAX_GRANTS, decide
from services.scheduler.core.holds import Hold
from services.scheduler.core.mask import Mask, NodeRoom, Request
from services.scheduler.core.model import Holding, Node, QueuedJob, Slot
from services.scheduler.core.reasons import holders
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.loop import MAX_ANNOUNCED, WAITS_FOR_HOLDERS
from tests.costs.counting import Runs, measure
from tests.unit.scheduler.builders import NOW, after, make_job, make_node, make_snapshot

SLOTS = 8
JOBS_OF_A_KIND = 4
CPU = Request({"cpu": 1000, "memory": 1000})
# Numbered devices, shared CPUs, devices that the node itself divides, and a node that is closed.
NODES = (
    make_node(slots=SLOTS, device_type="gpu"),
    make_node(slots=SLOTS, device_type="cpu"),
    make_node(slots=SLOTS, device_type="tpu", first_device=None),
    make_node(slots=SLOTS, device_type="gpu", unschedulable="cordoned"),
)


async def full_fleet(size: int) -> Runs:
    """Every slot is held, and one job in four needs more than there are: all jobs wait."""
    nodes = fleet(size)
    held = [holding(node, SLOTS) for node in nodes]
    waiting = queue(size, lambda random: random.choice([1, 2, SLOTS, SLOTS * size]))
    while True:
        snapshot = replace(make_snapshot(nodes, waiting, held), holds=budgets(size))
        yield partial(a_round, snapshot, max_grants=size)


async def free_fleet(size: int) -> Runs:
    """Half of each node is free: as many jobs start as there are nodes, the first of them on an
    eighth of the nodes."""
    nodes = fleet(size)
    held = [holding(node, SLOTS // 2) for node in nodes]
    gang = make_job("gang", devices=size // 2, priority=size)
    waiting = [gang, *queue(size, lambda random: random.choice([1, 2, 3, SLOTS]))]
    while True:
        snapshot = replace(make_snapshot(nodes, waiting, held), holds=budgets(size))
        yield partial(a_round, snapshot, max_grants=size)


async def shared_fleet(size: int) -> Runs:
    """Other pods leave room for one more pod on each node, and each kind asks for other memory."""
    nodes = fleet(size)
    held = [replace(holding(node, 2), memory_bytes=2000) for node in nodes]
    room = NodeRoom({"cpu": 8000, "memory": 64_000_000}, {"cpu": 5500})
    mask = Mask({node.node_id: room for node in nodes}, CPU, CPU)
    kinds = queue(size, lambda random: random.choice([1, 2, SLOTS, SLOTS * size // 4]))
    waiting = [
        replace(job, kind=replace(job.kind, memory_bytes=1000 + job.submission % size))
        for job in kinds
    ]
    while True:
        snapshot = make_snapshot(nodes, waiting, held)
        occupancy = replace(snapshot.occupancy, mask=mask)
        yield partial(a_round, replace(snapshot, occupancy=occupancy), max_grants=MAX_GRANTS)


async def announced(size: int) -> Runs:
    """Where one job of each kind is in the queue, for as many as a round announces."""
    waiting = make_snapshot((), queue(size, lambda random: 1)).queue
    heads = [line[0] for line in waiting.lines.values()]
    while True:
        yield lambda: [waiting.position(job) for job in heads[:MAX_ANNOUNCED]]


def a_round(snapshot: Snapshot, max_grants: int) -> None:
    """A decision, and who holds what the unblocked jobs of it wait for."""
    for waiting in decide(snapshot, NOW, max_grants).waiting:
        if waiting.reason in WAITS_FOR_HOLDERS:
            holders(waiting.jobs[0].kind, snapshot.occupancy)


def fleet(size: int) -> list[Node]:
    kinds = (NODES[number % len(NODES)] for number in range(size))
    return [
        replace(node, node_id=f"n{number}", first_device=node.first_device and number * SLOTS)
        for number, node in enumerate(kinds)
    ]


def holding(node: Node, number: int) -> Holding:
    slots = tuple(Slot(node.node_id, each) for each in range(number))
    devices = (node.device_of(slot.number) for slot in slots)
    known = tuple(device for device in devices if device is not None)
    return Holding(f"job_{node.node_id}", f"a_{node.node_id}", slots, known)


def queue(size: int, devices: Callable[[Random], int]) -> list[QueuedJob]:
    """As many kinds as `size`. Some jobs back off, and a budget holds half of the projects back."""
    random = Random(1)
    wanted = [devices(random) for _ in range(size)]
    return [
        make_job(
            f"j{number}",
            devices=wanted[number % size],
            priority=number % size,
            submission=number,
            not_before=after(60) if number % 7 == 0 else None,
            tenant_id="acme",
            project=f"p{number % (2 * size)}",
        )
        for number in range(JOBS_OF_A_KIND * size)
    ]


def budgets(size: int) -> tuple[Hold, ...]:
    return tuple(Hold("acme", f"b{each}", "used up", project=f"p{each}") for each in range(size))


@pytest.mark.parametrize("scenario", [full_fleet, free_fleet, shared_fleet])
async def test_a_decision_costs_as_much_as_its_inputs(scenario) -> None:
    (await measure(scenario, 250)).assert_linear()


async def test_a_position_costs_as_much_as_the_kinds_before_it() -> None:
    (await measure(announced, MAX_ANNOUNCED)).assert_linear()
