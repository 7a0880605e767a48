"""How this machine's devices become virtual nodes."""

from pathlib import Path

import pytest

from services.standalone.nodes import (
    Devices,
    TooFewDevices,
    find_devices,
    num_cpus,
    virtual_nodes,
)


@pytest.mark.parametrize(
    ("devices", "num_nodes", "slots", "want"),
    [
        pytest.param(Devices("cpu", 2), None, None, {"node-a": 1, "node-b": 1}, id="two CPUs"),
        pytest.param(Devices("cpu", 5), None, None, {"node-a": 3, "node-b": 2}, id="odd CPUs"),
        pytest.param(Devices("cpu", 1), None, None, {"node-a": 1, "node-b": 1}, id="a lone CPU"),
        pytest.param(Devices("nvidia-h200", 1), None, None, {"node-a": 1}, id="a lone GPU"),
        pytest.param(Devices("cpu", 2), 3, 4, dict.fromkeys(("node-a", "node-b", "node-c"), 4)),
        pytest.param(Devices("cpu", 8), 1, None, {"node-a": 8}, id="one node takes all"),
    ],
)
def test_devices_are_split_over_nodes(
    devices: Devices, num_nodes: int | None, slots: int | None, want: dict[str, int]
) -> None:
    nodes = virtual_nodes(devices, num_nodes, slots)
    assert {node.node_id: node.slots for node in nodes} == want
    assert {node.device_type for node in nodes} == {devices.device_type}


def test_nodes_share_out_the_devices_of_the_machine() -> None:
    nodes = virtual_nodes(Devices("nvidia-h200", 5), 2)
    assert [(node.first_device, node.slots) for node in nodes] == [(0, 3), (3, 2)]


@pytest.mark.parametrize(("num_nodes", "slots"), [(3, None), (1, 3), (2, 2)])
def test_two_ranks_never_get_the_same_gpu(num_nodes: int, slots: int | None) -> None:
    with pytest.raises(TooFewDevices, match="the machine has 2"):
        virtual_nodes(Devices("nvidia-h200", 2), num_nodes, slots)


def test_many_nodes_have_distinct_names() -> None:
    nodes = virtual_nodes(Devices("cpu", 1), 1000)
    assert len({node.node_id for node in nodes}) == 1000
    assert nodes[26].node_id == "node-aa"


def test_without_a_driver_torch_is_not_imported() -> None:
    assert find_devices(driver_files=()).device_type == "cpu"


def test_the_limit_of_a_container_is_respected(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("50000 100000\n")
    assert num_cpus(limit) == 1
    limit.write_text("max 100000\n")
    assert num_cpus(limit) == num_cpus(tmp_path / "missing")
