"""What is left of a node for jobs: what pods request there, and where one did not fit."""

import pytest

from services.scheduler.core.mask import NodeRoom
from services.scheduler.launchers.kubernetes import manifest
from services.scheduler.launchers.kubernetes.cluster import NodeRules, PodRules
from services.scheduler.launchers.kubernetes.misfits import Misfits, rejected
from services.scheduler.launchers.kubernetes.others import HELD_SECONDS, Requested
from services.scheduler.launchers.kubernetes.requests import amounts, of_jobs, of_pod
from tests.unit.scheduler.kubernetes.objects import RULES, made, pod_spec


def asks(cpu: str, **more) -> dict:
    return {"resources": {"requests": {"cpu": cpu, **more}}}


ALWAYS = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"containers": [asks("100m"), asks("1")]}, {"cpu": 1100}),
        ({"containers": [{}]}, {}),
        ({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}, {"cpu": 3000}),
        (
            {"containers": [asks("1")], "initContainers": [{**asks("500m"), **ALWAYS}, asks("2")]},
            {"cpu": 2500},
        ),
        (
            {"containers": [asks("3")], "initContainers": [{**asks("500m"), **ALWAYS}, asks("2")]},
            {"cpu": 3500},
        ),
        ({"containers": [asks("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, {"cpu": 2000}),
        ({"containers": [asks("1")], "resources": {"requests": {"cpu": "4"}}}, {"cpu": 4000}),
        (
            {"containers": [asks("1", **{"ephemeral-storage": "1Ki", "nvidia.com/gpu": "2"})]},
            {"cpu": 1000, "ephemeral-storage": 1_024_000, "nvidia.com/gpu": 2000},
        ),
    ],
)
def test_a_request_is_counted_as_kubernetes_does(spec, want) -> None:
    assert of_pod(spec) == {**want, "pods": 1000}


@pytest.mark.parametrize("device_type", ["cpu", "h200"])
@pytest.mark.parametrize("code", [None, {"uri": "s3://a/b", "sha256": "0" * 64}])
@pytest.mark.parametrize("memory", [None, 8 * 2**30])
def test_a_gang_asks_with_what_its_pods_request(device_type, code, memory) -> None:
    facts = {"slot_cpu": "1500m", "slot_memory": "3Gi", "extra_resources": {"rdma/hca": "1"}}
    shared, devices = of_jobs(NodeRules(**facts))
    resources = {"devices": 8, "memory_bytes": memory}
    spec = pod_spec({"code": code, "resources": resources}, device_type=device_type)
    pod = manifest.pod(spec, PodRules(image="a", **facts), "cafe")
    request = shared if device_type == "cpu" else devices
    asked = request.with_memory(1000 * memory // 8 if memory else 0)
    assert of_pod(pod["spec"]) == asked.of(spec.num_ranks)


def test_room_that_came_back_counts_after_a_moment_and_what_is_gone_at_once() -> None:
    found = Requested()
    one = {"cpu": 1000}
    assert found.note("a", "n1", one) == {"n1"}
    assert found.note("b", "n1", one) == {"n1"}
    assert found.note("b", "n1", one) == set()
    assert found.on("n1") == {"cpu": 2000}
    found.note_gone("a", 10.0)
    assert found.expire(10.0 + HELD_SECONDS - 0.1) == set()
    assert found.on("n1") == {"cpu": 2000}
    assert found.expire(10.0 + HELD_SECONDS) == {"n1"}
    assert found.on("n1") == {"cpu": 1000}
    assert found.note("b", "n1", {"cpu": 500}) == {"n1"}
    assert (found.on("n1"), found.on("n2")) == ({"cpu": 500}, {})


def test_one_that_is_listed_again_has_not_gone() -> None:
    found = Requested()
    found.note("a", "n1", {"cpu": 1000})
    found.note_gone("a", 10.0)
    found.note("a", "n1", {"cpu": 1000})
    assert found.expire(100.0) == set()
    assert found.on("n1") == {"cpu": 1000}


SPEC = pod_spec()
REQUEST = of_pod(manifest.pod(SPEC, RULES, "cafe")["spec"])
FULL = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match"
AWAY = "0/3 nodes are available: 1 node(s) had untolerated taint {team: web}"


def unscheduled(message: str) -> dict:
    condition = {"type": "PodScheduled", "reason": "Unschedulable", "message": message}
    return made(SPEC, conditions=[condition])


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (unscheduled(FULL), (REQUEST, FULL)),
        (unscheduled(AWAY), ({}, AWAY)),
        (made(SPEC, phase="Failed", reason="OutOfcpu", message="x"), (REQUEST, "OutOfcpu: x")),
        (made(SPEC, phase="Failed", reason="NodeAffinity"), ({}, "NodeAffinity: ")),
        (made(SPEC, phase="Failed", reason="Evicted"), None),
        (made(SPEC, phase="Running"), None),
    ],
)
def test_a_pod_that_did_not_fit_says_so_with_its_node(pod, want) -> None:
    found = rejected(pod)
    assert (found and (found.node_id, found.amounts, found.words)) == (
        want and (SPEC.node_id, *want)
    )


NODE = SPEC.node_id


def test_a_node_is_tried_again_later_each_time_in_a_row() -> None:
    misfits, found = Misfits(), rejected(unscheduled(FULL))
    room = NodeRoom(amounts({"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}))
    now = 0.0
    for number, seconds in enumerate([60, 120, 240, 480, 960, 1800, 1800]):
        assert misfits.note(f"pod-{number}", found, room, now)
        assert not misfits.note(f"pod-{number}", found, room, now)
        misfit = misfits.on(NODE, now + seconds - 1)
        assert "Insufficient cpu" in misfit.detail
        assert misfit.amounts == REQUEST
        assert misfits.on(NODE, now + seconds) is None
        assert misfits.expire(now + seconds) == {NODE}
        now += seconds


def test_it_is_forgotten_when_the_room_that_was_missing_is_back_or_the_pod_fits_after_all() -> None:
    misfits, found = Misfits(), rejected(unscheduled(FULL))
    has = amounts({"cpu": "4", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"})
    full = NodeRoom(has, {"cpu": 1000})
    misfits.note("a", found, full, 0.0)
    misfits.note_room(NODE, full)
    assert misfits.on(NODE, 1.0)
    misfits.note_room(NODE, NodeRoom(has))
    assert misfits.on(NODE, 1.0) is None
    misfits.note("b", found, NodeRoom(has), 0.0)
    misfits.note_room(NODE, NodeRoom(has))  # it seemed to fit before, too
    assert misfits.on(NODE, 1.0)
    assert not misfits.note_placed("c", NODE)
    assert misfits.note_placed("b", NODE)
    assert misfits.on(NODE, 1.0) is None
