"""What the pod's NVIDIA devices do, by NVML, where its library (nvidia-ml-py) is installed.

A figure that a device does not have is left out, and so are all where there is no driver.
"""

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from drivetrain_schemas.system_series import of_device

MAX_DEVICES = 64


class Devices:
    """The devices of one pod. `names`: indices or UUIDs; None: all that this container has."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        with suppress(Exception):  # no library, no driver, no device: then there is nothing to say
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._handles = self._find(names)[:MAX_DEVICES]

    def figures(self) -> dict[str, float]:
        """By the name of the series. Memory is that of the whole device."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for name, read in self._readers().items():
                with suppress(Exception):  # this device has no such figure, or is gone
                    found[of_device(index, name)] = float(read(handle))
        return found

    def _find(self, names: Sequence[str] | None) -> list[Any]:
        if names is None:
            indices = range(self._nvml.nvmlDeviceGetCount())
            return [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        return [
            self._nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else self._nvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]

    def _readers(self) -> dict[str, Callable[[Any], float]]:
        nvml = self._nvml
        return {
            "utilisation_percent": lambda device: nvml.nvmlDeviceGetUtilizationRates(device).gpu,
            "memory_bytes": lambda device: nvml.nvmlDeviceGetMemoryInfo(device).used,
            "power_watts": lambda device: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
            "temperature_celsius": lambda device: nvml.nvmlDeviceGetTemperature(
                device, nvml.NVML_TEMPERATURE_GPU
            ),
        }
