"""Stop the pods that still run on this machine, so that an orderly stop leaves nothing running.

In: the pods directory. A pod is live if its `identity.json` names a running process that carries
the pod's marker (after `exit.json` it only sends what Kafka has not acknowledged yet). The pod's
own programs may have written that file, so it alone is no reason to signal a process. A live pod
gets a stop notice (`stop.json`, by rename) and SIGTERM: its ranks checkpoint at one agreed step and
exit; jobs continue from there at the next start. What still runs after the deadline is killed,
found by the pod's marker in the environment of every process. Only for an orderly stop: after `kill
-9` pods continue and are adopted by the next start.
"""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from drivetrain_schemas.pods import PodIdentity, StopNotice, marker_of
from services.runtime import cgroups, processes
from services.standalone.child import Launch
from services.standalone.files import write_private
from services.standalone.identity import ProcessIdentity, send_signal, wait_gone

DEADLINE_S = 15.0
# The shim itself enforces the deadline and then flushes what it has for some seconds.
GRACE_S = 8.0
RECORD_S = 15.0
KILL_S = 2.0
MAX_IDENTITY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LivePod:
    directory: Path
    identity: ProcessIdentity

    @property
    def pod_id(self) -> str:
        return self.directory.name


def live_pods(pods: Path) -> tuple[LivePod, ...]:
    """Pods whose shim runs, in order of their names."""
    found = []
    for path in sorted(pods.glob("*/*/*/identity.json")):
        it = _read_identity(path)
        if it is not None and processes.is_shim(it, marker_of(path.parent)):
            identity = ProcessIdentity(it.pid, it.start_ticks, it.boot_id)
            found.append(LivePod(path.parent, identity))
    return tuple(found)


def _read_identity(path: Path) -> PodIdentity | None:
    """None for anything but a small regular file with an identity in it."""
    try:
        # Without O_NONBLOCK a pipe in its place would block the stop.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return PodIdentity.model_validate_json(file.read(MAX_IDENTITY_BYTES))
    except (OSError, ValueError):
        return None


async def record_stop(scheduler: Launch) -> bool:
    """Record in the scheduler's database that the platform requested the stop, not the pods.

    Done by a command of the scheduler in its own environment, because its process has ended by now.
    """
    command = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.scheduler.shutdown",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(scheduler.environment),
        cwd=scheduler.directory,
    )
    try:
        async with asyncio.timeout(RECORD_S):
            return await command.wait() == 0
    except TimeoutError:
        command.kill()
        await command.wait()
        return False


async def stop_pods(pods: Path, deadline_s: float = DEADLINE_S, grace_s: float = GRACE_S) -> int:
    """Stop every live pod and return how many there were."""
    living = live_pods(pods)
    notice = StopNotice(reason="shutdown", deadline_seconds=deadline_s)
    for pod in living:
        # On a full disk the signal alone is enough.
        with contextlib.suppress(OSError):
            write_private(pod.directory / "stop.json", notice.model_dump_json())
        send_signal(pod.identity, signal.SIGTERM)
    await asyncio.gather(*(_wait_or_kill(pod, deadline_s + grace_s) for pod in living))
    return len(living)


def kill_pod(pod: LivePod) -> None:
    """Kill everything that carries the pod's marker, and what is below it."""
    processes.kill_marked(frozenset({marker_of(pod.directory)}), KILL_S)
    cgroups.remove(marker_of(pod.directory))


async def _wait_or_kill(pod: LivePod, timeout_s: float) -> None:
    if not await wait_gone(pod.identity, timeout_s):
        kill_pod(pod)
        await wait_gone(pod.identity, 5.0)
