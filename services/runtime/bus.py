"""The bus as services see it: records, and two ports, one to write and one to read.

`kafka_publisher` and `kafka_source` are the real adapters, `testing` holds the one in memory; one
contract suite runs on both.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol

from services.runtime.errors import TemporaryError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class Partition(NamedTuple):
    """One partition of one topic (full name, with prefix)."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic, bytes untouched. Kafka allows a header without a value.

    `problem` is the reason why a record could not be decoded; its value is then its available
    bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    problem: str | None = None

    @property
    def appended_at(self) -> datetime:
        """The broker's time, or the sender's, which may be any, where a topic takes that."""
        return _EPOCH + timedelta(milliseconds=min(max(self.timestamp_ms, 0), _LAST_MS))


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to be written. `topic` is the full name."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# Two lengths of at most five bytes each.
_HEADER_BYTES = 10


def size_bytes(record: Record | OutRecord) -> int:
    """The maximum size of a record on the wire: key, value, headers and the headers' lengths."""
    names = "".join([name for name, _ in record.headers])
    values = b"".join([value for _, value in record.headers if value])
    lengths = len(record.headers) * _HEADER_BYTES
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + len(names.encode())
        + len(values)
        + lengths
    )


class Outcome(Enum):
    """The outcome of writing a record.

    Unknown: it may be on the bus or not, now or later; send it again. Refused: the bus will never
    accept it unchanged.
    """

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one record, and why."""

    outcome: Outcome
    detail: str = ""


DELIVERED = Delivery(Outcome.ACKNOWLEDGED)
# Receives the index of a record and its outcome.
OnSettled = Callable[[int, Delivery], None]


class PublishFailed(TemporaryError):
    """Some records are not acknowledged; `deliveries` holds the outcome of each, in their order."""

    part: ClassVar[str] = "Kafka"

    def __init__(self, deliveries: Sequence[Delivery], detail: str) -> None:
        super().__init__(detail)
        self.deliveries = tuple(deliveries)


class BusUnavailable(PublishFailed):
    """There is no connection, so nothing was sent."""


class Publisher(Protocol):
    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        """Write the records of each key in order, and wait for every acknowledgement.

        `on_settled` is called once for each record, as soon as its outcome is known. Raises
        PublishFailed unless all are acknowledged. Calls may overlap; only within one call does a
        key keep its order.
        """

    async def close(self) -> None: ...


class RecordSource(Protocol):
    """One member of a consumer group."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def poll(
        self,
        timeout_seconds: float,
        partitions: Set[Partition] | None = None,
        max_records: int | None = None,
    ) -> Mapping[Partition, Sequence[Record]]:
        """The next records of the partitions that are assigned and not paused, or nothing.

        Only of `partitions`, if given; records beyond `max_records` are not decoded.
        """

    def withhold(self, partition: Partition) -> None:
        """The next batch of this partition comes by itself, as one record, not decoded."""

    async def commit(self, offsets: Mapping[Partition, int]) -> bool:
        """Keep the next offset to read of each partition that is still owned.

        False where the bus did not confirm it, or a partition was taken over: no error, because the
        next reader drops what was handled.
        """

    def seek(self, partition: Partition, offset: int) -> None: ...

    def pause(self, partition: Partition) -> None: ...

    def resume(self, partition: Partition) -> None: ...

    def assignment(self) -> frozenset[Partition]: ...

    async def position(self, partition: Partition) -> int | None:
        """The offset of the next record to be polled; None while it is not known."""

    async def end_offsets(self) -> Mapping[Partition, int]:
        """The end offsets of all partitions of the topics read that have a leader, owned or not.

        Requested from the bus. Raises TemporaryError when it does not answer.
        """
