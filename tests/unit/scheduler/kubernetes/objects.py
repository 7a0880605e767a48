"""Objects as an API server returns them, for tests."""

from typing import Any

from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess, PodSpec
from services.scheduler.launchers.kubernetes import manifest
from services.scheduler.launchers.kubernetes.cluster import PodRules

RULES = PodRules(image="drivetrain/training:1", namespace="train")
JOB = job_id_for("default", "a")


def pod_spec(job: dict[str, Any] | None = None, **changes: Any) -> PodSpec:
    index = changes.get("pod_index", 0)
    given = {
        "pod_id": pod_id_for(JOB, 2, index),
        "tenant_id": "default",
        "job_id": JOB,
        "run_id": run_id_for(JOB, 2),
        "attempt": 2,
        "fence": 41,
        "node_id": "gpu-7.example",
        "pod_index": index,
        "num_pods": 2,
        "first_rank": 4 * index,
        "num_ranks": 4,
        "world_size": 8,
        "device_type": "h200",
        "job": JobSpec.model_validate({"name": "a", "command": "true", **(job or {})}),
        "kafka": KafkaAccess(bootstrap_servers="kafka:9092", password="a secret"),
        "object_store_url": "s3://store",
        "run_token": "a token",
        "master_port": 20_001,
    }
    return PodSpec.model_validate({**given, **changes})


def made(spec: PodSpec, rules: PodRules = RULES, **status: Any) -> dict[str, Any]:
    """The pod of a spec, with a status."""
    pod = manifest.pod(spec, rules, "cafe")
    metadata = {**pod["metadata"], "uid": "an-uid", "resourceVersion": "1"}
    return {**pod, "metadata": metadata, "status": status}


def with_metadata(pod: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], **more}}


def container(name: str = "pod", **state: Any) -> dict[str, Any]:
    return {"name": name, "image": "drivetrain/training:1", "state": state}


def terminated(code: int = 1, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


def node(
    labels: dict[str, str] | None = None,
    *,
    is_ready: bool = True,
    taints: list[dict[str, str]] | None = None,
    spec: dict[str, Any] | None = None,
    **allocatable: str,
) -> dict[str, Any]:
    status = "True" if is_ready else "Unknown"
    return {
        "metadata": {"name": "n1", "labels": labels or {}},
        "spec": {"taints": taints or [], **(spec or {})},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", **allocatable},
            "conditions": [{"type": "Ready", "status": status}],
        },
    }
