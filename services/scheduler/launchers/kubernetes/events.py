"""Kubernetes Events about pods: what the platform does to one, for `kubectl describe`. Pure."""

from datetime import datetime

from services.scheduler.launchers.kubernetes.api import Object

COMPONENT = "drivetrain-scheduler"


def event_of(pod: Object, reason: str, message: str, nonce: str, now: datetime) -> Object:
    """`reason`: one word in CamelCase; `nonce` makes its name unique."""
    metadata = pod["metadata"]
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"name": f"{metadata['name']}.{nonce}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
