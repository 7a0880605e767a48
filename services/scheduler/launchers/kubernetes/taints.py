"""Whether a toleration covers a taint, by the rules of Kubernetes."""

from collections.abc import Iterable, Mapping
from typing import Any

# A lost connection to a node ends nothing: its pods go on, and are proven gone before their slots
# are granted again (docs/architecture.md, rule 7).
LOST_NODES: tuple[Mapping[str, Any], ...] = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
    for key in ("not-ready", "unreachable")
)
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def kept_away_by(
    taints: Iterable[Mapping[str, Any]], tolerations: Iterable[Mapping[str, Any]]
) -> str | None:
    """The first taint that keeps a new pod with these tolerations off the node, as text."""
    accepted = tuple(tolerations)
    for taint in taints:
        is_covered = any(_covers(each, taint) for each in accepted)
        if taint.get("effect") in _KEEPS_AWAY and not is_covered:
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{taint['key']}{value}:{taint['effect']}"
    return None


def _covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")
