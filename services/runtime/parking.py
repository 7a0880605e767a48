"""Parking: a record that cannot be handled is set aside with its original bytes, to be replayed.

A parked record travels on `parked.<service>` with key, value and headers untouched, plus headers
`x-parked-*` that say why and where it came from; headers of that name that a client wrote are left
out. A replay (`drivetrain parked replay`) puts it back on its topic with its id: services that
handled it drop it, and the one that could not reads it again. A further header names the parked
record. It is accepted only if it is proven: the id contains a digest of the record's content, so
that no other content can appear to be a replay. Of a record too large to be kept only the
`x-parked-*` headers are stored: no received record may stop the outbox.

Of a topic that pods or clients write, only so many records are parked in a day. Those beyond are
dropped and counted: at the first, and each time their number has doubled, a record without content
is parked that says how many they were by then.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from drivetrain_schemas.envelope import claimed_tenant
from drivetrain_schemas.ids import digest_id
from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import OutRecord, Record, size_bytes
from services.runtime.transaction import Tx

HEADER = "x-parked-"
# Below the limit of a parked topic (`topics`), above the limit of a topic for events.
MAX_KEPT_BYTES = 1_500_000
# Of one topic, by one service, in one day.
MAX_RECORDS_A_DAY = 1000
MAX_BYTES_A_DAY = 8 * 1024**2
DROPPED = "dropped"
_ID = "parked_"
# Half of an id is from the record's position, half from its content: 65 bits each.
_HALF = 13


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """A record that is to be parked, and why: for machines and for people."""

    record: Record
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class ParkedDay:
    """What was parked and dropped of one topic on the day of its last parking."""

    day: date
    num_records: int = 0
    num_bytes: int = 0
    num_dropped: int = 0

    @property
    def is_noted(self) -> bool:
        """Whether a notice is parked now that one more was dropped: at 1, 2, 4, 8 ..."""
        return self.num_dropped.bit_count() == 1


def counted(found: ParkedDay, today: date, num_bytes: int) -> tuple[ParkedDay, bool]:
    """The day with one more record, and whether that is parked."""
    day = found if found.day == today else ParkedDay(today)
    fits = day.num_records < MAX_RECORDS_A_DAY and day.num_bytes + num_bytes <= MAX_BYTES_A_DAY
    if not fits:
        return replace(day, num_dropped=day.num_dropped + 1), False
    changed = replace(day, num_records=day.num_records + 1, num_bytes=day.num_bytes + num_bytes)
    return changed, True


def parked_id(service: str, record: Record) -> str:
    """The same record parked twice by one service has one id, and keeps it through a replay."""
    content = _content_digest(record)
    claimed = parked_fact(record, "replay-of")
    claimed_place = claimed.removeprefix(_ID)[:_HALF]
    if claimed == _id(service, claimed_place, content):
        return claimed
    place = digest_id(record.topic, str(record.partition), str(record.offset))[:_HALF]
    return _id(service, place, content)


def parked_headers(service: str, invalid: InvalidRecord) -> list[tuple[str, bytes]]:
    record = invalid.record
    facts = {
        "id": parked_id(service, record),
        "reason": invalid.reason,
        "detail": invalid.detail[:1024],
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "at": datetime.now(UTC).isoformat(),
        "service": service,
    }
    num_bytes = size_bytes(_storable(record))
    is_notice = invalid.reason == DROPPED
    if not is_notice and (tenant := claimed_tenant(record.headers, record.value)):
        facts["tenant"] = tenant
    if is_notice or num_bytes > MAX_KEPT_BYTES:
        facts["omitted"] = str(num_bytes)
    return [(HEADER + name, text.encode("utf-8", "replace")) for name, text in facts.items()]


async def park(tx: Tx, service: str, invalid: InvalidRecord) -> None:
    """Set the record aside once `tx` commits."""
    record = _storable(invalid.record)
    if invalid.reason == DROPPED or size_bytes(record) > MAX_KEPT_BYTES:
        record = replace(record, key=None, value=None, headers=())
    headers = (*record.headers, *parked_headers(service, invalid))
    tx.forward(parked_topic(service).name, replace(record, headers=headers))


async def within_bounds(
    tx: Tx, invalid: Sequence[InvalidRecord]
) -> tuple[Sequence[InvalidRecord], int]:
    """What is to be parked of these records of one topic, and how many are dropped."""
    topic = invalid[0].record.topic
    (row,) = await tx.connection.fetch(
        """
        insert into parked_days as d (topic, day) values ($1, current_date)
        on conflict (topic) do update set topic = d.topic
        returning day, num_records, num_bytes, num_dropped, current_date as today
        """,
        topic,
    )
    day = ParkedDay(row["day"], row["num_records"], row["num_bytes"], row["num_dropped"])
    parked, num_dropped = [], 0
    for item in invalid:
        num_bytes = min(size_bytes(_storable(item.record)), MAX_KEPT_BYTES)
        day, fits = counted(day, row["today"], num_bytes)
        num_dropped += not fits
        if fits:
            parked.append(item)
        elif day.is_noted:
            detail = (
                f"{day.num_records} records of {topic} were parked on {day.day}, which is all "
                f"that a day takes; {day.num_dropped} more were dropped by this one"
            )
            parked.append(InvalidRecord(item.record, DROPPED, detail))
    await tx.connection.execute(
        """
        update parked_days set day = $2, num_records = $3, num_bytes = $4, num_dropped = $5
        where topic = $1
        """,
        *(topic, day.day, day.num_records, day.num_bytes, day.num_dropped),
    )
    return parked, num_dropped


def replay_header(parked_id: str) -> tuple[str, bytes]:
    """Goes with a record that is put back: the id under which it was parked."""
    return HEADER + "replay-of", parked_id.encode()


def parked_fact(record: Record, name: str) -> str:
    """One of the `x-parked-*` facts; "" where it is missing."""
    found = [text for key, text in record.headers if key == HEADER + name]
    return (found[-1] or b"").decode("utf-8", "replace") if found else ""


def _id(service: str, place: str, content: str) -> str:
    return _ID + place + digest_id(service, place, content)[:_HALF]


def _content_digest(record: Record) -> str:
    """Of everything that a replay puts back."""
    kept = _storable(record)
    parts = [kept.key or b"", kept.value or b""]
    for name, value in kept.headers:
        parts += [name.encode(), b"-" if value is None else b"+" + value]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def _storable(record: Record) -> OutRecord:
    """The client's part of a record, as its outbox row can hold it.

    Postgres allows no NUL in a text, Kafka does.
    """
    own = _own_headers(record.headers)
    headers = tuple((name.replace("\0", "\ufffd"), value) for name, value in own)
    return OutRecord(record.topic, record.key, record.value, headers)


Header = tuple[str, bytes | None]


def _own_headers(headers: Iterable[Header]) -> Sequence[Header]:
    return tuple(header for header in headers if not header[0].startswith(HEADER))
