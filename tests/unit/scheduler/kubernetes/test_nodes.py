"""What a Node object gives the scheduler."""

import pytest

from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.nodes import read_node, why_closed, with_kept_words
from services.scheduler.launchers.kubernetes.quantities import parse, times
from tests.unit.scheduler.kubernetes.objects import node

RULES = NodeRules()
GPUS = {"nvidia.com/gpu": "8"}


def test_devices_are_slots_and_labels_name_pool_and_type() -> None:
    labels = {"drivetrain.dev/pool": "Big_Ones", "drivetrain.dev/device-type": "H200"}
    found = read_node(node(labels, **GPUS), RULES)
    assert (found.node_id, found.pool, found.device_type, found.num_slots) == (
        "n1", "big-ones", "h200", 8,
    )  # fmt: skip
    assert found.device_of(0) is None


def test_topology_and_spot_are_read_from_the_labels_of_the_cloud() -> None:
    labels = {"topology.kubernetes.io/zone": "eu-1", "karpenter.sh/capacity-type": "spot"}
    found = read_node(node(labels), RULES)
    assert (found.topology, found.is_spot) == ("eu-1", True)
    found = read_node(node({"karpenter.sh/capacity-type": "on-demand"}), RULES)
    assert (found.topology, found.is_spot) == (None, False)


@pytest.mark.parametrize(
    ("labels", "allocatable", "want"),
    [
        ({}, {}, ("default", "cpu", 16)),
        ({}, GPUS, ("default", "gpu", 8)),
        ({"nvidia.com/gpu.product": "NVIDIA-H200"}, GPUS, ("default", "nvidia-h200", 8)),
        ({"drivetrain.dev/slots": "4"}, {}, ("default", "cpu", 4)),
        ({"drivetrain.dev/slots": "4"}, GPUS, ("default", "gpu", 4)),
        ({"drivetrain.dev/slots": "9"}, GPUS, ("default", "gpu", 8)),
        ({}, {"cpu": "1900m"}, ("default", "cpu", 1)),
    ],
)
def test_slots(labels, allocatable, want) -> None:
    found = read_node(node(labels, **allocatable), RULES)
    assert (found.pool, found.device_type, found.num_slots) == want


@pytest.mark.parametrize(
    ("labels", "allocatable"),
    [
        ({"drivetrain.dev/device-type": "h200"}, {}),  # no driver yet
        ({}, {"cpu": "500m"}),
        ({"drivetrain.dev/slots": "0"}, {}),
    ],
)
def test_a_node_without_slots_is_left_out(labels, allocatable) -> None:
    assert read_node(node(labels, **allocatable), RULES) is None


def has(kind: str, status: str = "True", **words: str) -> dict:
    """A node with this condition besides Ready."""
    found = node()
    found["status"]["conditions"].append({"type": kind, "status": status, **words})
    return found


TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (node(), ""),
        (node(is_ready=False), "not ready"),
        (node(spec={"unschedulable": True}), "cordoned"),
        (node(taints=[TAINT]), "taint team=ml:NoSchedule"),
        (node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
        (
            has("DiskPressure", message="kubelet has disk pressure"),
            "DiskPressure: kubelet has disk",
        ),
        (has("NetworkUnavailable", reason="NoRoute"), "NetworkUnavailable: NoRoute"),
        (has("PIDPressure"), "PIDPressure"),
        (has("KernelDeadlock", message="task xfs:33 hung for 120s"), ": task xfs:33 hung for 120s"),
        (has("FrequentContainerdRestart"), "FrequentContainerdRestart"),
        (has("AcceleratedHardwareReady", "False", message="GPU 3: XID 79"), "Ready: GPU 3: XID 79"),
        (has("AcceleratedHardwareReady"), ""),
        (has("GpuHealthy", "False"), "GpuHealthy"),
        (has("EtcdIsVoter"), ""),
        (has("MemoryPressure", "Unknown"), ""),
    ],
)
def test_a_node_that_takes_nothing_new_says_why(found, want) -> None:
    why = why_closed(found, RULES)
    assert want in why
    assert bool(want) is bool(why)


def test_words_that_change_with_time_are_no_news() -> None:
    first, second, other = (
        read_node(has(kind, message=words), RULES)
        for kind, words in [("DiskPressure", "91 %"), ("DiskPressure", "92 %"), ("A", "x")]
    )
    assert with_kept_words(second, first).unschedulable == "DiskPressure: 91 %"
    assert with_kept_words(second, other) == second
    assert with_kept_words(other, first) == other
    assert with_kept_words(first, None) == first


def test_the_operator_says_which_conditions_count() -> None:
    rules = NodeRules(unhealthy_conditions=("VMEventScheduled=True",))
    assert why_closed(has("DiskPressure"), rules) == ""
    assert why_closed(has("VMEventScheduled"), rules) == "VMEventScheduled"


@pytest.mark.parametrize(
    ("toleration", "is_open"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "ml"}, True),
        ({"key": "team", "value": "ml", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Equal", "value": "web"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_tolerated_taint_keeps_nothing_away(toleration, is_open) -> None:
    rules = NodeRules(tolerations=(toleration,))
    assert (why_closed(node(taints=[TAINT]), rules) == "") is is_open


@pytest.mark.parametrize(
    ("text", "want"),
    [("2", 2), ("500m", 0.5), ("4Gi", 4 * 1024**3), ("1e3", 1000), ("1.5k", 1500)],
)
def test_quantities(text, want) -> None:
    assert parse(text) == want


@pytest.mark.parametrize("text", ["", "2 GB", "4GB", "one"])
def test_what_is_no_quantity_is_refused(text) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse(text)


def test_multiples_are_whole_or_in_thousandths() -> None:
    assert (times("500m", 4), times("100m", 3), times("1Gi", 2)) == ("2", "300m", str(2 * 1024**3))
