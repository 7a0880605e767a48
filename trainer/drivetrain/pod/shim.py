"""The shim from its start to `exit.json`: everything in the order in which it must happen.

Lock, then spec: a launcher that closed this pod holds the lock or has moved the spec away. Identity
before anything is started, so that everything that runs here can be found. Ranks are forked before
there is a thread or an event loop. `exit.json` is written when no process of the pod is left but
the shim itself, which may still send what Kafka has not acknowledged yet.

In a container the code may have been fetched by an init step, and the end goes out of it before the
shim ends.
"""

import asyncio
import errno
import itertools
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pydantic import ValidationError

from drivetrain import control
from drivetrain.files import places
from drivetrain.pod import memory, outcome, processes
from drivetrain.pod.container import TELEMETRY_SECONDS, Container, exit_code, wait_for_name
from drivetrain.pod.fetching import Flaw, fetch_code
from drivetrain.pod.files import read_bounded
from drivetrain.pod.notices import Notices
from drivetrain.pod.ranks import (
    Rank,
    as_seen_outside,
    flaw_of_command,
    num_processes,
    start_rank,
)
from drivetrain.pod.title import set_title
from drivetrain.pod.working_directory import PodFiles
from drivetrain.results import make_result, write_atomically
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import Failure, FailureKind, PodExit, PodSpec

if TYPE_CHECKING:
    from drivetrain.pod.supervision import Supervision

EXIT_NOT_OURS = 3
MAX_RESULT_BYTES = 128 * 1024
NUM_TRIES_TO_WRITE = 600  # one each second
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_logger = logging.getLogger("drivetrain.pod")


class _Notice:
    """A stop notice before the event loop runs. Either the file or the signal is enough."""

    def __init__(self, notices: Notices) -> None:
        self.notices = notices
        self._is_signalled = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def is_given(self) -> bool:
        return self._is_signalled or self.notices.is_given()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_signalled = True


def run_pod(directory: Path, is_warm: bool, container: Container | None = None) -> int:
    """Run the pod that `spec.json` describes. Returns the shim's exit code."""
    directory = _enter(directory)
    processes.become_subreaper()
    lock = processes.hold_lock(directory / "lock")
    spec_path = directory / "spec.json"
    if lock is None or not spec_path.exists() or (directory / "identity.json").exists():
        _logger.error("this pod is closed, has run, or is run by another shim")
        return EXIT_NOT_OURS
    spec = PodSpec.model_validate_json(spec_path.read_bytes())
    if is_warm:
        set_title(f"drivetrain pod of {spec.job.name}, attempt {spec.attempt}")
    notice = _Notice(_notices(directory, container))
    write_atomically(directory / "identity.json", processes.identify_self().model_dump_json())
    end = _prepare(spec, directory, notice, container)
    if end is None:
        end = _run_ranks(_Pod(spec, directory, container), is_warm, lock, notice)
    elif container is None:
        memory.remove(spec.groups)
        _write_end(directory, end)
    else:
        leave_container(container, directory, spec, end)
    return 0 if container is None else exit_code(end)


def fetch_only(directory: Path, container: Container) -> int:
    """The init step of a container. Returns its exit code; any but 0 is the end of the pod."""
    directory = _enter(directory)
    spec = PodSpec.model_validate_json((directory / "spec.json").read_bytes())
    end = _prepare(spec, directory, _Notice(container.notices(directory)), None)
    if end is None:
        return 0
    _logger.info("pod ended: outcome=%s %s", end.outcome, end.detail)
    container.publish(spec, end)
    return exit_code(end)


def leave_container(container: Container, directory: Path, spec: PodSpec, end: PodExit) -> None:
    """Whatever is wrong with the disk: nobody waits for `exit.json` there."""
    container.publish(spec, end)
    try:
        _write_end(directory, end)
    except OSError as error:
        _logger.error("exit.json is not written: %s", error)


@dataclass(frozen=True, slots=True)
class _Pod:
    spec: PodSpec
    directory: Path
    container: Container | None


def _enter(directory: Path) -> Path:
    directory = directory.absolute()
    os.umask(0o077)
    os.chdir(directory)
    _log_to_stderr()
    return directory


def _notices(directory: Path, container: Container | None) -> Notices:
    return Notices(directory) if container is None else container.notices(directory)


