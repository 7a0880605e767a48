"""A missing event raises the alarm, once; nothing else does."""

from dataclasses import replace

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import make_event, make_record, process
from tests.handlers.runtime.charges import charge


@pytest_asyncio.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("cost")


def numbered(seq: int, tenant_id: str = "default") -> Event[ChargeRecorded]:
    return replace(make_event(charge(seq, tenant_id)), seq=seq)


def gaps() -> float:
    return (
        REGISTRY.get_sample_value("drivetrain_sequence_gaps_total", {"topic": "events.charges"})
        or 0.0
    )


async def gaps_found(db: Database, *events: Event[ChargeRecorded], reads_all: bool = True) -> float:
    """The alarms that these events raise."""

    async def handle(tx: Tx, event: Event[ChargeRecorded]) -> None: ...

    processor = EventProcessor(
        "cost", "drivetrain.", {ChargeRecorded: handle}, {}, reads_all=reads_all
    )
    before = gaps()
    for event in events:
        async with db.transaction() as tx:
            await process(processor, tx, make_record(event))
    return gaps() - before


async def test_a_dropped_event_raises_the_alarm_once(db: Database) -> None:
    assert await gaps_found(db, numbered(1), numbered(2), numbered(4), numbered(5)) == 1


async def test_each_key_has_numbers_of_its_own(db: Database) -> None:
    assert (
        await gaps_found(db, numbered(1), numbered(1, "other"), numbered(2), numbered(2, "other"))
        == 0
    )


async def test_what_comes_again_is_no_gap(db: Database) -> None:
    one, two, three = numbered(1), numbered(2), numbered(3)
    assert await gaps_found(db, one, two, one, two, three) == 0
    # A record that is replayed comes late, under an id that was not read.
    assert await gaps_found(db, numbered(5), numbered(4), numbered(6)) == 1


async def test_a_key_may_begin_anywhere(db: Database) -> None:
    """Retention may have taken what was before, and a rebuild reads what is left."""
    assert await gaps_found(db, numbered(40), numbered(41)) == 0


async def test_a_reader_of_some_types_reports_no_gap(db: Database) -> None:
    assert await gaps_found(db, numbered(1), numbered(9), reads_all=False) == 0


async def test_what_is_rolled_back_was_not_seen(db: Database) -> None:
    await gaps_found(db, numbered(1))

    async def fail(tx: Tx, event: Event[ChargeRecorded]) -> None:
        raise ValueError("bug")

    processor = EventProcessor("cost", "drivetrain.", {ChargeRecorded: fail}, {}, reads_all=True)
    before = gaps()
    with pytest.raises(ValueError, match="bug"):
        async with db.transaction() as tx:
            await process(processor, tx, make_record(numbered(3)))
    assert gaps() == before
    assert await gaps_found(db, numbered(2)) == 0
