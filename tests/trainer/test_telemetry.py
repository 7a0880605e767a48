"""From a pod to Kafka: in order, each record until it is acknowledged, without blocking."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, OutOfOrderSequenceNumber

from drivetrain.pod import telemetry
from drivetrain.pod.events import OutRecord
from drivetrain_schemas.pods import KafkaAccess

ACCESS = KafkaAccess(bootstrap_servers="127.0.0.1:1")


def record(number: int, size: int = 1) -> OutRecord:
    return OutRecord("metrics", b"run", str(number).encode().ljust(size), [])


class Broker:
    """What arrives, over all producers; `faults` lists the fault of each send, in order."""

    def __init__(self) -> None:
        self.arrived: list[bytes] = []
        self.faults: list[str] = []
        self.num_producers = 0

    def producer(self, **options: object) -> "Producer":
        self.num_producers += 1
        return Producer(self)


class Producer:
    """After a lost record an idempotent producer's later ones are refused: a number is missing."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._has_lost = False

    async def start(self) -> None:
        if self._broker.faults and self._broker.faults[0] == "unreachable":
            self._broker.faults.pop(0)
            raise KafkaConnectionError("nobody listens")

    async def stop(self) -> None:
        return

    async def send(self, topic, value, key, headers) -> asyncio.Future[None]:
        fault = self._broker.faults.pop(0) if self._broker.faults else "none"
        ack: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_lost |= fault == "lost"
        if not self._has_lost:
            self._broker.arrived.append(value.strip())
        if self._has_lost and fault == "none":
            ack.set_exception(OutOfOrderSequenceNumber())
        elif fault == "none":
            ack.set_result(None)
        elif fault in ("lost", "ack lost"):
            ack.set_exception(KafkaTimeoutError())
        elif fault == "broken":
            raise RuntimeError("a bug in the client")
        return ack  # "silent": never answered


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(telemetry, "AIOKafkaProducer", made.producer)
    monkeypatch.setattr(telemetry, "_ACK_SECONDS", 0.2)
    return made


async def send(broker: Broker, *records: OutRecord) -> list[int]:
    """Put all, wait until all are acknowledged; the numbers in the order of their acks."""
    acknowledged: list[int] = []
    sender = telemetry.Telemetry(ACCESS)
    task = asyncio.create_task(sender.run())

    def note(number: int) -> Callable[[], None]:
        return lambda: acknowledged.append(number)

    for number, item in enumerate(records):
        assert sender.put(item, note(number))
    assert await sender.flush(20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return acknowledged


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([], id="no fault"),
        pytest.param(["unreachable", "unreachable"], id="unreachable at first"),
        pytest.param(["none", "lost"], id="a record is lost"),
        pytest.param(["none", "ack lost", "none", "silent"], id="acks are lost"),
        pytest.param(["none", "broken"], id="the client breaks"),
    ],
)
async def test_every_record_arrives_in_order_and_is_acknowledged_once(broker, faults) -> None:
    broker.faults = faults
    acknowledged = await send(broker, *map(record, range(5)))
    assert acknowledged == list(range(5))
    first_arrivals = list(dict.fromkeys(broker.arrived))
    assert first_arrivals == [b"0", b"1", b"2", b"3", b"4"]
    assert broker.arrived[-1] == b"4"


async def test_a_producer_that_failed_is_not_used_again(broker) -> None:
    broker.faults = ["ack lost"]
    await send(broker, record(0))
    assert broker.num_producers == 2


async def test_what_does_not_fit_is_refused() -> None:
    sender = telemetry.Telemetry(ACCESS)
    assert not sender.put(record(0, size=300 * 1024))
    size = 250 * 1024
    fitting = telemetry.MAX_WAITING_BYTES // size
    assert all(sender.put(record(number, size)) for number in range(fitting))
    assert not sender.put(record(0, size))


async def test_only_the_newest_heartbeat_waits(broker) -> None:
    sender = telemetry.Telemetry(ACCESS)
    for number in range(10):
        sender.put_heartbeat(record(number))
    task = asyncio.create_task(sender.run())
    assert await sender.flush(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert broker.arrived == [b"9"]
