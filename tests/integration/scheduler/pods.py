"""Real pods under the small shim: specs, and waiting for what is seen of them."""

import asyncio
import sys
import tempfile
from pathlib import Path

from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.pods import PodSpec
from services.runtime import processes
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import Observation, PodRef
from services.scheduler.launchers.local import LocalLauncher

SHIM = (sys.executable, str(Path(__file__).with_name("shim.py")))
SLEEP = ["sleep", "600"]
JOB = job_id_for("default", "launched")


def make_launcher(root: Path, **changes) -> LocalLauncher:
    return LocalLauncher(root, **{"template_socket": None, "shim": SHIM, **changes})


def make_pod_spec(command: list[str], attempt: int = 1, index: int = 0, ranks: int = 1) -> PodSpec:
    return PodSpec.model_validate(
        {
            "pod_id": pod_id_for(JOB, attempt, index),
            "tenant_id": "default",
            "job_id": JOB,
            "run_id": run_id_for(JOB, attempt),
            "attempt": attempt,
            "fence": attempt,
            "node_id": "n1",
            "pod_index": index,
            "num_pods": 1,
            "first_rank": 0,
            "num_ranks": ranks,
            "world_size": ranks,
            "device_type": "cpu",
            "job": {"name": "test", "command": command},
            "kafka": {"bootstrap_servers": "nowhere:1"},
            "object_store_url": "file:///nowhere",
            "rendezvous_file": "/nowhere",
            "master_port": 29_500,
        }
    )


def left_of(marker: str) -> frozenset[int]:
    """The living processes of the pod with this marker."""
    return processes.of_pod(processes.census(), marker)


def ref_of(spec: PodSpec) -> PodRef:
    return PodRef(spec.job_id, spec.attempt, spec.pod_id)


async def seen(launcher: LocalLauncher, spec: PodSpec, *sights: Sight) -> Observation:
    """Wait until the pod is seen like this."""
    async with asyncio.timeout(30):
        while True:
            observation = (await launcher.observe([ref_of(spec)]))[spec.pod_id]
            if observation.sight in sights:
                return observation
            await asyncio.sleep(0.02)


def short_directory() -> tempfile.TemporaryDirectory:
    """Paths of sockets are short, those of pytest's directories are not."""
    return tempfile.TemporaryDirectory(prefix="dt-", dir="/tmp")
