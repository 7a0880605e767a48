"""How much of each node is free for pods of jobs, where other pods share the nodes. Pure.

A node offers slots by what it has; a `Mask` bounds how many of them can be placed there now. It is
known in memory only: room changes with every pod of the cluster, and events are kept for ever.
Amounts count thousandths of a unit, so that 100m of a CPU is 100.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.scheduler.core.model import SHARED, Node

Amounts = Mapping[str, int]  # by resource
MEMORY = "memory"
_GIB = 1000 * 2**30


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod of a job requests: for each of its slots, and once."""

    slot: Amounts
    pod: Amounts = field(default_factory=dict)

    def of(self, num_slots: int) -> dict[str, int]:
        slots = {name: num_slots * amount for name, amount in self.slot.items()}
        return {**slots, **{name: slots.get(name, 0) + each for name, each in self.pod.items()}}

    def with_memory(self, slot_memory: int) -> "Request":
        """0: the request as it is."""
        return Request({**self.slot, MEMORY: slot_memory}, self.pod) if slot_memory else self

    def within(self, left: Amounts, limit: int) -> int:
        """The slots of the largest pod that `left` has room for."""
        if any(left.get(name, 0) < amount for name, amount in self.pod.items()):
            return 0
        rooms = (
            (left.get(name, 0) - self.pod.get(name, 0)) // amount
            for name, amount in self.slot.items()
            if amount > 0
        )
        return max(0, min((limit, *rooms)))

    def below(self, amounts: Amounts, limit: int) -> int:
        """The slots of the largest pod that requests less of some resource than `amounts`."""
        least = 0
        for name, amount in amounts.items():
            missing = amount - self.pod.get(name, 0)
            if missing > 0 and not self.slot.get(name):
                return limit
            least = max(least, -(-missing // self.slot[name]) if missing > 0 else 0)
        return min(limit, max(0, least - 1))


@dataclass(frozen=True, slots=True)
class Misfit:
    """A pod that did not fit on a node: nothing as large is placed there for a while.

    `amounts`: what it requested; empty where no pod would fit.
    """

    amounts: Amounts
    detail: str


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """`has`: what the node can give to pods; `others`: what pods request there that are not of
    jobs."""

    has: Amounts
    others: Amounts = field(default_factory=dict)
    misfit: Misfit | None = None

    def most_slots(self, request: Request, ours: Amounts, limit: int) -> int:
        """How many slots one more pod may have; `ours`: what jobs have there."""
        found = request.within(self.left(ours), limit)
        return found if self.misfit is None else request.below(self.misfit.amounts, found)

    def left(self, ours: Amounts) -> dict[str, int]:
        return {
            name: amount - self.others.get(name, 0) - ours.get(name, 0)
            for name, amount in self.has.items()
        }

    def why_limited(self, request: Request, ours: Amounts, limit: int) -> str:
        """Why fewer than `limit` slots can be placed, in a sentence."""
        left = self.left(ours)
        num_slots = request.within(left, limit)
        if num_slots < limit:
            wanted = request.of(num_slots + 1)
            name = next(each for each in wanted if left.get(each, 0) < wanted[each])
            return self._why_short(name, left.get(name, 0), ours.get(name, 0))
        return "" if self.misfit is None else self.misfit.detail

    def _why_short(self, name: str, left: int, ours: int) -> str:
        users = [
            f"{who} {_written(name, amount)}"
            for who, amount in (("other pods request", self.others.get(name, 0)), ("jobs", ours))
            if amount
        ]
        why = f" ({', '.join(users)})" if users else ""
        free, has = _written(name, max(0, left)), _written(name, self.has.get(name, 0))
        return f"{free} of {has} {_named(name)} are free for jobs{why}"


@dataclass(frozen=True, slots=True)
class Mask:
    """`rooms` by node; one that is not in it is not bounded. `shared`, `devices`: what pods request
    on nodes of shared slots, and of devices."""

    rooms: Mapping[str, NodeRoom]
    shared: Request
    devices: Request

    def request(self, device_type: str, slot_memory: int = 0) -> Request:
        base = self.shared if device_type == SHARED else self.devices
        return base.with_memory(slot_memory)

    def most_slots(self, node: Node, slot_memory: int, ours: Amounts, limit: int) -> int:
        """Of `limit` slots of the node: how many a new pod may have."""
        room = self.rooms.get(node.node_id)
        if room is None or not limit:
            return limit
        return room.most_slots(self.request(node.device_type, slot_memory), ours, limit)

    def why_limited(self, node: Node, slot_memory: int, ours: Amounts, limit: int) -> str:
        """Empty where that many fit."""
        room = self.rooms.get(node.node_id)
        if room is None:
            return ""
        return room.why_limited(self.request(node.device_type, slot_memory), ours, limit)


def added(amounts: Amounts, more: Amounts) -> dict[str, int]:
    names = dict.fromkeys((*amounts, *more))
    return {name: amounts.get(name, 0) + more.get(name, 0) for name in names}


def _written(name: str, amount: int) -> str:
    if _is_bytes(name):
        return f"{amount / _GIB:.4g}"
    if name == "cpu" and 0 < amount < 1000:
        return f"{amount}m"
    return f"{amount / 1000:g}"


def _named(name: str) -> str:
    return "CPUs" if name == "cpu" else f"GiB of {name}" if _is_bytes(name) else name


def _is_bytes(name: str) -> bool:
    return name in (MEMORY, "ephemeral-storage") or name.startswith("hugepages-")
