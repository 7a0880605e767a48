"""The objects of one pod, from its spec and the operator's rules, as JSON. Pure.

A pod is created first, and owns all that belongs to it: its Secret, and for the first pod of a
gang the run's headless Service. So nothing is left when the pod is gone, and a pod whose Secret was
never created does not start.
"""

import math
from collections.abc import Mapping
from typing import Any

from drivetrain_schemas.pods import PodSpec
from services.scheduler.core.model import SHARED
from services.scheduler.launchers.kubernetes import names, quantities
from services.scheduler.launchers.kubernetes.cluster import PodRules
from services.scheduler.launchers.kubernetes.taints import LOST_NODES

CONTAINER = "pod"
INIT_CONTAINER = "code"
SPEC_FILE = "spec.json"
ROOT = "/drivetrain"
SPEC_DIRECTORY = "/var/run/drivetrain/spec"
NOTICE_DIRECTORY = "/var/run/drivetrain/notice"
NOTICE_FILE = "stop"
# Past the deadline of a notice: the last save of the job's files, and the end's way into the store.
GRACE_SECONDS = 20

Manifest = dict[str, Any]


def pod(spec: PodSpec, rules: PodRules, nonce: str) -> Manifest:
    """`nonce` makes the name of its Secret unique, should a pod of this name ever be made again."""
    name = names.pod_name(spec.pod_id)
    image = spec.job.image or rules.image
    container = {
        "name": CONTAINER,
        "image": image,
        "command": _command(rules),
        "workingDir": ROOT,
        "env": _environment(spec, rules),
        "envFrom": _environment_from(rules),
        "resources": _resources(spec, rules),
        "volumeMounts": _mounts(),
        "securityContext": _security_of_container(spec, rules),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    init = [] if spec.job.code is None else [_init_container(container)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": rules.namespace,
            "labels": {**names.labels_of(spec), names.PLATFORM: rules.platform},
        },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": init,
            "containers": [container],
            "volumes": _volumes(f"{name}-{nonce}", rules),
            "hostname": names.host_name(spec.pod_index),
            "subdomain": names.service_name(spec.job_id, spec.attempt),
            "affinity": _on_node(spec.node_id),
            "tolerations": [*rules.tolerations, *LOST_NODES],
            "terminationGracePeriodSeconds": grace_seconds(rules.notice_seconds),
            "serviceAccountName": rules.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [{"name": each} for each in rules.image_pull_secrets],
            "securityContext": _security_of_pod(rules),
            **({} if rules.priority_class is None else {"priorityClassName": rules.priority_class}),
        },
    }


def secret_name(made: Mapping[str, Any]) -> str:
    """The Secret that this pod waits for."""
    volumes = made["spec"]["volumes"]
    name: str = next(each["secret"]["secretName"] for each in volumes if each["name"] == "spec")
    return name


