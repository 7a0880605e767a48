"""Which slots exist and which jobs hold them. Everything derived from that is computed once.

An `Occupancy` is a value: it stays the same as long as no node and no allocation changes, so a
round in which only the queue changed computes none of this again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from services.scheduler.core.mask import Amounts, Mask, added
from services.scheduler.core.model import Holding, Kind, Node, Slot

_NONE: frozenset[int] = frozenset()
_NOTHING: Amounts = {}
# A pool and a device type.
Place = tuple[str, str]


@dataclass(frozen=True)
class Occupancy:
    """`holdings` by allocation id. `mask` None: nobody else uses the nodes."""

    nodes: tuple[Node, ...] = ()
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    mask: Mask | None = None

    @cached_property
    def capacities(self) -> Mapping[str, Mapping[str, int]]:
        """By pool: how many slots it has of each device type."""
        pools: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for node in self.nodes:
            if node.is_schedulable:
                pools[node.pool][node.device_type] += node.num_slots
        return dict(pools)

    @cached_property
    def closed(self) -> Mapping[tuple[str, str | None], Sequence[Node]]:
        """By pool and device type, and by pool and None: its nodes that accept no runs now."""
        found: dict[tuple[str, str | None], list[Node]] = {}
        for node in self.nodes:
            if node.unschedulable and not node.is_removed:
                for device_type in (node.device_type, None):
                    found.setdefault((node.pool, device_type), []).append(node)
        return found

    @cached_property
    def free(self) -> Mapping[Place, Mapping[str, tuple[Slot, ...]]]:
        """By pool and device type: the free slots of each node that has some, lowest number first.

        A device counts as held whichever node it was granted with.
        """
        held: defaultdict[str, list[Set[int]]] = defaultdict(list)
        for holding in self.holdings.values():
            for node_id, numbers in holding.by_node.items():
                held[node_id].append(numbers)
        devices = {device for holding in self.holdings.values() for device in holding.devices}
        found: dict[tuple[str, str], dict[str, tuple[Slot, ...]]] = {}
        for node in self.nodes:
            slots = _free_slots(node, _NONE.union(*held.get(node.node_id, ())), devices)
            if slots:
                found.setdefault((node.pool, node.device_type), {})[node.node_id] = slots
        return found

    def usable_types(self, kind: Kind) -> tuple[str, ...]:
        """The device types of which the pool has enough for the gang, were all of them free."""
        need = (kind.pool, kind.device_type, kind.devices)
        found = self._usable.get(need)
        if found is None:
            capacities = self.capacities.get(kind.pool, {})
            found = self._usable[need] = tuple(
                sorted(
                    device_type
                    for device_type, num_slots in capacities.items()
                    if num_slots >= kind.devices and kind.device_type in (None, device_type)
                )
            )
        return found

    @cached_property
    def _usable(self) -> dict[tuple[str, str | None, int], tuple[str, ...]]:
        """What `usable_types` has answered: thousands of kinds have few different needs."""
        return {}

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        return {node.node_id: node for node in self.nodes}

    @cached_property
    def ours(self) -> Mapping[str, Amounts]:
        """By node: what the pods of jobs request there."""
        found: dict[str, Amounts] = {}
        if self.mask is None:
            return found
        for holding in self.holdings.values():
            for node_id, numbers in holding.by_node.items():
                if (node := self.by_id.get(node_id)) is not None:
                    request = self.mask.request(node.device_type, holding.slot_memory)
                    more = request.of(len(numbers))
                    found[node_id] = added(found.get(node_id, _NOTHING), more)
        return found

    def fitting_types(self, kind: Kind, slot_memory: int) -> tuple[str, ...]:
        """Those of `usable_types` with room for the gang beside other pods, were no job there."""
        return tuple(
            name
            for name in self.usable_types(kind)
            if self.mask is None or self.num_fitting((kind.pool, name), slot_memory) >= kind.devices
        )

    def num_fitting(self, place: Place, slot_memory: int) -> int:
        """The slots that have room beside other pods."""
        assert self.mask is not None
        room = self._fitting.get(slot_memory)
        if room is None:
            room = self._fitting[slot_memory] = Counter()
            for node in self.nodes:
                if node.is_schedulable:
                    number = self.mask.most_slots(node, slot_memory, _NOTHING, node.num_slots)
                    room[node.pool, node.device_type] += number
        return room[place]

    def num_left(self, node: Node, limit: int) -> int:
        """Of so many slots of the node: how many a pod may have that asks for no memory."""
        if self.mask is None:
            return limit
        return self.mask.most_slots(node, 0, self.ours.get(node.node_id, _NOTHING), limit)

    def why_limited(self, place: Place, slot_memory: int) -> Sequence[str]:
        """Why free slots of this place cannot be used, by node."""
        found = self._limited.get((place, slot_memory))
        if found is None:
            found = self._limited[place, slot_memory] = list(self._why_limited(place, slot_memory))
        return found

    def _why_limited(self, place: Place, slot_memory: int) -> Iterator[str]:
        if self.mask is None:
            return
        for node_id, slots in self.free.get(place, {}).items():
            ours = self.ours.get(node_id, _NOTHING)
            why = self.mask.why_limited(self.by_id[node_id], slot_memory, ours, len(slots))
            if why:
                yield f"node {node_id}: {why}"

    @cached_property
    def _fitting(self) -> dict[int, Counter[Place]]:
        """What `num_fitting` has counted, by memory of a slot."""
        return {}

    @cached_property
    def _limited(self) -> dict[tuple[Place, int], Sequence[str]]:
        return {}

    def most_slots(self, kind: Kind) -> int:
        """The most slots of one device type that a job of this kind could hold."""
        return most_slots(self.capacities.get(kind.pool, {}), kind.device_type)


def most_slots(capacities: Mapping[str, int], device_type: str | None) -> int:
    """Of a pool's slots by device type: the most that one allocation could hold."""
    if device_type is not None:
        return capacities.get(device_type, 0)
    return max(capacities.values(), default=0)


def _free_slots(node: Node, held: frozenset[int], devices: Set[int]) -> tuple[Slot, ...]:
    """`held`: the numbers of this node's slots that are; `devices`: those of all nodes."""
    if not node.is_schedulable or held.issuperset(range(node.num_slots)):
        return ()
    free = tuple(
        Slot(node.node_id, number)
        for number in range(node.num_slots)
        if number not in held and node.device_of(number) not in devices
    )
    if node.has_numbered_devices:
        return free
    # Held slots may have numbers that a node which lost devices no longer has.
    return free[: max(0, node.num_slots - len(held))]
