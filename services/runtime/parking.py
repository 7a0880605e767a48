"""Parking: what cannot be handled is set aside with its original bytes, and can be replayed.

A parked record travels on `parked.<service>` with key, value and headers untouched, plus headers
`x-parked-*` that say why and where it came from. `replay` puts it back on its topic with its id, so
services that did handle it drop it, and the one that could not meets it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from drivetrain_schemas.ids import digest_id
from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import OutRecord, Record
from services.runtime.transaction import Tx

HEADER = "x-parked-"


@dataclass(frozen=True, slots=True)
class Unfit:
    """A record to be parked: why, for machines and for people."""

    record: Record
    reason: str
    detail: str


def parked_id(service: str, record: Record) -> str:
    """The same record parked twice by one service has one id."""
    place = (record.topic, str(record.partition), str(record.offset))
    return f"parked_{digest_id(service, *place)}"


def parked_headers(service: str, unfit: Unfit) -> list[tuple[str, bytes]]:
    record = unfit.record
    facts = {
        "id": parked_id(service, record),
        "reason": unfit.reason,
        "detail": unfit.detail[:1024],
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "at": datetime.now(UTC).isoformat(),
        "service": service,
    }
    return [(HEADER + name, text.encode()) for name, text in facts.items()]


async def park(tx: Tx, service: str, unfit: Unfit) -> None:
    """Set the record aside once `tx` commits."""
    await tx.forward(parked_topic(service).name, unfit.record, parked_headers(service, unfit))


def original(record: Record) -> OutRecord:
    """The record as it was before it was parked, to be put back on its topic."""
    headers = tuple((name, text) for name, text in record.headers if not name.startswith(HEADER))
    return OutRecord(parked_fact(record, "topic"), record.key, record.value, headers)


def parked_fact(record: Record, name: str) -> str:
    """One of the `x-parked-*` facts; "" where it is missing."""
    found: Sequence[bytes] = [text for key, text in record.headers if key == HEADER + name]
    return found[-1].decode("utf-8", "replace") if found else ""
