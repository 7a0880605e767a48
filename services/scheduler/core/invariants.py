"""Invariants of every snapshot: `check(snapshot)` returns the broken ones as sentences.

Called by tests, by the simulation, and at every resync in production, where each broken invariant
is counted and logged. The database forbids double allocation on its own as well.
"""

from collections import Counter

from services.scheduler.core.snapshot import Snapshot


def check(snapshot: Snapshot) -> tuple[str, ...]:
    broken: list[str] = []
    holdings = snapshot.occupancy.holdings.values()
    slots = Counter(slot for holding in holdings for slot in holding.slots)
    broken += [
        f"slot {slot.number} of {slot.node_id} is held {count} times"
        for slot, count in sorted(slots.items())
        if count > 1
    ]
    devices = Counter(device for holding in holdings for device in holding.devices)
    broken += [
        f"device {device} is held {count} times"
        for device, count in sorted(devices.items())
        if count > 1
    ]
    holders = Counter(holding.job_id for holding in holdings)
    broken += [
        f"{job_id} holds {count} allocations"
        for job_id, count in sorted(holders.items())
        if count > 1
    ]
    broken += [
        f"{job.job_id} waits although it holds slots"
        for job in snapshot.queue
        if job.job_id in holders
    ]
    broken += [
        f"{holding.allocation_id} holds no slot" for holding in holdings if not holding.slots
    ]
    known = {node.node_id for node in snapshot.occupancy.nodes}
    broken += [
        f"{holding.allocation_id} holds slots of the unknown node {node_id}"
        for holding in holdings
        for node_id in sorted({slot.node_id for slot in holding.slots} - known)
    ]
    ids = Counter(job.job_id for job in snapshot.queue)
    broken += [
        f"{job_id} waits {count} times" for job_id, count in sorted(ids.items()) if count > 1
    ]
    return tuple(broken)
