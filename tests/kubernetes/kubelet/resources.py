"""Whether a node has what a pod requests: the kubelet's own admission, whoever bound the pod."""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
FACTORS = {
    "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


def amount(text: str | float) -> float:
    """A Kubernetes quantity as a number."""
    for suffix in sorted(FACTORS, key=len, reverse=True):
        if str(text).endswith(suffix):
            return float(str(text).removesuffix(suffix)) * FACTORS[suffix]
    return float(text)


def requests_of(pod: Object) -> dict[str, float]:
    """All its containers together, or one init container if that requests more."""
    total: dict[str, float] = {}
    for container in pod["spec"]["containers"]:
        for name, value in _requested(container).items():
            total[name] = total.get(name, 0.0) + value
    for container in pod["spec"].get("initContainers", ()):
        for name, value in _requested(container).items():
            total[name] = max(total.get(name, 0.0), value)
    return total


def rejection(
    pod: Object, others: Iterable[Object], allocatable: Mapping[str, str]
) -> tuple[str, str] | None:
    """Reason and message, as the kubelet words them; None where the pod fits beside the others."""
    used: dict[str, float] = {"pods": 0.0}
    for other in others:
        used["pods"] += 1
        for name, value in requests_of(other).items():
            used[name] = used.get(name, 0.0) + value
    for name, value in {"pods": 1.0, **requests_of(pod)}.items():
        capacity = amount(allocatable.get(name, "0"))
        if used.get(name, 0.0) + value > capacity:
            amounts = f"requested: {value:g}, used: {used.get(name, 0.0):g}, capacity: {capacity:g}"
            message = f"Pod was rejected: Node didn't have enough resource: {name}, {amounts}"
            return f"OutOf{name}", message
    return None


def _requested(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(value) for name, value in wanted.items()}
