"""A pod's status as a kubelet reports it: pure functions of what its containers do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.kubelet.containers import LOST, State

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a pod on its node. `waiting`: reason and message of what has not started."""

    inits: Mapping[str, State]
    mains: Mapping[str, State]
    waiting: tuple[str, str] = ("ContainerCreating", "")
    # Why the kubelet itself ended the pod: reason and message, such as Evicted or OutOfcpu.
    failure: tuple[str, str] | None = None
    is_over: bool = False  # it was deleted and nothing of it runs


def is_initialized(seen: Seen) -> bool:
    return all(state.kind == "terminated" and state.exit_code == 0 for state in seen.inits.values())


def phase_of(seen: Seen) -> str:
    if seen.failure:
        return "Failed"
    if any(state.kind == "terminated" and state.exit_code for state in seen.inits.values()):
        return "Failed"
    kinds = [state.kind for state in seen.mains.values()]
    if kinds and all(kind == "terminated" for kind in kinds):
        return "Failed" if any(state.exit_code for state in seen.mains.values()) else "Succeeded"
    if seen.is_over:
        return "Failed"
    return "Pending" if all(kind in ("absent", "starting") for kind in kinds) else "Running"


def pod_status(pod: Object, seen: Seen, host: str, address: str, now: str) -> dict[str, Any]:
    phase = phase_of(seen)
    initialized = is_initialized(seen)
    ready = phase == "Running" and all(state.kind == "running" for state in seen.mains.values())
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase)
    why = None if ready else over or "ContainersNotReady"
    conditions = [
        _condition(
            "Initialized", initialized, now, None if initialized else "ContainersNotInitialized"
        ),
        _condition("Ready", ready, now, why),
        _condition("ContainersReady", ready, now, why),
    ]
    status = {
        "phase": phase,
        "hostIP": host,
        "startTime": pod.get("status", {}).get("startTime") or now,
        "conditions": conditions,
        "reason": seen.failure[0] if seen.failure else None,
        "message": seen.failure[1] if seen.failure else None,
    }
    if seen.failure and seen.failure[0].startswith("OutOf"):
        return status  # rejected: it never had an address or containers
    if seen.failure and seen.failure[0] == "Evicted":
        conditions.append(
            _condition("DisruptionTarget", True, now, "TerminationByKubelet", seen.failure[1])
        )
    status |= {"podIP": address, "podIPs": [{"ip": address}]}
    for key, specs, states in (
        ("initContainerStatuses", pod["spec"].get("initContainers", ()), seen.inits),
        ("containerStatuses", pod["spec"]["containers"], seen.mains),
    ):
        status[key] = _container_statuses(specs, states, seen, initialized, is_init="init" in key)
    return status


def _container_statuses(
    specs: Sequence[Object],
    states: Mapping[str, State],
    seen: Seen,
    initialized: bool,
    *,
    is_init: bool,
) -> list[dict[str, Any]]:
    statuses = []
    begun = initialized or is_init
    for spec in specs:
        state = states[spec["name"]]
        statuses.append(
            {
                "name": spec["name"],
                "image": spec["image"],
                "imageID": "" if state.kind == "absent" else f"test://{spec['image']}",
                "containerID": "" if state.kind == "absent" else f"test://{spec['name']}",
                "restartCount": 0,
                "started": state.kind == "running",
                "ready": state.kind == "running"
                or (is_init and state.kind == "terminated" and state.exit_code == 0),
                "state": _state(state, seen, begun),
                "lastState": {},
            }
        )
        # Later init containers wait for this one.
        if is_init and not (state.kind == "terminated" and state.exit_code == 0):
            begun = False
    return statuses


def _state(state: State, seen: Seen, begun: bool) -> dict[str, Any]:
    if state.kind == "running":
        return {"running": {"startedAt": state.started_at}}
    if state.kind == "terminated":
        return {
            "terminated": {
                "exitCode": state.exit_code,
                "reason": state.reason,
                "message": state.message or None,
                "startedAt": state.started_at,
                "finishedAt": state.finished_at,
            }
        }
    if seen.is_over and begun:
        lost = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST}
        return {"terminated": {**lost, "startedAt": None, "finishedAt": None}}
    if not begun:
        return {"waiting": {"reason": "PodInitializing"}}
    reason, message = seen.waiting
    return {"waiting": {"reason": reason, "message": message or None}}


def _condition(
    kind: str, holds: bool, now: str, reason: str | None = None, message: str | None = None
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
