"""Stop the pods that still run on this machine, so that an orderly stop leaves nothing running.

In: the pods directory. A pod is live if its `identity.json` names a running process (after
`exit.json` it only sends what Kafka has not acknowledged yet). It gets a stop notice (`stop.json`,
by rename) and SIGTERM: its ranks checkpoint at one agreed step and exit; jobs continue from there
at the next start. What still runs after the deadline is killed, found by the pod's marker in the
environment of every process.
Only for an orderly stop: after `kill -9` pods continue and are adopted by the next start.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from drivetrain_schemas.pods import MARKER, StopNotice, marker_of
from services.standalone.child import Launch
from services.standalone.files import write_private
from services.standalone.identity import ProcessIdentity, is_alive, send_signal, wait_gone

DEADLINE_S = 15.0
# The shim itself enforces the deadline and then flushes what it has for some seconds.
GRACE_S = 8.0
RECORD_S = 15.0


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
        try:
            content = json.loads(path.read_text())
            identity = ProcessIdentity(content["pid"], content["start_ticks"], content["boot_id"])
        except (OSError, ValueError, KeyError):
            continue
        if is_alive(identity):
            found.append(LivePod(path.parent, identity))
    return tuple(found)


async def record_stop(scheduler: Launch) -> bool:
    """Let the scheduler's database know that the platform asks for the stop, not the pods.

    A command of the scheduler in its own environment: its process has ended by now.
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
    """Kill the shim and everything that carries the pod's marker."""
    send_signal(pod.identity, signal.SIGKILL)
    for pid in marked_processes(marker_of(pod.directory)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def marked_processes(marker: str) -> tuple[int, ...]:
    mark = f"{MARKER}={marker}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in variables:
            found.append(int(entry.name))
    return tuple(found)


async def _wait_or_kill(pod: LivePod, timeout_s: float) -> None:
    if not await wait_gone(pod.identity, timeout_s):
        kill_pod(pod)
        await wait_gone(pod.identity, 5.0)
