"""All-or-nothing placement: every slot of a gang, on the fewest nodes, or none.

In: a number of devices and the free slots of each candidate node. Out: the slots, or None.
Of several placements on equally few nodes the tightest is taken, so that large free nodes stay
whole for large jobs; the node's id decides between equals.
"""

from collections.abc import Mapping, Sequence

from services.scheduler.core.model import Slot

FreeSlots = Mapping[str, Sequence[Slot]]


def place_job(
    devices: int, free_by_type: Mapping[str, FreeSlots]
) -> tuple[str, tuple[Slot, ...]] | None:
    """The device type and the slots for the job; fewest nodes first, then the type's name."""
    best: tuple[int, str, tuple[Slot, ...]] | None = None
    for device_type, free in free_by_type.items():
        slots = place(devices, free)
        if slots is None:
            continue
        candidate = (len({slot.node_id for slot in slots}), device_type, slots)
        best = candidate if best is None else min(best, candidate)
    return None if best is None else (best[1], best[2])


def place(devices: int, free: FreeSlots) -> tuple[Slot, ...] | None:
    """`devices` of the free slots, in order of node and number."""
    if sum(map(len, free.values())) < devices:
        return None
    left = {node_id: slots for node_id, slots in free.items() if slots}
    chosen: list[Slot] = []
    missing = devices
    while missing > 0:
        node_id = _next_node(missing, left)
        taken = left.pop(node_id)[:missing]
        chosen.extend(taken)
        missing -= len(taken)
    return tuple(sorted(chosen))


def _next_node(missing: int, left: FreeSlots) -> str:
    """The smallest node that takes all that is missing, else the largest."""
    enough = [(len(slots), node_id) for node_id, slots in left.items() if len(slots) >= missing]
    if enough:
        return min(enough)[1]
    return min((-len(slots), node_id) for node_id, slots in left.items())[1]
