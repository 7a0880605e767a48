"""The objects that are created in the cluster for one pod."""

import json
from dataclasses import replace

from drivetrain_schemas.pods import PodSpec
from services.scheduler.launchers.kubernetes import manifest
from tests.unit.scheduler.kubernetes.objects import JOB, RULES, made, pod_spec


def only_container(pod: dict) -> dict:
    (container,) = pod["spec"]["containers"]
    return container


def test_a_pod_is_named_labelled_and_placed_by_its_spec() -> None:
    pod = manifest.pod(pod_spec(pod_index=1), RULES, "cafe")
    body = JOB.removeprefix("job_")
    assert pod["metadata"]["name"] == f"pod-{body}-2-1"
    labels = pod["metadata"]["labels"]
    assert labels["drivetrain.dev/job"] == JOB
    assert labels["drivetrain.dev/fence"] == "41"
    assert all(len(value) <= 63 for value in labels.values())
    terms = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-7.example"]}]}
    ]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("pod-1", f"run-{body}-2")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_a_container_gets_its_devices_and_shared_memory() -> None:
    pod = manifest.pod(pod_spec(), RULES, "cafe")
    container = only_container(pod)
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": str(4 * 1024**3)},
        "limits": {"nvidia.com/gpu": "4"},
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}
    assert "add" not in container["securityContext"]["capabilities"]


def test_memory_of_the_job_is_shared_by_its_ranks_and_is_a_limit() -> None:
    spec = pod_spec({"resources": {"devices": 8, "memory_bytes": 16 * 1024**3}})
    resources = only_container(manifest.pod(spec, RULES, "cafe"))["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == str(8 * 1024**3)


def test_cpu_pods_ask_for_no_device() -> None:
    rules = replace(RULES, slot_cpu="500m", extra_resources={"rdma/hca": "1"})
    container = only_container(manifest.pod(pod_spec(device_type="cpu"), rules, "cafe"))
    assert container["resources"]["limits"] == {}
    assert container["resources"]["requests"]["cpu"] == "2"
    assert "add" not in container["securityContext"]["capabilities"]


def test_a_network_that_locks_memory_is_asked_for_with_the_right_to_lock_it() -> None:
    rules = replace(RULES, extra_resources={"rdma/hca": "1"})
    container = only_container(manifest.pod(pod_spec(), rules, "cafe"))
    assert container["resources"]["limits"]["rdma/hca"] == "1"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


def test_nothing_in_a_pod_is_secret() -> None:
    spec = pod_spec()
    text = json.dumps(manifest.pod(spec, RULES, "cafe"))
    assert "a secret" not in text
    assert "a token" not in text
    pod = made(spec)
    secret = manifest.secret(spec, pod)
    assert PodSpec.model_validate_json(secret["stringData"]["spec.json"]) == spec
    assert secret["metadata"]["name"] == manifest.secret_name(pod)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "an-uid"


def test_pods_are_not_root_unless_their_image_is_asked() -> None:
    pod = manifest.pod(pod_spec(), RULES, "cafe")
    assert pod["spec"]["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
    }
    assert only_container(pod)["securityContext"]["allowPrivilegeEscalation"] is False
    own = manifest.pod(pod_spec(), replace(RULES, run_as_user=None), "cafe")
    assert "runAsUser" not in own["spec"]["securityContext"]
    modes = [it["spec"]["volumes"][0]["secret"]["defaultMode"] for it in (pod, own)]
    assert modes == [0o440, 0o444]  # the image's user can read it, whoever that is


def test_code_is_fetched_by_an_init_container_and_an_image_needs_none() -> None:
    code = {"uri": "s3://store/code/a", "sha256": "0" * 64}
    pod = manifest.pod(pod_spec({"code": code}), RULES, "cafe")
    (init,) = pod["spec"]["initContainers"]
    assert init["command"][-1] == "--only-fetch"
    assert init["volumeMounts"] == only_container(pod)["volumeMounts"]
    own = manifest.pod(pod_spec({"image": "mine:1"}), RULES, "cafe")
    assert own["spec"]["initContainers"] == []
    assert only_container(own)["image"] == "mine:1"


def test_the_service_belongs_to_the_first_pod_of_a_gang() -> None:
    spec = pod_spec()
    service = manifest.service(spec, made(spec))
    assert service is not None
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"drivetrain.dev/run": spec.run_id}
    assert manifest.service(pod_spec(pod_index=1), made(spec)) is None
    assert manifest.service(pod_spec(num_pods=1), made(spec)) is None


def test_the_grace_period_is_longer_than_the_notice() -> None:
    pod = manifest.pod(pod_spec(), replace(RULES, notice_seconds=30.0), "cafe")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 50
    command = only_container(pod)["command"]
    assert command[command.index("--notice-seconds") + 1] == "30"
