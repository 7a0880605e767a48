"""Publishes to Apache Kafka, behind the port of `bus`, with aiokafka.

Every default that matters is set here, because aiokafka's own are unsafe for this use: all
acknowledgements, idempotence. No Kafka transactions: aiokafka cannot fence them (issues 844, 1145).
"""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)

from services.runtime import logs
from services.runtime.bus import (
    DELIVERED,
    BusUnavailable,
    Delivery,
    OnSettled,
    Outcome,
    OutRecord,
    PublishFailed,
)
from services.runtime.errors import KafkaUnavailable
from services.runtime.kafka_access import KafkaAccess, why

log = logs.get()

ACK_SECONDS = 15.0
PRODUCER_OPTIONS: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 2,
    # Below the limit of every topic, so a batch refused for its size is a single too large record.
    "max_batch_size": 131_072,
    # The broker's own limit per topic is lower, but for what is parked (`topics`).
    "max_request_size": 2_000_000,
    "compression_type": None,
}
# Errors that no retry can change.
REFUSALS = (
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)


class KafkaPublisher:
    """An idempotent producer, replaced after every failure.

    aiokafka's producer stays unusable after OutOfOrderSequenceNumber (issue 1017), with idempotence
    its batches never expire, and a broker's crash can end its sender task with any exception; so
    each call has its own timeout, and any error means *unknown*, not *failed*: the caller sends
    again, readers drop duplicates. Only what no retry can change is *refused*.
    """

    def __init__(self, access: KafkaAccess, client_id: str) -> None:
        self._access = access
        self._client_id = client_id
        self._current: _Shared | None = None
        self._lock = asyncio.Lock()

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        call = _Call(records, on_settled)
        shared: _Shared | None = None
        problem = ""
        is_usable = True  # also when this call is cancelled
        try:
            async with asyncio.timeout(ACK_SECONDS):
                shared = await self._connected()
                await call.send(shared.producer)
                await call.settled()
            is_usable = call.is_acknowledged()
        except Exception as error:
            is_usable = False
            problem = str(error) if isinstance(error, KafkaUnavailable) else repr(error)
            if not isinstance(error, (KafkaError, KafkaUnavailable, OSError, TimeoutError)):
                log.exception("the producer failed; it is replaced")
        finally:
            await self._release(shared, is_usable)
        call.give_up(problem)
        if not call.is_acknowledged():
            kind = BusUnavailable if shared is None else PublishFailed
            raise kind(call.deliveries(), problem or call.first_problem())

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await _abandon(current.producer)

    async def _connected(self) -> "_Shared":
        async with self._lock:
            if self._current is None:
                producer = AIOKafkaProducer(
                    client_id=self._client_id, **self._access.options(), **PRODUCER_OPTIONS
                )
                try:
                    await producer.start()
                except (KafkaError, OSError) as error:
                    await _abandon(producer)
                    raise KafkaUnavailable(await why(self._access, error)) from error
                except BaseException:
                    await _abandon(producer)
                    raise
                self._current = _Shared(producer)
            self._current.num_calls += 1
            return self._current

    async def _release(self, shared: "_Shared | None", is_usable: bool) -> None:
        """The last call that uses a replaced producer closes it: others may still be answered."""
        if shared is None:
            return
        shared.num_calls -= 1
        if not is_usable and self._current is shared:
            self._current = None
        if self._current is not shared and shared.num_calls == 0:
            await _abandon(shared.producer)


@dataclass(slots=True)
class _Shared:
    """One producer and the calls that use it."""

    producer: Any
    num_calls: int = 0


class _Call:
    """The records of one `publish` call, and the outcome of each."""

    def __init__(self, records: Sequence[OutRecord], on_settled: OnSettled | None) -> None:
        self._records = records
        self._on_settled = on_settled
        self._deliveries: list[Delivery | None] = [None] * len(records)
        self._num_open = len(records)
        self._is_settled = asyncio.Event()

    async def send(self, producer: Any) -> None:
        """Pass every record to the producer, each topic separately: one may have to wait."""
        by_topic: dict[str, list[int]] = {}
        for index, record in enumerate(self._records):
            by_topic.setdefault(record.topic, []).append(index)
        async with asyncio.TaskGroup() as group:
            for indexes in by_topic.values():
                group.create_task(self._send_topic(producer, indexes))

    async def settled(self) -> None:
        if self._num_open:
            await self._is_settled.wait()

    def give_up(self, detail: str) -> None:
        """Mark every record without an outcome as unknown."""
        for index, delivery in enumerate(self._deliveries):
            if delivery is None:
                self._settle(index, Delivery(Outcome.UNKNOWN, detail))

    def deliveries(self) -> list[Delivery]:
        return [delivery for delivery in self._deliveries if delivery is not None]

    def is_acknowledged(self) -> bool:
        return all(delivery is DELIVERED for delivery in self._deliveries)

    def first_problem(self) -> str:
        return next((it.detail for it in self.deliveries() if it is not DELIVERED), "")

    async def _send_topic(self, producer: Any, indexes: Sequence[int]) -> None:
        for position, index in enumerate(indexes):
            try:
                ack = await _send(producer, self._records[index])
            except Exception as error:
                delivery = _failure(error)
                self._settle(index, delivery)
                if delivery.outcome is Outcome.REFUSED:
                    continue
                for later in indexes[position + 1 :]:  # of the same keys, maybe: in order or not
                    self._settle(later, delivery)
                return
            ack.add_done_callback(partial(self._on_ack, index))

    def _on_ack(self, index: int, ack: "asyncio.Future[Any]") -> None:
        if ack.cancelled():
            self._settle(index, Delivery(Outcome.UNKNOWN, "cancelled"))
        else:
            error = ack.exception()  # also marks it as seen
            self._settle(index, DELIVERED if error is None else _failure(error))

    def _settle(self, index: int, delivery: Delivery) -> None:
        if self._deliveries[index] is not None:
            return  # timed out; a later result of the producer is ignored
        self._deliveries[index] = delivery
        self._num_open -= 1
        if not self._num_open:
            self._is_settled.set()
        if self._on_settled is not None:
            self._on_settled(index, delivery)


async def _send(producer: Any, record: OutRecord) -> "asyncio.Future[Any]":
    # aiokafka asserts that one of them is set; a parked record may have neither.
    value = b"" if record.key is None and record.value is None else record.value
    ack: asyncio.Future[Any] = await producer.send(
        record.topic, value=value, key=record.key, headers=list(record.headers)
    )
    return ack


def _failure(error: BaseException) -> Delivery:
    outcome = Outcome.REFUSED if isinstance(error, REFUSALS) else Outcome.UNKNOWN
    return Delivery(outcome, repr(error))


async def _abandon(producer: Any) -> None:
    """Stop a producer that may never be able to flush: the outcome of its records is unknown.

    Its errors are ignored: aiokafka's sender may have failed with any exception.
    """
    with contextlib.suppress(Exception):
        # Otherwise aiokafka's own flush never returns.
        held = producer._message_accumulator
        held.fail_all(KafkaError("the producer was given up"))
        for batch in itertools.chain(held._pending_batches, *held._batches.values()):
            batch._drain_waiter.exception()  # else asyncio logs each as never retrieved
    try:
        async with asyncio.timeout(2.0):
            await producer.stop()
    except Exception as error:
        log.debug("producer did not stop in order", error=repr(error))
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer._sender.close(), 1.0)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer.client.close(), 1.0)
