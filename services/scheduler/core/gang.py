"""All-or-nothing placement: every slot of a gang, on the fewest nodes, or none.

Of several placements on equally few nodes the tightest is taken, so that large free nodes stay
whole for large jobs; the node's id decides between equals. A placement costs as much as the nodes
that it takes, however many are free.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from services.scheduler.core.mask import Amounts, Mask, added
from services.scheduler.core.model import Node, Slot


class _Sizes:
    """Nodes by how many slots they have for a pod: few numbers differ."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.of = {node_id: number for node_id, number in numbers.items() if number}
        self.num_slots = sum(self.of.values())
        self._nodes: dict[int, list[str]] = {}
        for node_id in sorted(self.of):
            self._nodes.setdefault(self.of[node_id], []).append(node_id)

    def put(self, node_id: str, number: int) -> None:
        before = self.of.pop(node_id, 0)
        self.num_slots += number - before
        if before:
            nodes = self._nodes[before]
            del nodes[bisect_left(nodes, node_id)]
        if number:
            self.of[node_id] = number
            insort(self._nodes.setdefault(number, []), node_id)

    def largest_first(self) -> Iterator[str]:
        for size in sorted(self._nodes, reverse=True):
            yield from self._nodes[size]

    def tightest(self, missing: int, taken: set[str]) -> str:
        """The smallest of the other nodes that takes all that is missing."""
        enough = (size for size in sorted(self._nodes) if size >= missing)
        nodes = (node_id for size in enough for node_id in self._nodes[size])
        return next(node_id for node_id in nodes if node_id not in taken)


class Room:
    """The free slots of one pool and device type, while one decision grants them.

    `ours`: what jobs request on each node. Sizes are kept for each memory of a slot that is asked
    for: a decision bounds how many of these differ.
    """

    def __init__(
        self,
        free: Mapping[str, tuple[Slot, ...]],
        mask: Mask | None = None,
        nodes: Mapping[str, Node] | None = None,
        ours: Mapping[str, Amounts] | None = None,
    ) -> None:
        self._free = dict(free)
        self._mask = mask
        self._nodes = nodes or {}
        self._ours = dict(ours or {}) if mask is not None else {}
        self._sizes: dict[int, _Sizes] = {}

    def num_free(self, slot_memory: int = 0) -> int:
        """The slots that pods with so much memory for each could have."""
        return self._of(slot_memory).num_slots

    def place(self, devices: int, slot_memory: int = 0) -> tuple[Slot, ...] | None:
        """`devices` of the free slots, in order of node and number."""
        sizes = self._of(slot_memory)
        if sizes.num_slots < devices:
            return None
        chosen: list[Slot] = []
        taken: set[str] = set()
        for largest in sizes.largest_first():
            missing = devices - len(chosen)
            is_last = sizes.of[largest] >= missing
            node_id = sizes.tightest(missing, taken) if is_last else largest
            chosen += self._free[node_id][: min(missing, sizes.of[node_id])]
            taken.add(node_id)
            if is_last:
                break
        return tuple(sorted(chosen))

    def take(self, slots: tuple[Slot, ...], slot_memory: int = 0) -> None:
        """These are free no longer."""
        gone = set(slots)
        for node_id in {slot.node_id for slot in slots}:
            before = self._free[node_id]
            left = self._free[node_id] = tuple(slot for slot in before if slot not in gone)
            if self._mask is not None:
                request = self._mask.request(self._nodes[node_id].device_type, slot_memory)
                more = request.of(len(before) - len(left))
                self._ours[node_id] = added(self._ours.get(node_id, {}), more)
            for memory, sizes in self._sizes.items():
                sizes.put(node_id, self._limit(node_id, memory))

    def _of(self, slot_memory: int) -> _Sizes:
        # Without a mask nothing differs.
        key = slot_memory if self._mask is not None else 0
        if key not in self._sizes:
            numbers = {node_id: self._limit(node_id, key) for node_id in self._free}
            self._sizes[key] = _Sizes(numbers)
        return self._sizes[key]

    def _limit(self, node_id: str, slot_memory: int) -> int:
        number = len(self._free[node_id])
        if self._mask is None:
            return number
        ours = self._ours.get(node_id, {})
        return self._mask.most_slots(self._nodes[node_id], slot_memory, ours, number)


def place_job(
    devices: int, rooms: Mapping[str, Room], slot_memory: int = 0
) -> tuple[str, tuple[Slot, ...]] | None:
    """The device type and the slots for the job; fewest nodes first, then the type's name."""
    found = [
        (len({slot.node_id for slot in slots}), device_type, slots)
        for device_type, room in rooms.items()
        if (slots := room.place(devices, slot_memory)) is not None
    ]
    return min(found)[1:] if found else None
