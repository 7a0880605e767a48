"""The guards round aiokafka that can be seen without a broker.

Its defaults lose records, its producer stays dead after a fatal error and waits for ever for an
acknowledgement; so the options are asserted, and a producer that misbehaves is played.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from services.runtime import kafka_publisher, kafka_source
from services.runtime.bus import (
    BusUnavailable,
    Delivery,
    Outcome,
    OutRecord,
    Partition,
    PublishFailed,
)
from services.runtime.errors import KafkaUnavailable, TemporaryError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource

ACCESS = KafkaAccess("127.0.0.1:1", "drivetrain", "hunter2")
RECORDS = [OutRecord("t", b"k", b"%d" % number) for number in range(4)]


def test_the_consumer_commits_by_hand_from_the_earliest_offset() -> None:
    options = kafka_source.CONSUMER_OPTIONS
    assert options["enable_auto_commit"] is False
    assert options["auto_offset_reset"] == "earliest"
    assert options["isolation_level"] == "read_committed"


def test_partitions_are_assigned_round_robin() -> None:
    # aiokafka's sticky assignor never gets its generation (issue 1176).
    strategy = kafka_source.CONSUMER_OPTIONS["partition_assignment_strategy"]
    assert strategy == (RoundRobinPartitionAssignor,)


def test_a_loop_that_is_busy_keeps_its_membership() -> None:
    options = kafka_source.CONSUMER_OPTIONS
    assert options["session_timeout_ms"] >= 30_000
    assert options["heartbeat_interval_ms"] * 3 <= options["session_timeout_ms"]


def test_a_member_has_a_name_that_outlives_the_process() -> None:
    source = KafkaSource(ACCESS, "cost", ["t"], member="cost.0", max_records=7)
    assert source._options["group_instance_id"] == "cost.0"


def test_the_producer_waits_for_all_and_is_idempotent() -> None:
    assert kafka_publisher.PRODUCER_OPTIONS["acks"] == "all"
    assert kafka_publisher.PRODUCER_OPTIONS["enable_idempotence"] is True


Answer = Callable[[OutRecord, "asyncio.Future[Any]"], None]


def acknowledge(_record: OutRecord, ack: "asyncio.Future[Any]") -> None:
    ack.set_result(None)


class PlayedProducer:
    """An aiokafka producer whose answers the test chooses."""

    made: list["PlayedProducer"] = []
    answer: Answer = staticmethod(acknowledge)

    def __init__(self, **options: Any) -> None:
        self.sent: list[bytes] = []
        self.acks: list[asyncio.Future[Any]] = []
        self.is_stopped = False
        PlayedProducer.made.append(self)

    @property
    def _message_accumulator(self) -> "PlayedProducer":
        return self

    def fail_all(self, error: Exception) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.is_stopped = True

    async def send(
        self, topic: str, *, value: bytes, key: bytes, headers: object
    ) -> asyncio.Future[Any]:
        ack: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        PlayedProducer.answer(OutRecord(topic, key, value), ack)
        self.sent.append(value)
        self.acks.append(ack)
        return ack


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Producers answer by this function from now on."""
    monkeypatch.setattr(kafka_publisher, "AIOKafkaProducer", PlayedProducer)
    monkeypatch.setattr(PlayedProducer, "made", [])
    return lambda answer: monkeypatch.setattr(PlayedProducer, "answer", staticmethod(answer))


@pytest.fixture
def publisher(play: object) -> KafkaPublisher:
    return KafkaPublisher(ACCESS, "tests")


def fail_from(number: int, error: Exception) -> Answer:
    """The first `number` are acknowledged, the rest fails."""

    def answer(record: OutRecord, ack: "asyncio.Future[Any]") -> None:
        if int(record.value or b"") < number:
            ack.set_result(None)
        else:
            ack.set_exception(error)

    return answer


async def test_one_producer_serves_every_call(publisher: KafkaPublisher) -> None:
    await publisher.publish(RECORDS)
    await publisher.publish(RECORDS)
    (producer,) = PlayedProducer.made
    assert producer.sent == [record.value for record in RECORDS] * 2


