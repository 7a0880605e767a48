"""Fetching a job's code and files before its ranks start: in a child, with heartbeats.

In a child, because a client of an object store starts threads, which do not survive a fork, and
ranks are forked from this process. While a fetch takes longer than a moment, heartbeats are sent;
one that hangs is killed, as is one whose pod is to stop.
"""

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from drivetrain.errors import CheckpointMismatch, StorageError
from drivetrain.pod import code, outcome, working_directory
from drivetrain_schemas.pods import PodSpec

FETCH_SECONDS = 600.0
# A Kafka client is imported for heartbeats only, and most fetches are done by then.
QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_MAX_DETAIL_BYTES = 4096


def fetch_code(spec: PodSpec, target: Path, must_stop: Callable[[], bool]) -> str:
    """Fetch, and make the working directory. Why it failed; empty also when told to stop."""
    target.mkdir(exist_ok=True)
    if must_stop():
        return ""
    if spec.job.code is None and not working_directory.may_find_files(spec):
        return _prepare(spec, target)  # nothing is to be fetched
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(spec, target, writer)
    os.close(writer)
    is_late = not _wait(reader, must_stop)
    if is_late:
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        detail = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if is_late:
        return "" if must_stop() else f"code: not fetched within {FETCH_SECONDS:.0f} s"
    if status != 0 and not detail:
        return f"code: fetching it ended with {outcome.signed_exit_code(status)}"
    return detail


def _wait(reader: int, must_stop: Callable[[], bool]) -> bool:
    """True when the child has written its result or has ended; False when it is to be killed."""
    deadline = time.monotonic() + FETCH_SECONDS
    while time.monotonic() < deadline and not must_stop():
        if select.select([reader], [], [], _LOOK_SECONDS)[0]:
            return True
    return False


def _be_the_child(spec: PodSpec, target: Path, writer: int) -> NoReturn:
    try:
        threading.Thread(target=_fetch, args=(spec, target, writer), daemon=True).start()
        time.sleep(QUIET_SECONDS)
        asyncio.run(_beat(spec))
    finally:
        time.sleep(FETCH_SECONDS)  # a failed heartbeat is no reason to stop fetching
        os._exit(1)


def _fetch(spec: PodSpec, target: Path, writer: int) -> None:
    """Ends the process with the result."""
    detail = ""
    try:
        if spec.job.code is not None:
            code.fetch(spec.job.code, spec, target)
        detail = _prepare(spec, target)
    except (code.InvalidCode, StorageError) as error:
        detail = str(error)
    except BaseException as error:
        detail = f"code: {error!r}"
    os.write(writer, detail.encode("utf-8", "replace")[:_MAX_DETAIL_BYTES])
    os._exit(1 if detail else 0)


def _prepare(spec: PodSpec, target: Path) -> str:
    try:
        working_directory.prepare(spec, target.parent)
    except CheckpointMismatch as error:
        return str(error)
    except (OSError, StorageError) as error:
        return f"the job's directory cannot be made: {error}"
    return ""


async def _beat(spec: PodSpec) -> None:
    from drivetrain.pod.events import Events
    from drivetrain.pod.telemetry import Telemetry

    events, telemetry = Events(spec), Telemetry(spec.kafka)
    sender = asyncio.create_task(telemetry.run())
    number = 0
    while not sender.done():
        number += 1
        telemetry.put_heartbeat(events.heartbeat(number, phase="starting"))
        await asyncio.sleep(1.0)
