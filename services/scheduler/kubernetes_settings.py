"""Settings of the Kubernetes launcher: how pods are made, and how nodes are read."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from services.runtime.settings import Settings
from services.scheduler.launchers.kubernetes import quantities
from services.scheduler.launchers.kubernetes.cluster import (
    UNHEALTHY_CONDITIONS,
    NodeRules,
    PodRules,
)

ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
LabelName = Annotated[
    str, Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]


class KubernetesSettings(Settings):
    """They count with DRIVETRAIN_LAUNCHER=kubernetes."""

    launcher: Literal["local", "kubernetes"] = "local"
    kubernetes_namespace: ObjectName | None = Field(
        default=None, description="of the pods; else the scheduler's own, outside a cluster default"
    )
    kubernetes_image: str | None = Field(
        default=None, description="of jobs that name none; it must have the package drivetrain"
    )
    kubernetes_image_pull_secrets: tuple[ObjectName, ...] = ()
    kubernetes_service_account: ObjectName = Field(
        default="default", description="of the pods; its token is not mounted"
    )
    kubernetes_environment_secret: ObjectName | None = Field(
        default=None,
        description="a Secret whose keys are environment variables of all pods: AWS_ACCESS_KEY_ID",
    )
    kubernetes_node_selector: str = Field(
        default="", description="labels of the nodes to use, such as team=ml; none: all"
    )
    kubernetes_pool_label: LabelName = NodeRules.pool_label
    kubernetes_device_type_label: LabelName = NodeRules.device_type_label
    kubernetes_topology_label: LabelName = NodeRules.topology_label
    kubernetes_spot_label: str = Field(
        default=NodeRules.spot_label, pattern=r"^[^=]+=[^=]+$", description="label=value"
    )
    kubernetes_device_resource: str = Field(
        default=NodeRules.device_resource, description="the resource that a device is"
    )
    kubernetes_slot_cpu: str = Field(
        default=PodRules.slot_cpu,
        description="requested for a rank; a node without devices has a slot for each of these",
    )
    kubernetes_slot_memory: str = Field(
        default=PodRules.slot_memory, description="requested for a rank"
    )
    kubernetes_extra_resources: dict[str, str] = Field(
        default={},
        description='of pods with devices, such as {"rdma/hca": "1"}; they may then lock memory',
    )
    kubernetes_tolerations: tuple[dict[str, Any], ...] = Field(
        default=(), description="of the pods, as Kubernetes writes them"
    )
    kubernetes_unhealthy_conditions: tuple[str, ...] = Field(
        default=UNHEALTHY_CONDITIONS,
        description="of nodes that get nothing new: patterns of type=status",
    )
    kubernetes_run_as_user: Annotated[int, Field(ge=0)] | Literal["image"] = Field(
        default=10001, description="of the pods; image: the image's own"
    )
    kubernetes_priority_class: ObjectName | None = Field(default=None, description="of the pods")

    def contradictions(self) -> Iterator[str]:
        yield from super().contradictions()
        if self.launcher == "kubernetes" and self.kubernetes_image is None:
            yield (
                "DRIVETRAIN_KUBERNETES_IMAGE is missing: name the image that jobs without one of "
                "their own run in"
            )
        for name in ("kubernetes_slot_cpu", "kubernetes_slot_memory"):
            try:
                is_positive = quantities.parse(getattr(self, name)) > 0
                problem = "" if is_positive else "it must be above 0"
            except ValueError as error:
                problem = str(error)
            if problem:
                yield f"DRIVETRAIN_{name.upper()}: {problem}"

    def pod_rules(self, namespace: str, platform: str, notice_seconds: float) -> PodRules:
        assert self.kubernetes_image is not None
        user = self.kubernetes_run_as_user
        return PodRules(
            image=self.kubernetes_image,
            platform=platform,
            namespace=namespace,
            image_pull_secrets=self.kubernetes_image_pull_secrets,
            service_account=self.kubernetes_service_account,
            environment_secret=self.kubernetes_environment_secret,
            device_resource=self.kubernetes_device_resource,
            slot_cpu=self.kubernetes_slot_cpu,
            slot_memory=self.kubernetes_slot_memory,
            extra_resources=self.kubernetes_extra_resources,
            tolerations=self.kubernetes_tolerations,
            run_as_user=None if user == "image" else user,
            priority_class=self.kubernetes_priority_class,
            notice_seconds=notice_seconds,
        )

    def node_rules(self) -> NodeRules:
        return NodeRules(
            pool_label=self.kubernetes_pool_label,
            device_type_label=self.kubernetes_device_type_label,
            topology_label=self.kubernetes_topology_label,
            spot_label=self.kubernetes_spot_label,
            device_resource=self.kubernetes_device_resource,
            slot_cpu=self.kubernetes_slot_cpu,
            slot_memory=self.kubernetes_slot_memory,
            extra_resources=self.kubernetes_extra_resources,
            tolerations=self.kubernetes_tolerations,
            unhealthy_conditions=self.kubernetes_unhealthy_conditions,
        )