async def test_after_a_fatal_error_the_producer_is_replaced(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    play(fail_from(0, OutOfOrderSequenceNumber()))
    with pytest.raises(PublishFailed, match="OutOfOrderSequenceNumber"):
        await publisher.publish(RECORDS)
    play(acknowledge)
    await publisher.publish(RECORDS)
    dead, fresh = PlayedProducer.made
    assert dead.is_stopped
    assert len(fresh.sent) == len(RECORDS)


def outcomes(failed: pytest.ExceptionInfo[PublishFailed]) -> list[str]:
    return [delivery.outcome.value for delivery in failed.value.deliveries]


async def test_each_record_has_its_own_outcome(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    def answer(record: OutRecord, ack: "asyncio.Future[Any]") -> None:
        if record.value == b"1":
            ack.set_exception(KafkaConnectionError())
        elif record.value == b"2":
            ack.set_exception(RecordListTooLargeError())
        else:
            ack.set_result(None)

    play(answer)
    settled: list[int] = []
    with pytest.raises(PublishFailed) as failed:
        await publisher.publish(RECORDS, lambda index, delivery: settled.append(index))
    assert outcomes(failed) == ["acknowledged", "unknown", "refused", "acknowledged"]
    assert sorted(settled) == [0, 1, 2, 3]


async def test_a_record_refused_before_it_is_sent_costs_the_others_nothing(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    def answer(record: OutRecord, ack: "asyncio.Future[Any]") -> None:
        if record.value == b"1":
            raise MessageSizeTooLargeError()
        asyncio.get_running_loop().call_soon(ack.set_result, None)

    play(answer)
    with pytest.raises(PublishFailed, match="TooLarge") as failed:
        await publisher.publish(RECORDS)
    assert outcomes(failed) == ["acknowledged", "refused", "acknowledged", "acknowledged"]


async def test_what_follows_a_record_that_could_not_be_sent_is_not_sent_before_it(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    """On its own topic; another topic goes on."""

    def answer(record: OutRecord, ack: "asyncio.Future[Any]") -> None:
        if record.topic == "t" and record.value == b"1":
            raise UnknownTopicOrPartitionError()
        ack.set_result(None)

    play(answer)
    other = [OutRecord("u", b"k", b"%d" % number) for number in range(2)]
    with pytest.raises(PublishFailed, match="UnknownTopic") as failed:
        await publisher.publish([*RECORDS, *other])
    assert outcomes(failed) == ["acknowledged", *["unknown"] * 3, *["acknowledged"] * 2]
    (producer,) = PlayedProducer.made
    assert sorted(producer.sent) == [b"0", b"0", b"1"]


async def test_an_acknowledgement_that_never_comes_is_given_up(
    publisher: KafkaPublisher, play: Callable[[Answer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 0.01)
    play(lambda record, ack: acknowledge(record, ack) if record.value == b"0" else None)
    with pytest.raises(PublishFailed, match="TimeoutError") as failed:
        await publisher.publish(RECORDS)
    assert outcomes(failed) == ["acknowledged", "unknown", "unknown", "unknown"]


async def test_an_acknowledgement_after_the_time_limit_changes_nothing(
    publisher: KafkaPublisher, play: Callable[[Answer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 0.01)
    play(lambda record, ack: None)
    settled: list[Delivery] = []
    with pytest.raises(PublishFailed):
        await publisher.publish(RECORDS[:1], lambda index, delivery: settled.append(delivery))
    PlayedProducer.made[0].acks[0].set_result(None)
    await asyncio.sleep(0)
    assert [delivery.outcome for delivery in settled] == [Outcome.UNKNOWN]


async def cause_of(access: KafkaAccess, error: BaseException) -> str:
    """Without the connection that looks for the cause."""
    return f"the cause of {error}"


async def test_without_a_connection_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(producer: AIOKafkaProducer) -> None:
        raise KafkaConnectionError("nobody listens")

    monkeypatch.setattr(AIOKafkaProducer, "start", refuse)
    monkeypatch.setattr(kafka_publisher, "why", cause_of)
    with pytest.raises(BusUnavailable, match=r"the cause of .*nobody listens") as failed:
        await KafkaPublisher(ACCESS, "tests").publish(RECORDS)
    assert outcomes(failed) == ["unknown"] * 4


@pytest.mark.parametrize("where", ["send", "acknowledgement", "stop"])
async def test_any_exception_of_the_producer_is_an_unknown_outcome_and_replaces_it(
    publisher: KafkaPublisher,
    play: Callable[[Answer], None],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """aiokafka's sender ends with a KeyError where a batch is failed while it waits to be sent."""

    def answer(record: OutRecord, ack: "asyncio.Future[Any]") -> None:
        if where == "send":
            raise KeyError("batch")
        ack.set_exception(KeyError("batch") if where == "acknowledgement" else KafkaTimeoutError())

    async def stop(producer: PlayedProducer) -> None:
        raise KeyError("batch")

    play(answer)
    with monkeypatch.context() as patched:
        if where == "stop":
            patched.setattr(PlayedProducer, "stop", stop)
        with pytest.raises(PublishFailed) as failed:
            await publisher.publish(RECORDS)
    assert outcomes(failed) == ["unknown"] * 4
    play(acknowledge)
    await publisher.publish(RECORDS)
    assert len(PlayedProducer.made) == 2


async def test_a_cancelled_call_leaves_the_producers_futures_alone(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    play(lambda record, ack: None)
    call = asyncio.create_task(publisher.publish(RECORDS))
    while not (PlayedProducer.made and len(PlayedProducer.made[0].acks) == len(RECORDS)):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(ack.cancelled() for ack in PlayedProducer.made[0].acks)


async def test_a_failed_call_ends_its_producer_only_after_the_other_calls(
    publisher: KafkaPublisher, play: Callable[[Answer], None]
) -> None:
    """Two calls share a producer: what fails in one must not lose the other its answer."""
    play(lambda record, ack: None)
    first, second = (asyncio.create_task(publisher.publish(RECORDS[:1])) for _ in range(2))
    while not (PlayedProducer.made and len(PlayedProducer.made[0].acks) == 2):
        await asyncio.sleep(0)
    shared = PlayedProducer.made[0]
    shared.acks[0].set_exception(KafkaConnectionError())
    with pytest.raises(PublishFailed):
        await first
    play(acknowledge)
    await publisher.publish(RECORDS[:1])
    assert (len(PlayedProducer.made), shared.is_stopped) == (2, False)
    shared.acks[1].set_result(None)
    await second
    assert shared.is_stopped
    await publisher.publish(RECORDS[:1])
    assert len(PlayedProducer.made) == 2, "the successor is left alone"


async def test_nothing_waits_for_what_a_given_up_producer_still_holds() -> None:
    """aiokafka's own flush would, for ever: with idempotence its batches never expire."""
    producer = AIOKafkaProducer(**ACCESS.options(), **kafka_publisher.PRODUCER_OPTIONS)
    held = producer._message_accumulator
    batch = held.create_builder()
    batch.append(key=b"k", value=b"v", timestamp=None)
    held._append_batch(batch, TopicPartition("t", 0))
    flush = asyncio.create_task(held.flush())
    await kafka_publisher._abandon(producer)
    async with asyncio.timeout(10):
        await flush


class ClosedConsumer:
    """An aiokafka consumer that never reaches its broker; a closed one must not be used again."""

    made = 0

    def __init__(self, *topics: str, **options: Any) -> None:
        ClosedConsumer.made += 1
        self._is_closed = False

    async def start(self) -> None:
        assert not self._is_closed, "started again after it was closed"
        raise KafkaConnectionError("refused")

    async def stop(self) -> None:
        self._is_closed = True


async def test_each_attempt_to_join_has_its_own_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "AIOKafkaConsumer", ClosedConsumer)
    monkeypatch.setattr(kafka_source, "why", cause_of)
    monkeypatch.setattr(ClosedConsumer, "made", 0)
    source = KafkaSource(ACCESS, "cost", ["t"], member="cost.0", max_records=7)
    for _ in range(3):
        with pytest.raises(TemporaryError):
            await source.start()
    assert ClosedConsumer.made == 3
    assert source.assignment() == frozenset()
    with pytest.raises(TemporaryError):
        await source.end_offsets()


class RefusedConsumer:
    """An aiokafka consumer whose right to read the topic was taken away."""

    _client = SimpleNamespace(
        cluster=SimpleNamespace(available_partitions_for_topic=lambda topic: {0})
    )

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        raise TopicAuthorizationFailedError("t")


async def test_a_right_that_is_missing_is_told_from_silence() -> None:
    source = KafkaSource(ACCESS, "cost", ["t"], member="cost.0", max_records=7)
    source._consumer = RefusedConsumer()
    with pytest.raises(KafkaUnavailable, match=r"refuses what this user may not do.*access kafka"):
        await source.end_offsets()


class HalfLedConsumer:
    """An aiokafka consumer of two partitions, of which one has no leader."""

    def __init__(self) -> None:
        self._client = SimpleNamespace(
            cluster=SimpleNamespace(available_partitions_for_topic=lambda topic: {1})
        )

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0, 1}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if TopicPartition("t", 0) in partitions:
            raise KafkaTimeoutError("a partition has no leader")
        return dict.fromkeys(partitions, 7)


async def test_the_end_of_a_partition_without_leader_is_left_out() -> None:
    source = KafkaSource(ACCESS, "cost", ["t"], member="cost.0", max_records=7)
    source._consumer = HalfLedConsumer()
    assert await source.end_offsets() == {Partition("t", 1): 7}
