"""Fetching a job's code and files before its ranks start: in a child, with heartbeats.

In a child, because a client of an object store starts threads, which do not survive a fork, and
ranks are forked from this process. While a fetch takes longer than a moment, heartbeats are sent;
one that hangs is killed, as is one whose pod is to stop. It reports each part of a file that has
arrived, so gigabytes of files from a slow store may take as long as they need.
"""

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from drivetrain.errors import CheckpointMismatch, StorageError
from drivetrain.pod import code, outcome, working_directory
from drivetrain_schemas.pods import PodSpec

FETCH_SECONDS = 600.0  # without a part of a file that has arrived
LONGEST_SECONDS = 6 * 3600.0
# A Kafka client is imported for heartbeats only, and most fetches are done by then.
QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_MAX_DETAIL_BYTES = 4096
_PART = b"\0"  # one has arrived
_FINAL = 2  # the exit code of a fetch that need not be repeated


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a pod cannot start its ranks; `detail` is empty where it can. Final: nor can the next."""

    detail: str = ""
    is_final: bool = False


def fetch_code(spec: PodSpec, target: Path, must_stop: Callable[[], bool]) -> Flaw:
    """Fetch, and make the working directory. No flaw also when the pod must stop."""
    target.mkdir(exist_ok=True)
    if must_stop():
        return Flaw()
    if spec.job.code is None and not working_directory.may_find_files(spec):
        return _prepare(spec, target, lambda: None)  # nothing is to be fetched
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(spec, target, writer)
    os.close(writer)
    written = _read(reader, must_stop)
    if written is None:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    detail = (written or b"").decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    code = outcome.signed_exit_code(status)
    if written is None:
        return Flaw("" if must_stop() else f"code: not fetched within {FETCH_SECONDS:.0f} s")
    if code != 0 and not detail:
        return Flaw(f"code: fetching it ended with {code}")
    return Flaw(detail, is_final=code == _FINAL)


def _read(reader: int, must_stop: Callable[[], bool]) -> bytes | None:
    """The result, when the child has ended; None when it is to be killed."""
    started = heard = time.monotonic()
    written = b""
    while (now := time.monotonic()) < min(heard + FETCH_SECONDS, started + LONGEST_SECONDS):
        if must_stop():
            return None
        if select.select([reader], [], [], _LOOK_SECONDS)[0]:
            piece = os.read(reader, 65_536)
            if not piece:
                return written
            written += piece.replace(_PART, b"")
            heard = now
    return None


def _be_the_child(spec: PodSpec, target: Path, writer: int) -> NoReturn:
    try:
        threading.Thread(target=_fetch, args=(spec, target, writer), daemon=True).start()
        time.sleep(QUIET_SECONDS)
        asyncio.run(_beat(spec))
    finally:
        time.sleep(LONGEST_SECONDS)  # a failed heartbeat is no reason to stop fetching
        os._exit(1)


def _fetch(spec: PodSpec, target: Path, writer: int) -> None:
    """Ends the process with the result."""
    flaw = Flaw()
    try:
        if spec.job.code is not None:
            code.fetch(spec.job.code, spec, target)
        flaw = _prepare(spec, target, lambda: _arrived(writer))
    except (code.MissingCode, StorageError) as error:
        flaw = Flaw(str(error))
    except code.InvalidCode as error:
        flaw = Flaw(str(error), is_final=True)
    except BaseException as error:
        flaw = Flaw(f"code: {error!r}")
    os.write(writer, flaw.detail.replace("\0", "").encode("utf-8", "replace")[:_MAX_DETAIL_BYTES])
    os._exit(_FINAL if flaw.is_final else int(bool(flaw.detail)))


def _arrived(writer: int) -> None:
    os.write(writer, _PART)


def _prepare(spec: PodSpec, target: Path, on_part: Callable[[], None]) -> Flaw:
    try:
        working_directory.prepare(spec, target.parent, on_part)
    except CheckpointMismatch as error:
        return Flaw(str(error), is_final=True)
    except (OSError, StorageError) as error:
        return Flaw(f"the job's directory cannot be made: {error}")
    return Flaw()


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
