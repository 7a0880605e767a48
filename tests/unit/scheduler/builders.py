"""Valid defaults: a case names only what it is about."""

from datetime import UTC, datetime, timedelta

from drivetrain_schemas.runs import RunState
from services.scheduler.core.model import Holding, Node, QueuedJob, Slot
from services.scheduler.core.pods import Exit, PodState, PodView, RunView, Sight
from services.scheduler.core.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_node(node_id: str = "n1", slots: int = 2, **changes) -> Node:
    return Node(node_id, **{"pool": "default", "device_type": "cpu", "num_slots": slots, **changes})


def make_job(name: str = "a", devices: int = 1, submission: int = 1, **changes) -> QueuedJob:
    return QueuedJob(
        f"job_{name}", **{"pool": "default", **changes}, devices=devices, submission=submission
    )


def make_holding(name: str, *slots: tuple[str, int]) -> Holding:
    return Holding(f"job_{name}", f"alloc_{name}_1", tuple(Slot(*slot) for slot in slots))


NODES = (make_node(),)


def make_snapshot(nodes=NODES, waiting=(), holdings=()) -> Snapshot:
    return Snapshot(tuple(nodes), tuple(waiting), tuple(holdings))


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
