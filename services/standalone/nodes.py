"""Virtual nodes: this machine's GPUs or CPUs, split so that there is placement over nodes.

In: options (number of nodes, slots of each) and what the machine has. Out: node descriptions for
the scheduler. torch lists the GPUs in a short-lived process of its own, and only where a driver
is present, since importing it takes seconds.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NUM_NODES = 2
POOL = "default"
DRIVER_FILES = ("/dev/nvidiactl", "/dev/kfd")
ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.cuda.get_device_name(i) for i in range(count)]))
"""


class TooFewDevices(RuntimeError):
    """More slots are requested than the machine has GPUs."""


@dataclass(frozen=True, slots=True)
class VirtualNode:
    node_id: str
    pool: str
    device_type: str
    slots: int
    first_device: int = 0


@dataclass(frozen=True, slots=True)
class Devices:
    device_type: str
    count: int


def virtual_nodes(
    devices: Devices, num_nodes: int | None = None, slots: int | None = None
) -> tuple[VirtualNode, ...]:
    """Split the devices over nodes as evenly as possible; every node has at least one slot.

    CPUs may have more slots than there are, GPUs may not. Raises `TooFewDevices`.
    """
    if num_nodes is None:
        # One GPU stays one slot: two ranks must not share it by default. CPUs may be shared.
        num_nodes = NUM_NODES if devices.device_type == "cpu" else min(NUM_NODES, devices.count)
    each, rest = divmod(devices.count, num_nodes)
    sizes = [slots or max(1, each + (1 if index < rest else 0)) for index in range(num_nodes)]
    if devices.device_type != "cpu" and sum(sizes) > devices.count:
        raise TooFewDevices(
            f"--nodes and --slots ask for {sum(sizes)} GPUs, the machine has {devices.count}"
        )
    return tuple(
        VirtualNode(f"node-{_letters(index)}", POOL, devices.device_type, size, sum(sizes[:index]))
        for index, size in enumerate(sizes)
    )


def find_devices(driver_files: Sequence[str] = DRIVER_FILES) -> Devices:
    """GPUs when torch sees them, else the CPUs that this process may use."""
    if any(Path(path).exists() for path in driver_files):
        asked = subprocess.run(
            [sys.executable, "-c", ASK_TORCH], capture_output=True, text=True, check=False
        )
        names = json.loads(asked.stdout.splitlines()[-1]) if asked.returncode == 0 else []
        if names:
            return Devices(_as_device_type(names[0]), len(names))
    return Devices("cpu", num_cpus())


def num_cpus(cgroup_limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cgroup_limit.read_text().split()
    except (OSError, ValueError):
        return allowed
    if quota == "max":
        return allowed
    return max(1, min(allowed, int(quota) // int(period)))


def _as_device_type(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _letters(index: int) -> str:
    """a, b ... z, aa, ab ..."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("a") + rest) + text
    return text
