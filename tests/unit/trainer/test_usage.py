"""What a pod uses: rates from two readings, devices by NVML, and what sampling may cost."""

import sys
from types import SimpleNamespace

import pytest

from drivetrain.pod import usage
from drivetrain.pod.devices import Devices
from drivetrain.pod.system_metrics import MAX_SHARE_OF_A_CORE, SECONDS, pause_after
from drivetrain.pod.usage import Usage, figures
from drivetrain_schemas.system_series import is_system_series

BEFORE = Usage(10.0, 5.0, 2**30, 1000, 2000, 300, 400)


def test_rates_are_per_second_of_the_time_between_the_readings() -> None:
    now = Usage(20.0, 20.0, 3 * 2**30, 2000, 12_000, 1300, 2400)
    found = figures(BEFORE, now, has_own_network=True)
    assert found == {
        "system/cpu_percent": 150.0,
        "system/memory_bytes": 3 * 2**30,
        "system/disk_read_bytes_per_s": 100.0,
        "system/disk_written_bytes_per_s": 1000.0,
        "system/network_received_bytes_per_s": 100.0,
        "system/network_sent_bytes_per_s": 200.0,
    }
    assert all(map(is_system_series, found))


def test_the_network_of_a_shared_machine_is_named_as_such() -> None:
    now = Usage(20.0, 20.0, 0, 2000, 12_000, 1300, 2400)
    names = set(figures(BEFORE, now, has_own_network=False))
    assert all(map(is_system_series, names))
    assert "system/host_network_sent_bytes_per_s" in names
    assert "system/network_sent_bytes_per_s" not in names


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Usage(20.0, 4.0, 1, 0, 0, 0, 0), {0.0, 1.0}),  # a process took its figures along
        (Usage(20.0, 5.0, 1), {0.0, 1.0}),  # the kernel has no figures of disk and network
        (Usage(10.0, 9.0, 1, 0, 0, 0, 0), set()),  # at the same moment
    ],
)
def test_no_rate_is_negative_or_invented(now: Usage, expected: set[float]) -> None:
    assert set(figures(BEFORE, now, has_own_network=True).values()) == expected


def test_network_counts_all_interfaces_but_the_loopback() -> None:
    lines = [
        "    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0",
        "  eth0:1000 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0",
        "  eth1: 500 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0",
    ]
    assert usage.network_totals(lines) == (1500, 23)


def test_sampling_never_takes_more_than_its_share_of_a_core() -> None:
    assert pause_after(0.001) == SECONDS
    for cost in (0.02, 1.0):  # a machine with very many processes
        assert cost / pause_after(cost) == pytest.approx(MAX_SHARE_OF_A_CORE)


def nvml() -> SimpleNamespace:
    def unsupported(device: object) -> object:
        raise RuntimeError("NVML_ERROR_NOT_SUPPORTED")

    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: f"device {index}",
        nvmlDeviceGetHandleByUUID=lambda name: f"device {name}",
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=len(device)),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=2**30),
        nvmlDeviceGetPowerUsage=unsupported,
        nvmlDeviceGetTemperature=lambda device, sensor: 40 + sensor,
        NVML_TEMPERATURE_GPU=0,
    )


def test_devices_are_those_of_the_pod_by_their_place_in_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    found = Devices(["7", "GPU-6f"]).figures()
    assert found == {
        "system/device_0_utilisation_percent": 8.0,
        "system/device_0_memory_bytes": 2**30,
        "system/device_0_temperature_celsius": 40.0,
        "system/device_1_utilisation_percent": 13.0,
        "system/device_1_memory_bytes": 2**30,
        "system/device_1_temperature_celsius": 40.0,
    }
    assert all(map(is_system_series, found))
    assert len(Devices(None).figures()) == 6  # all that this container has


def test_without_library_driver_or_device_there_are_no_figures(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Devices(None).figures() == {}

    def absent() -> None:
        raise RuntimeError("NVML_ERROR_LIBRARY_NOT_FOUND")

    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", absent)
    assert Devices(["0"]).figures() == {}
