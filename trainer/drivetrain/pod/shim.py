"""The shim from its start to `exit.json`: everything in the order in which it must happen.

Lock, then spec: a launcher that gave this pod up holds the lock or has moved the spec away.
Identity before anything is started, so that whatever runs here can be found. Ranks are forked
before there is a thread or an event loop. `exit.json` comes when nothing of the pod is left but
the shim itself, which may go on sending what Kafka has not taken yet.
"""

import asyncio
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pydantic import ValidationError

from drivetrain import control
from drivetrain.errors import StorageError
from drivetrain.pod import code, outcome, processes
from drivetrain.pod.ranks import Rank, start_rank
from drivetrain.results import make_result, write_atomically
from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import PodExit, PodSpec

if TYPE_CHECKING:
    from drivetrain.pod.supervision import Supervision

EXIT_NOT_OURS = 3
MAX_RESULT_BYTES = 128 * 1024
_logger = logging.getLogger("drivetrain.pod")


class _Notice:
    """SIGTERM before the event loop runs: remembered, and the fetch of the code is broken off."""

    def __init__(self) -> None:
        self.is_given = False
        self.fetch_pid: int | None = None
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.is_given = True
        if self.fetch_pid is not None:
            os.kill(self.fetch_pid, signal.SIGKILL)


def run_pod(directory: Path, is_warm: bool) -> int:
    """Carry out the pod that `spec.json` describes. Returns the shim's exit code."""
    directory = directory.absolute()
    os.umask(0o077)
    os.chdir(directory)
    _log_to_stderr()
    processes.become_subreaper()
    lock = processes.hold_lock(directory / "lock")
    spec_path = directory / "spec.json"
    if lock is None or not spec_path.exists() or (directory / "identity.json").exists():
        _logger.error("this pod is not ours to run")
        return EXIT_NOT_OURS
    spec = PodSpec.model_validate_json(spec_path.read_bytes())
    notice = _Notice()
    write_atomically(directory / "identity.json", processes.identify_self().model_dump_json())
    flaw = _fetch_code(spec, directory, notice)
    if flaw or notice.is_given:
        end = PodExit(
            pod_id=spec.pod_id,
            outcome="interrupted" if notice.is_given else "failed",
            ranks=(),
            detail="" if notice.is_given else flaw,
            ended_at=datetime.now(UTC),
        )
        _write_end(directory, end)
    else:
        _run_ranks(spec, directory, is_warm, lock, notice)
    return 0


def _run_ranks(spec: PodSpec, directory: Path, is_warm: bool, lock: int, notice: _Notice) -> None:
    listener = control.listen(directory / "control.sock")
    ranks: list[Rank] = []
    for index in range(spec.num_ranks):
        ours = [lock, listener.fileno(), *(rank.output for rank in ranks)]
        ranks.append(start_rank(spec, index, directory, is_warm, ours))
    # Only now: a rank of any program must not pay for importing a Kafka client.
    from drivetrain.pod.supervision import Supervision

    async def live() -> None:
        supervision = Supervision(spec, directory, ranks, listener)
        await supervision.watch(notice.is_given)
        _write_end(directory, _end_of(spec, directory, supervision))
        await supervision.send_the_rest()

    asyncio.run(live())


def _end_of(spec: PodSpec, directory: Path, seen: "Supervision") -> PodExit:
    decided = outcome.decide(seen.ends, spec.num_ranks, seen.notice is not None)
    if seen.flaw:
        decided = outcome.Outcome("failed", decided.first_failed_rank, seen.flaw)
    result, flaw = _result_of(directory, seen)
    if flaw:
        _logger.error("no result is kept: %s", flaw)
    return PodExit(
        pod_id=spec.pod_id,
        outcome=decided.outcome,
        ranks=tuple(sorted(seen.ends, key=lambda end: end.rank)),
        first_failed_rank=decided.first_failed_rank,
        detail=decided.detail or flaw,
        last_log=seen.tail(decided.first_failed_rank),
        result=result,
        ended_at=datetime.now(UTC),
    )


def _result_of(directory: Path, seen: "Supervision") -> tuple[Result | None, str]:
    """The result, or none and why what there is cannot be one. The job's programs write it."""
    try:
        content = _read_bounded(directory / "result.json")
        if content is not None:
            return Result.model_validate_json(content), ""
        if seen.reported.last:
            return make_result(seen.reported_step, seen.reported), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100]
        return None, f"result: {where} {first['msg']:.200}"
    except (OSError, ValueError) as error:
        return None, f"result: {error}"
    return None, ""


def _read_bounded(path: Path) -> bytes | None:
    try:
        # Not to be held up by a pipe that somebody has put there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_RESULT_BYTES + 1) or b""
    finally:
        os.close(descriptor)
    if len(content) > MAX_RESULT_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_RESULT_BYTES} bytes")
    return content


def _write_end(directory: Path, end: PodExit) -> None:
    write_atomically(directory / "exit.json", end.model_dump_json(exclude_none=True))
    _logger.info("pod ended: outcome=%s %s", end.outcome, end.detail)


def _fetch_code(spec: PodSpec, directory: Path, notice: _Notice) -> str:
    """Why the code is not there; empty when it is.

    In a child, because a client of an object store starts threads, which no fork survives.
    """
    target = directory / "code"
    target.mkdir(exist_ok=True)
    if spec.job.code is None or notice.is_given:
        return ""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        detail = ""
        try:
            code.fetch(spec.job.code, spec.object_store_endpoint_url, target)
        except (code.InvalidCode, StorageError) as error:
            detail = str(error)
        except BaseException as error:
            detail = f"code: {error!r}"
        os.write(writer, detail.encode()[:4096])
        os._exit(1 if detail else 0)
    notice.fetch_pid = pid
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        detail = pipe.read().decode("utf-8", "replace")
    notice.fetch_pid = None
    _, status = os.waitpid(pid, 0)
    if status != 0 and not detail:
        return f"code: fetching it ended with {outcome.signed_exit_code(status)}"
    return detail


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
        force=True,
    )
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says every retry
