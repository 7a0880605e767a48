"""What the operator configures of the cluster: how pods are made, and how nodes are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PodRules:
    """What all pods have in common. `notice_seconds`: how long one that is deleted by others than
    the platform has to stop. `run_as_user` None: the image's own user."""

    image: str
    namespace: str = "default"
    platform: str = "drivetrain"  # a label's value: which pods of the namespace are ours
    image_pull_secrets: Sequence[str] = ()
    service_account: str = "default"
    environment_secret: str | None = None
    device_resource: str = "nvidia.com/gpu"
    slot_cpu: str = "1"
    slot_memory: str = "1Gi"
    extra_resources: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    run_as_user: int | None = 10001
    priority_class: str | None = None
    notice_seconds: float = 30.0


# Conditions of nodes, as type=status: those of the kubelet, and those that the health agents of
# Kubernetes (node-problem-detector) and of clouds set, whose types follow the same forms.
UNHEALTHY_CONDITIONS = (
    "*Pressure=True",
    "*Unavailable=True",
    "*Unhealthy=True",
    "*Problem=True",
    "*Deadlock=True",
    "ReadonlyFilesystem=True",
    "Corrupt*=True",
    "Frequent*=True",
    "*Ready=False",
    "*Healthy=False",
)


@dataclass(frozen=True)
class NodeRules:
    """How a node of the cluster is read: labels, and what a slot is. `spot_label` is key=value."""

    pool_label: str = "drivetrain.dev/pool"
    device_type_label: str = "drivetrain.dev/device-type"
    topology_label: str = "topology.kubernetes.io/zone"
    spot_label: str = "karpenter.sh/capacity-type=spot"
    device_resource: str = "nvidia.com/gpu"
    slot_cpu: str = "1"
    slot_memory: str = "1Gi"
    extra_resources: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    unhealthy_conditions: Sequence[str] = UNHEALTHY_CONDITIONS
