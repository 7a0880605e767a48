"""Valid defaults: a case names only what it is about."""

from datetime import UTC, datetime, timedelta

from drivetrain_schemas.runs import RunState
from services.scheduler.core.model import Holding, Kind, Node, QueuedJob, Slot
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.pods import Exit, PodState, PodView, RunView, Sight
from services.scheduler.core.queue import Queue
from services.scheduler.core.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_node(node_id: str = "n1", slots: int = 2, **changes) -> Node:
    return Node(node_id, **{"pool": "default", "device_type": "cpu", "num_slots": slots, **changes})


def make_job(name: str = "a", devices: int = 1, submission: int = 1, **changes) -> QueuedJob:
    facts = {"pool": "default", "device_type": None, "priority": 0, "devices": devices}
    if "memory_bytes" in changes:
        facts["memory_bytes"] = None
    kind = Kind(**{key: changes.pop(key, default) for key, default in facts.items()})
    return QueuedJob(f"job_{name}", kind, submission, **changes)


def make_holding(name: str, *slots: tuple[str, int], attempt: int = 1) -> Holding:
    return Holding(f"job_{name}", f"alloc_{name}_{attempt}", tuple(Slot(*slot) for slot in slots))


NODES = (make_node(),)


def make_snapshot(nodes=NODES, waiting=(), holdings=()) -> Snapshot:
    by_id = {holding.allocation_id: holding for holding in holdings}
    return Snapshot(Occupancy(tuple(nodes), by_id), Queue.of(waiting))


def make_exit(outcome: str = "succeeded", **changes) -> Exit:
    return Exit(outcome, **{"ended_at": NOW, **changes})


def make_pod(index: int = 0, sight: Sight = Sight.ALIVE, **changes) -> PodView:
    facts = {"state": PodState.LAUNCHED, "was_alive": sight is Sight.ALIVE, "launches": 1}
    return PodView(f"pod_{index}", index, sight=sight, **{**facts, **changes})


def make_ended(index: int = 0, outcome: str = "succeeded", **changes) -> PodView:
    end = make_exit(outcome, **changes.pop("end", {}))
    return make_pod(index, Sight.ENDED, was_alive=True, exit=end, **changes)


def make_run(*pods: PodView, **changes) -> RunView:
    return RunView("run_a_1", **{"state": RunState.RUNNING, **changes}, pods=pods)
