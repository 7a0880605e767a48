"""Parking: what cannot be handled is set aside with its original bytes, and can be replayed.

A parked record travels on `parked.<service>` with key, value and headers untouched, plus headers
`x-parked-*` that say why and where it came from. `replay` puts it back on its topic with its id, so
services that did handle it drop it, and the one that could not meets it again; a header more says
which parked record it was, so that, parked anew, it is the same one. A record too large to be kept
leaves the headers alone: whatever comes in must not stop the outbox.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from drivetrain_schemas.ids import digest_id
from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import OutRecord, Record, size_bytes
from services.runtime.errors import PlatformError
from services.runtime.transaction import Tx

HEADER = "x-parked-"
# Below what a parked topic takes (`topics`); a topic for events takes less than this.
MAX_KEPT_BYTES = 1_500_000
_PARKED_ID = re.compile("parked_[a-z2-7]{26}")


class NotKept(PlatformError):
    """The record was too large to be parked; read it where it came from."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A record to be parked: why, for machines and for people."""

    record: Record
    reason: str
    detail: str


def parked_id(service: str, record: Record) -> str:
    """The same record parked twice by one service has one id, and keeps it through a replay."""
    replayed = parked_fact(record, "replay-of")
    if _PARKED_ID.fullmatch(replayed):
        return replayed
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
    num_bytes = size_bytes(_storable(record))
    if num_bytes > MAX_KEPT_BYTES:
        facts["omitted"] = str(num_bytes)
    return [(HEADER + name, text.encode("utf-8", "replace")) for name, text in facts.items()]


async def park(tx: Tx, service: str, unfit: Unfit) -> None:
    """Set the record aside once `tx` commits."""
    record = _storable(unfit.record)
    facts = parked_headers(service, unfit)
    if size_bytes(record) > MAX_KEPT_BYTES:
        record = replace(record, key=None, value=None, headers=())
    tx.forward(parked_topic(service).name, replace(record, headers=(*record.headers, *facts)))


def replay_header(name: str) -> tuple[str, bytes]:
    """Goes with a record that is put back: the id under which it was parked."""
    return HEADER + "replay-of", name.encode()


def original(record: Record) -> OutRecord:
    """The record to be put back on its topic: as it was, and a header more. Raises NotKept."""
    if parked_fact(record, "omitted"):
        place = [parked_fact(record, name) for name in ("topic", "partition", "offset")]
        raise NotKept(f"too large to be parked; it lies at {'/'.join(place)}")
    headers = tuple((name, text) for name, text in record.headers if not name.startswith(HEADER))
    again = replay_header(parked_fact(record, "id"))
    return OutRecord(parked_fact(record, "topic"), record.key, record.value, (*headers, again))


def parked_fact(record: Record, name: str) -> str:
    """One of the `x-parked-*` facts; "" where it is missing."""
    found = [text for key, text in record.headers if key == HEADER + name]
    return (found[-1] or b"").decode("utf-8", "replace") if found else ""


def _storable(record: Record) -> OutRecord:
    """The record as its outbox row can hold it: Postgres takes no NUL in a text, Kafka does."""
    headers = tuple((name.replace("\0", "\ufffd"), text) for name, text in record.headers)
    return OutRecord(record.topic, record.key, record.value, headers)