def secret(spec: PodSpec, made: Mapping[str, Any]) -> Manifest:
    """`spec.json` of the pod `made`, as the API server returned it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(made),
            "namespace": made["metadata"]["namespace"],
            "labels": dict(names.labels_of(spec)),
            "ownerReferences": [_owner(made)],
        },
        "type": "drivetrain.dev/pod-spec",
        "immutable": True,
        "stringData": {SPEC_FILE: spec.model_dump_json(exclude_none=True)},
    }


def service(spec: PodSpec, made: Mapping[str, Any]) -> Manifest | None:
    """The names of the pods of a gang; None where this pod is alone, or not the first."""
    if spec.num_pods == 1 or spec.pod_index > 0:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service_name(spec.job_id, spec.attempt),
            "namespace": made["metadata"]["namespace"],
            "labels": dict(names.labels_of_run(spec)),
            "ownerReferences": [_owner(made)],
        },
        "spec": {
            "clusterIP": "None",
            # Pods look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {names.RUN: spec.run_id},
            "ports": [{"name": "rendezvous", "port": spec.master_port}],
        },
    }


def stop_patch(notice: str, uid: str) -> Manifest:
    """A merge patch with the stop notice, as JSON, for the pod with this uid alone."""
    return {"metadata": {"uid": uid, "annotations": {names.STOP: notice}}}


def grace_seconds(notice_seconds: float) -> int:
    """From the deletion of a pod until the kubelet kills it."""
    return math.ceil(notice_seconds) + GRACE_SECONDS


def _command(rules: PodRules) -> list[str]:
    return [
        "python",
        "-m",
        "drivetrain.pod",
        "--spec",
        f"{SPEC_DIRECTORY}/{SPEC_FILE}",
        "--root",
        ROOT,
        "--notice",
        f"{NOTICE_DIRECTORY}/{NOTICE_FILE}",
        "--notice-seconds",
        f"{rules.notice_seconds:g}",
    ]


def _init_container(container: Mapping[str, Any]) -> Manifest:
    """Fetches the code and checks its SHA-256, on the same node into the same volume."""
    without = {"resources"}
    kept = {name: value for name, value in container.items() if name not in without}
    return {**kept, "name": INIT_CONTAINER, "command": [*container["command"], "--only-fetch"]}


def _environment(spec: PodSpec, rules: PodRules) -> list[Manifest]:
    """The shim reads spec.json; these are for people who look at the pod, and for the C library."""
    variables = {
        "DRIVETRAIN_TENANT_ID": spec.tenant_id,
        "DRIVETRAIN_JOB_ID": spec.job_id,
        "DRIVETRAIN_RUN_ID": spec.run_id,
        "DRIVETRAIN_POD_ID": spec.pod_id,
        "DRIVETRAIN_FENCE": str(spec.fence),
        "PYTHONUNBUFFERED": "1",
    }
    if rules.run_as_user is not None:
        # This user has no entry in the image's list of users, and no home.
        variables |= {"HOME": ROOT, "USER": "drivetrain", "LOGNAME": "drivetrain"}
    return [{"name": name, "value": value} for name, value in variables.items()]


def _environment_from(rules: PodRules) -> list[Manifest]:
    if rules.environment_secret is None:
        return []
    return [{"secretRef": {"name": rules.environment_secret}}]


def _resources(spec: PodSpec, rules: PodRules) -> Manifest:
    """All ranks of a run on one node share a container: devices, shared memory and IPC."""
    requests = {
        "cpu": quantities.times(rules.slot_cpu, spec.num_ranks),
        "memory": quantities.times(rules.slot_memory, spec.num_ranks),
    }
    limits: dict[str, str] = {}
    if spec.memory_bytes is not None:
        requests["memory"] = limits["memory"] = str(spec.memory_bytes)
    if spec.device_type != SHARED:
        limits[rules.device_resource] = str(spec.num_ranks)
        limits |= rules.extra_resources
    return {"requests": requests, "limits": limits}


def _volumes(secret_of_pod: str, rules: PodRules) -> list[Manifest]:
    # The group of the volumes is the pods' own; that of an image's user is not known.
    mode = 0o444 if rules.run_as_user is None else 0o440
    notice = {
        "path": NOTICE_FILE,
        "fieldRef": {"fieldPath": f"metadata.annotations['{names.STOP}']"},
    }
    return [
        {"name": "spec", "secret": {"secretName": secret_of_pod, "defaultMode": mode}},
        {"name": "notice", "downwardAPI": {"items": [notice]}},
        {"name": "root", "emptyDir": {}},
        # NCCL and the workers of a DataLoader need more than the 64 MiB of a container. Its limit
        # is the pod's memory.
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]


def _mounts() -> list[Manifest]:
    return [
        {"name": "spec", "mountPath": SPEC_DIRECTORY, "readOnly": True},
        {"name": "notice", "mountPath": NOTICE_DIRECTORY, "readOnly": True},
        {"name": "root", "mountPath": ROOT},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]


def _on_node(node_id: str) -> Manifest:
    """Only this node. The kubelet and the cluster's scheduler still check that it fits there."""
    field = {"key": "metadata.name", "operator": "In", "values": [node_id]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _security_of_pod(rules: PodRules) -> Manifest:
    seccomp = {"seccompProfile": {"type": "RuntimeDefault"}}
    if rules.run_as_user is None:
        return seccomp
    user = rules.run_as_user
    return {
        **seccomp,
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
    }


def _security_of_container(spec: PodSpec, rules: PodRules) -> Manifest:
    """Transports such as InfiniBand lock the memory that they use."""
    locks_memory = bool(rules.extra_resources) and spec.device_type != SHARED
    added = {"add": ["IPC_LOCK"]} if locks_memory else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **added}}


def _owner(made: Mapping[str, Any]) -> Manifest:
    metadata = made["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": False,
    }
