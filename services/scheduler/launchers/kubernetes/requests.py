"""What pods request, as Kubernetes counts it, in the amounts of `core.mask`. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.core.mask import Amounts, Request, added
from services.scheduler.launchers.kubernetes import quantities
from services.scheduler.launchers.kubernetes.cluster import NodeRules

PODS = "pods"  # a node runs a limited number of them
_ONE_POD = {PODS: 1000}


def amounts(found: Mapping[str, str]) -> dict[str, int]:
    """Quantities by resource, in thousandths. Raises ValueError."""
    return {name: math.ceil(quantities.parse(str(each)) * 1000) for name, each in found.items()}


def of_pod(spec: Mapping[str, Any]) -> Amounts:
    """Of all containers together, or of the largest init container where that is more; sidecars
    run beside both. Raises ValueError."""
    sidecars: dict[str, int] = {}
    first: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        request = _of_container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = added(sidecars, request)
            request = {}
        first = _largest(first, added(sidecars, request))
    total = _largest(_sum(map(_of_container, spec.get("containers") or ()), sidecars), first)
    total |= _of_container(spec)  # what is requested for the pod as a whole counts instead
    return _sum((amounts(spec.get("overhead") or {}), _ONE_POD), total)


def of_jobs(rules: NodeRules) -> tuple[Request, Request]:
    """Of a pod of a job on a node of shared slots, and on one of devices: `manifest` writes it."""
    slot = amounts({"cpu": rules.slot_cpu, "memory": rules.slot_memory})
    devices = {**slot, **amounts({rules.device_resource: "1"})}
    once = {**amounts(rules.extra_resources), **_ONE_POD}
    return Request(slot, _ONE_POD), Request(devices, once)


def _of_container(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(each: Iterable[Amounts], first: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for more in each:
        total = added(total, more)
    return total


def _largest(one: Amounts, other: Amounts) -> dict[str, int]:
    names = dict.fromkeys((*one, *other))
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in names}
