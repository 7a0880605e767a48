"""A prepared schema is used again only if nothing of the last test is left in it."""

from services.runtime.database import Database
from tests.databases import PreparedSchemas


class OtherDatabase(Database):
    """What a test puts in the place of a database's class."""


async def again(schemas: PreparedSchemas, database: Database) -> Database:
    await schemas.give_back(database)
    taken = await schemas.take("checkpoints")
    await schemas.give_back(taken)
    return taken


async def test_one_whose_class_was_replaced_is_not_used_again(schemas: PreparedSchemas) -> None:
    database = await schemas.take("checkpoints")
    database.__class__ = OtherDatabase

    assert await again(schemas, database) is not database


async def test_one_whose_tables_were_altered_is_not_used_again(schemas: PreparedSchemas) -> None:
    database = await schemas.take("checkpoints")
    async with database.connection() as connection:
        await connection.execute("alter table outbox add column more int")

    assert await again(schemas, database) is not database


async def test_one_with_rows_is_used_again_without_them(schemas: PreparedSchemas) -> None:
    database = await schemas.take("checkpoints")
    async with database.connection() as connection:
        await connection.execute("insert into outbox_counter values ('events.jobs', 'job', 3)")

    assert await again(schemas, database) is database
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from outbox_counter") == 0
