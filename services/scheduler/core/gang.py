"""All-or-nothing placement: every slot of a gang, on the fewest nodes, or none.

Of several placements on equally few nodes the tightest is taken, so that large free nodes stay
whole for large jobs; the node's id decides between equals. A placement costs as much as the nodes
that it takes, however many are free.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from services.scheduler.core.model import Slot


class Room:
    """The free slots of one pool and device type, while one decision grants them.

    Nodes are kept by the number of their free slots: few numbers differ.
    """

    def __init__(self, free: Mapping[str, tuple[Slot, ...]]) -> None:
        self.num_free = sum(map(len, free.values()))
        self._free = dict(free)
        self._by_size: dict[int, list[str]] = {}
        for node_id in sorted(free):
            self._by_size.setdefault(len(free[node_id]), []).append(node_id)

    def place(self, devices: int) -> tuple[Slot, ...] | None:
        """`devices` of the free slots, in order of node and number."""
        if self.num_free < devices:
            return None
        chosen: list[Slot] = []
        taken: set[str] = set()
        for largest in self._largest_first():
            missing = devices - len(chosen)
            is_last = len(self._free[largest]) >= missing
            node_id = self._tightest(missing, taken) if is_last else largest
            chosen += self._free[node_id][:missing]
            taken.add(node_id)
            if is_last:
                break
        return tuple(sorted(chosen))

    def take(self, slots: tuple[Slot, ...]) -> None:
        """These are free no longer."""
        self.num_free -= len(slots)
        gone = set(slots)
        for node_id in {slot.node_id for slot in slots}:
            before = self._free.pop(node_id)
            nodes = self._by_size[len(before)]
            del nodes[bisect_left(nodes, node_id)]
            left = tuple(slot for slot in before if slot not in gone)
            if left:
                self._free[node_id] = left
                insort(self._by_size.setdefault(len(left), []), node_id)

    def _largest_first(self) -> Iterator[str]:
        for size in sorted(self._by_size, reverse=True):
            yield from self._by_size[size]

    def _tightest(self, missing: int, taken: set[str]) -> str:
        """The smallest of the other nodes that takes all that is missing."""
        enough = (size for size in sorted(self._by_size) if size >= missing)
        nodes = (node_id for size in enough for node_id in self._by_size[size])
        return next(node_id for node_id in nodes if node_id not in taken)


def place_job(devices: int, rooms: Mapping[str, Room]) -> tuple[str, tuple[Slot, ...]] | None:
    """The device type and the slots for the job; fewest nodes first, then the type's name."""
    found = [
        (len({slot.node_id for slot in slots}), device_type, slots)
        for device_type, room in rooms.items()
        if (slots := room.place(devices)) is not None
    ]
    return min(found)[1:] if found else None
