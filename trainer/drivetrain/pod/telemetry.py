"""One producer per pod: sends records in order, and never delays training.

Records wait in a bounded queue. They are sent in batches; a batch that is not acknowledged within
its time is sent again by a new producer (aiokafka's stays unusable after some errors, and its
batches never expire), so a record may arrive twice, but never out of order. Only the newest
heartbeat is queued. While Kafka is unavailable, the rest of the pod continues.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from drivetrain.pod.events import OutRecord
from drivetrain.pod.kafka_login import login_options, why
from drivetrain_schemas.envelope import MAX_EVENT_BYTES
from drivetrain_schemas.pods import KafkaAccess

MAX_WAITING_BYTES = 32 * 1024 * 1024
_BATCH_RECORDS = 200
_BATCH_BYTES = 512 * 1024  # a broker takes 1 MiB
_ACK_SECONDS = 20.0
_logger = logging.getLogger("drivetrain.pod")


class _Waiting(NamedTuple):
    record: OutRecord
    on_ack: Callable[[], None] | None


class Telemetry:
    """The connection of a pod to Kafka."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._heartbeat: OutRecord | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._producer: Any = None
        self._sender: asyncio.Task[None] | None = None

    def put(self, record: OutRecord, on_ack: Callable[[], None] | None = None) -> bool:
        """Queue a record. False where it does not fit and is dropped."""
        size = len(record.value)
        beside = len(record.key) + sum(len(name) + len(value) for name, value in record.headers)
        # One that Kafka refuses would be tried for ever, and hold back all that follow.
        if size > MAX_EVENT_BYTES or beside > MAX_EVENT_BYTES:
            return False
        if self._waiting_bytes + size > MAX_WAITING_BYTES:
            return False
        self._waiting.append(_Waiting(record, on_ack))
        self._waiting_bytes += size
        self._wake.set()
        self._idle.clear()
        return True

    def put_heartbeat(self, record: OutRecord) -> None:
        self._heartbeat = record
        self._wake.set()
        self._idle.clear()

    def start(self) -> None:
        """Send from now on, until `close`."""
        self._sender = asyncio.create_task(self.run())

    async def run(self) -> None:
        """Send until cancelled."""
        pause = 0.1
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._waiting or self._heartbeat is not None:
                    await self._send_some()
                    pause = 0.1
                self._idle.set()
            except Exception as error:  # no error may end the pod
                problem = await self._problem(error)
                _logger.info("telemetry is not sent, trying again: %s", problem)
                await self._abandon()
                await asyncio.sleep(pause)
                pause = min(2 * pause, 5.0)
                self._wake.set()

    async def flush(self, seconds: float) -> bool:
        """Wait until everything is acknowledged; False on a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return self._idle.is_set()

    async def close(self) -> list[OutRecord]:
        """Stop sending. Returns what was not acknowledged."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        await self._abandon()
        return [waiting.record for waiting in self._waiting]

    async def _send_some(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        batch = [self._waiting[i] for i in range(min(_BATCH_RECORDS, len(self._waiting)))]
        async with asyncio.timeout(_ACK_SECONDS):
            producer = await self._connected()
            if heartbeat is not None:
                await self._send(producer, heartbeat)  # a lost one is followed by the next
            acks = [await self._send(producer, waiting.record) for waiting in batch]
            for ack in acks:
                await ack
                done = self._waiting.popleft()
                self._waiting_bytes -= len(done.record.value)
                if done.on_ack is not None:
                    done.on_ack()

    @staticmethod
    async def _send(producer: Any, record: OutRecord) -> asyncio.Future[Any]:
        ack: asyncio.Future[Any] = await producer.send(
            record.topic, value=record.value, key=record.key, headers=record.headers
        )
        # An acknowledgement that is no longer awaited (after a timeout) must not be reported as
        # lost.
        ack.add_done_callback(lambda done: done.cancelled() or done.exception())
        return ack

    async def _connected(self) -> Any:
        if self._producer is None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._access.bootstrap_servers,
                client_id=self._access.client_id,
                acks="all",
                enable_idempotence=True,
                linger_ms=5,
                # With the default of 16 KiB each record of samples or lines is a request.
                max_batch_size=_BATCH_BYTES,
                request_timeout_ms=10_000,
                retry_backoff_ms=200,
                metadata_max_age_ms=60_000,
                **login_options(self._access),
            )
            self._producer = producer
            await producer.start()
        return self._producer

    async def _problem(self, error: Exception) -> str:
        if not isinstance(error, KafkaConnectionError):
            return repr(error)
        return await why(self._access, error)

    async def _abandon(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # Its stop waits for batches that may never be acknowledged.
        with suppress(Exception):
            async with asyncio.timeout(1.0):
                await producer.stop()
                return
        with suppress(Exception):
            await asyncio.wait_for(producer.client.close(), 1.0)
