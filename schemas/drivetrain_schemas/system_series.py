"""The series that pods send of themselves: what their processes and devices use, and how long
ranks work before they wait for each other.

A closed list, so that names of a program's own that begin with `system/` stay ordinary series. A
step of them is the time of the sample, in whole seconds of the epoch: attempts never overlap.
"""

import re

PREFIX = "system/"
# Of a device: its place among the devices of the pod, then one of these.
DEVICE_FIGURES = (
    "utilisation_percent",
    "memory_bytes",
    "power_watts",
    "temperature_celsius",
)
# Network figures are of the pod's own network; `host_` ones of a machine that pods share.
POD_FIGURES = (
    "cpu_percent",
    "memory_bytes",
    "disk_read_bytes_per_s",
    "disk_written_bytes_per_s",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
    "host_network_received_bytes_per_s",
    "host_network_sent_bytes_per_s",
)
# Of each rank, by the SDK: the mean seconds of its own work before it waits for other ranks.
RANK_FIGURES = ("step_work_seconds",)
STEP_WORK = PREFIX + RANK_FIGURES[0]
_PLAIN = "|".join(POD_FIGURES + RANK_FIGURES)
# Read by Python and by Postgres alike.
PATTERN = rf"^system/(device_[0-9]{{1,2}}_({'|'.join(DEVICE_FIGURES)})|{_PLAIN})$"
_NAME = re.compile(PATTERN)


def is_system_series(name: str) -> bool:
    return name.startswith(PREFIX) and _NAME.fullmatch(name) is not None


def of_device(index: int, figure: str) -> str:
    """The name of a figure of the pod's device `index`, which is from 0 to 99."""
    return f"{PREFIX}device_{index}_{figure}"
