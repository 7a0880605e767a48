"""Telemetry that Kafka has not taken when its pod ends: kept in a file, sent by one shim at a time.

All pods of a machine share the directory `unsent` beside their jobs' directories. A shim that ends
writes its records there. The one that gets the lock sends what all have left, for ten minutes at
most, and the others end: while Kafka is unavailable, one shim stays, however many pods end. What it
cannot send, a shim that ends later sends. Within one pod the order is kept, and a record may arrive
twice.
"""

import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from drivetrain.pod import processes
from drivetrain.pod.events import OutRecord
from drivetrain.pod.files import read_bounded
from drivetrain.pod.telemetry import MAX_WAITING_BYTES, Telemetry
from drivetrain_schemas.pods import KafkaAccess
from drivetrain_schemas.topics import LOGS, METRICS, REPORTS

MAX_SECONDS = 600.0
MAX_BYTES = 512 * 1024**2  # of all files; after that, records are lost
_MAX_FILE_BYTES = 2 * MAX_WAITING_BYTES
_LOCK = "lock"
_decoder = msgspec.msgpack.Decoder(list[OutRecord])
_logger = logging.getLogger("drivetrain.pod")


class Unsent:
    """The records of all pods of this machine that were not sent."""

    def __init__(self, pod_directory: Path, access: KafkaAccess) -> None:
        self._directory = pod_directory.parents[2] / "unsent"
        self._name = pod_directory.name
        self._access = access
        self._topics = {access.topic_prefix + topic.name for topic in (LOGS, METRICS, REPORTS)}

    def keep(self, records: Sequence[OutRecord]) -> bool:
        """Write the records of this pod. False where there is no room; they are lost."""
        content = msgspec.msgpack.encode(records)
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            kept = sum(_size(path) for path in self._directory.iterdir())
            if kept + len(content) > MAX_BYTES:
                return False
            partial = self._directory / f".{self._name}"
            partial.write_bytes(content)
            partial.rename(self._directory / f"{time.time_ns():020}-{self._name}")
        except OSError as error:
            _logger.warning("telemetry cannot be kept: %s", error)
            return False
        return True

    async def send(self) -> None:
        """Send what is kept here, unless another shim does."""
        deadline = time.monotonic() + MAX_SECONDS
        # Again, because another shim may have kept something just before the lock was released.
        while self._files() and (lock := self._lock()) is not None:
            try:
                async with _sending(self._access) as telemetry:
                    for path in self._files():
                        if not await self._send_file(path, telemetry, deadline):
                            return
            finally:
                os.close(lock)

    def _files(self) -> list[Path]:
        """The oldest first. A directory, which only a job's program can have made, stays."""
        try:
            found = [path for path in self._directory.iterdir() if path.name[0].isdigit()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(path for path in found if not path.is_dir())

    def _lock(self) -> int | None:
        try:
            return processes.hold_lock(self._directory / _LOCK)
        except OSError:
            return None

    async def _send_file(self, path: Path, telemetry: Telemetry, deadline: float) -> bool:
        for record in self._records(path):
            if record.topic in self._topics:
                telemetry.put(record)
        if not await telemetry.flush(deadline - time.monotonic()):
            return False
        _remove(path)
        _logger.info("telemetry of an ended pod was sent: %s", path.name)
        return True

    def _records(self, path: Path) -> list[OutRecord]:
        """A job's program may have written anything here."""
        try:
            return _decoder.decode(read_bounded(path, _MAX_FILE_BYTES) or b"\x90")
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            _logger.warning("kept telemetry is ignored: %s: %s", path.name, error)
            return []


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # another shim has just sent it
        return 0


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


@asynccontextmanager
async def _sending(access: KafkaAccess) -> AsyncIterator[Telemetry]:
    telemetry = Telemetry(access)
    telemetry.start()
    try:
        yield telemetry
    finally:
        await telemetry.close()
