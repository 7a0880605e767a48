"""The inbox keeps what it knows through its own migrations."""

import secrets

import asyncpg
import pytest

from drivetrain_schemas.charges import ChargeRecorded
from services.runtime import migrations
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from services.runtime.transaction import Origin, Tx
from tests.events import make_event, make_record, process
from tests.handlers.runtime.charges import charge


async def test_an_event_handled_before_the_inbox_had_digests_is_not_handled_again(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"cost_{secrets.token_hex(4)}"
    event = make_event(charge(1), event_id="ä known id")
    scripts = migrations._scripts
    with monkeypatch.context() as before:
        before.setattr(
            migrations,
            "_scripts",
            lambda package: [it for it in scripts(package) if it[0] < "0008_inbox"],
        )
        connection = await asyncpg.connect(postgres_dsn)
        await migrations.migrate(connection, schema, ["services.runtime"])
        await connection.execute(
            f'insert into "{schema}".inbox (source, event_id, topic, partition, "offset")'
            " values ($1, $2, 't', 0, 0)",
            *(event.source, event.event_id),
        )
        await connection.close()
    handled = []

    async def handle(tx: Tx, given: object) -> None:
        handled.append(given)

    database = Database(postgres_dsn, schema, Origin("/tests", "t."))
    await database.open([])
    processor = EventProcessor("cost", "drivetrain.", {ChargeRecorded: handle}, {})
    try:
        for each in (event, make_event(charge(2))):
            async with database.transaction() as tx:
                await process(processor, tx, make_record(each))
        assert [given.payload.amount_micro_usd for given in handled] == [2]
    finally:
        async with database.connection() as connection:
            await connection.execute(f'drop schema "{schema}" cascade')
        await database.close()
