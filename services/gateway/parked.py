"""The projection of parked records, from `parked.*`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from drivetrain_schemas.ids import digest_id
from services.gateway.core.storable import storable_text
from services.runtime.bus import Record
from services.runtime.parking import HEADER
from services.runtime.transaction import Tx


async def on_parked(tx: Tx, records: Sequence[Record]) -> None:
    """Keep these records of `parked.*` topics; one that is there already stays."""
    await tx.connection.executemany(
        """
        insert into parked (parked_id, service, topic, partition, "offset", reason, detail,
            parked_at, key, value, header_names, header_values, omitted_bytes)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        on conflict do nothing
        """,
        [_row(record) for record in records],
    )


def _row(record: Record) -> tuple[object, ...]:
    """The facts are in the x-parked-* headers; the others are the record's own."""
    facts = {
        name.removeprefix(HEADER): storable_text((value or b"").decode("utf-8", "replace"))
        for name, value in record.headers
        if name.startswith(HEADER)
    }
    own = [(name, value) for name, value in record.headers if not name.startswith(HEADER)]
    place = (record.topic, str(record.partition), str(record.offset))
    return (
        facts.get("id") or f"parked_{digest_id('gateway', *place)}",
        facts.get("service") or record.topic.rpartition(".")[2],
        facts.get("topic", ""),
        _whole(facts.get("partition")),
        _whole(facts.get("offset")),
        facts.get("reason", "unknown"),
        facts.get("detail", ""),
        _time(facts.get("at"), record.timestamp_ms),
        record.key,
        record.value,
        [storable_text(name) for name, _ in own],
        [value for _, value in own],
        _whole(facts.get("omitted")),
    )


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)


def _time(text: str | None, timestamp_ms: int) -> datetime:
    """The time of parking; where it is no time, the broker's."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