def _prepare(
    spec: PodSpec, directory: Path, notice: _Notice, container: Container | None
) -> PodExit | None:
    """Everything before the ranks start; the pod's end where they are not to start."""
    flaw = Flaw(flaw_of_command(spec), is_final=True)
    if not flaw.detail and not places.record_path(directory).exists():
        flaw = fetch_code(spec, directory / "code", notice.is_given)
    if not flaw.detail and container is not None:
        flaw = Flaw(wait_for_name(spec, notice.is_given))
    must_stop = notice.is_given()
    if not flaw.detail and not must_stop:
        return None
    return PodExit(
        pod_id=spec.pod_id,
        outcome="interrupted" if must_stop else "failed",
        ranks=(),
        detail="" if must_stop else flaw.detail,
        failure=Failure(kind=FailureKind.INVALID) if flaw.is_final and not must_stop else None,
        ended_at=datetime.now(UTC),
    )


def _run_ranks(pod: _Pod, is_warm: bool, lock: int, notice: _Notice) -> PodExit:
    spec, directory, container = pod.spec, pod.directory, pod.container
    listener = control.listen(directory / "control.sock")
    ranks: list[Rank] = []
    for index in range(num_processes(spec)):
        ours = [lock, listener.fileno(), *(rank.output for rank in ranks)]
        ranks.append(start_rank(spec, index, directory, is_warm, ours))
    # Only now: a rank of any program must not pay for importing a Kafka client.
    from drivetrain.pod.supervision import Supervision
    from drivetrain.pod.system_metrics import SystemMetrics

    async def live() -> PodExit:
        supervision = Supervision(spec, notice.notices, ranks, listener)
        files = PodFiles(spec, directory, supervision.say)
        files.start(supervision.note)
        system = SystemMetrics(
            _devices_of(spec, container), container is not None, supervision.send_system
        )
        system.start()
        await supervision.watch(notice.is_given(), files)
        system.stop()
        end = _end_of(spec, directory, supervision)
        memory.remove(spec.groups)
        supervision.spans.end(end)
        if container is None:
            await write_end_once_there_is_room(directory, end)
            await supervision.send_the_rest()
        else:
            await asyncio.to_thread(leave_container, container, pod.directory, spec, end)
            with suppress(TimeoutError):
                await asyncio.wait_for(supervision.send_the_rest(), TELEMETRY_SECONDS)
        return end

    return asyncio.run(live())


def _devices_of(spec: PodSpec, container: Container | None) -> Sequence[str] | None:
    """Those of this pod, by index or UUID; None: all that are visible here."""
    if spec.device_type == "cpu":
        return ()
    return None if container is not None else tuple(as_seen_outside(spec.devices))


def _end_of(spec: PodSpec, directory: Path, seen: "Supervision") -> PodExit:
    failed = outcome.first_failed(seen.ends)
    why = None if failed is None else seen.explain(failed, spec.world_size)
    decided = outcome.decide(
        seen.ends, num_processes(spec), seen.notice is not None, "" if why is None else why.reason
    )
    if seen.flaw:
        decided = outcome.Outcome("failed", decided.first_failed_rank, seen.flaw)
    result, flaw = _result_of(directory, seen)
    if flaw:
        _logger.error("the result is not kept: %s", flaw)
    return PodExit(
        pod_id=spec.pod_id,
        outcome=decided.outcome,
        ranks=tuple(sorted(seen.ends, key=lambda end: end.rank)),
        first_failed_rank=decided.first_failed_rank,
        detail=decided.detail or flaw,
        last_log=seen.tail(decided.first_failed_rank),
        result=result,
        failure=None if why is None else seen.failure(why.kind),
        ended_at=datetime.now(UTC),
    )


def _result_of(directory: Path, seen: "Supervision") -> tuple[Result | None, str]:
    """The result, or none and why the file is invalid. The job's programs write it."""
    try:
        content = read_bounded(directory / "result.json", MAX_RESULT_BYTES)
        if content is not None:
            return Result.model_validate_json(content), ""
        if seen.reported.last:
            return make_result(seen.reported_step, seen.reported), ""
    except ValidationError as error:
        first = field_errors(error)[0]
        return None, f"result: {first.field} {first.message}"
    except (OSError, ValueError) as error:
        return None, f"result: {error}"
    return None, ""


async def write_end_once_there_is_room(directory: Path, end: PodExit) -> None:
    """A full disk must not make a lost pod of one that succeeded. Raises OSError in the end."""
    for number in itertools.count(1):
        try:
            _write_end(directory, end)
            return
        except OSError as error:
            if number == NUM_TRIES_TO_WRITE or error.errno not in _NO_ROOM:
                raise
            _logger.error("the pod's end is not written yet: %s", error)
            await asyncio.sleep(1.0)


def _write_end(directory: Path, end: PodExit) -> None:
    write_atomically(directory / "exit.json", end.model_dump_json(exclude_none=True))
    _logger.info("pod ended: outcome=%s %s", end.outcome, end.detail)


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
        force=True,
    )
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every retry
