"""A Node object as the scheduler's node. Pure.

Labels give pool, device type and topology; allocatable devices (or CPUs) give the slots. A node
that is cordoned, not ready, being deleted, unhealthy by a condition, or has a taint that pods do
not tolerate, gets nothing new; what runs there runs to its end.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from drivetrain_schemas.text import storable
from services.scheduler.core.model import SHARED, Node
from services.scheduler.launchers.kubernetes import quantities
from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.taints import kept_away_by

SLOTS_LABEL = "drivetrain.dev/slots"
DEFAULT_POOL = "default"
# The label that NVIDIA's device discovery writes.
_PRODUCT_LABEL = "nvidia.com/gpu.product"
_MAX_SLOTS = 100_000
_MAX_NAME = 63
_MAX_NODE_ID = 128
_MAX_WORDS = 300


def read_node(found: Mapping[str, Any], rules: NodeRules) -> Node | None:
    """None for a node without slots, such as one of the control plane."""
    metadata = found["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    name: str = metadata["name"]
    slots, device_type = _slots(found, labels, rules)
    if slots < 1 or len(name) > _MAX_NODE_ID:
        return None
    spot_key, _, spot_value = rules.spot_label.partition("=")
    return Node(
        name,
        _word(labels.get(rules.pool_label, ""), "a-z0-9-") or DEFAULT_POOL,
        device_type,
        min(slots, _MAX_SLOTS),
        first_device=None,  # the kubelet chooses which devices a pod gets
        is_spot=labels.get(spot_key) == spot_value,
        topology=labels.get(rules.topology_label),
        unschedulable=why_closed(found, rules),
    )


def why_closed(found: Mapping[str, Any], rules: NodeRules) -> str:
    """Why no new pod may be placed on it; empty where one may."""
    spec = found.get("spec") or {}
    if "deletionTimestamp" in found["metadata"]:
        return "being deleted"
    if not is_ready(found):
        return "not ready"
    if spec.get("unschedulable", False):
        return "cordoned"
    unhealthy = _unhealthy(found, rules)
    if unhealthy:
        return unhealthy
    taint = kept_away_by(spec.get("taints") or (), rules.tolerations)
    return "" if taint is None else f"taint {taint}"


def with_kept_words(node: Node, before: Node | None) -> Node:
    """While a node has one condition its first words stay: each change of them is an event, and
    agents count and tell the time in theirs."""
    name, has_words, _ = node.unschedulable.partition(": ")
    if before is not None and has_words and before.unschedulable.startswith(f"{name}: "):
        return replace(node, unschedulable=before.unschedulable)
    return node


def is_ready(found: Mapping[str, Any]) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _unhealthy(found: Mapping[str, Any], rules: NodeRules) -> str:
    """The first condition by which the kubelet or an agent calls the node unhealthy, in its
    words."""
    for each in (found.get("status") or {}).get("conditions") or ():
        state = f"{each['type']}={each['status']}"
        if any(fnmatchcase(state, pattern) for pattern in rules.unhealthy_conditions):
            message = each.get("message") or each.get("reason") or ""
            words = f"{each['type']}: {message}" if message else str(each["type"])
            return storable(words[:_MAX_WORDS])
    return ""


def _slots(
    found: Mapping[str, Any], labels: Mapping[str, str], rules: NodeRules
) -> tuple[int, str]:
    """How many slots it has, and their device type."""
    allocatable = (found.get("status") or {}).get("allocatable") or {}
    num_devices = int(quantities.parse(allocatable.get(rules.device_resource, "0")))
    device_type = _word(labels.get(rules.device_type_label, ""), "a-z0-9.-")
    if num_devices:
        slots = num_devices
        device_type = device_type or _word(labels.get(_PRODUCT_LABEL, ""), "a-z0-9.-") or "gpu"
    elif device_type not in ("", SHARED):
        return 0, device_type  # its devices are not available, for example without a driver
    else:
        slots = int(
            quantities.parse(allocatable.get("cpu", "0")) / quantities.parse(rules.slot_cpu)
        )
        device_type = SHARED
    override = labels.get(SLOTS_LABEL, "")
    if override.isdecimal():
        slots = int(override) if device_type == SHARED else min(slots, int(override))
    return slots, device_type


def _word(label: str, allowed: str) -> str:
    """A label's value as a name of ours, which has small letters only."""
    return re.sub(f"[^{allowed}]", "-", label.lower())[:_MAX_NAME].strip("-.")
