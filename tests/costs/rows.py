"""Rows by the thousand: what a service has written once is copied under other ids."""

from collections.abc import Mapping, Sequence

from services.runtime.database import Database


async def copy_rows(database: Database, ids: Mapping[str, Sequence[str]], times: int) -> None:
    """Copies every row of these tables so many times; the copies have a number after each of the
    named text columns."""
    async with database.transaction() as tx:
        for table, columns in ids.items():
            # The columns of a table are names of this code, no input.
            changed = ", ".join(f"'{column}', {column} || '-' || number" for column in columns)
            await tx.connection.execute(
                f"""insert into {table} overriding system value select copy.* from {table},
                generate_series(1, $1::int) as number,
                jsonb_populate_record({table}, jsonb_build_object({changed})) as copy""",
                times,
            )


async def analyze(database: Database) -> None:
    """Statements are planned for the rows that there are."""
    async with database.connection() as connection:
        tables = await connection.fetchval(
            "select string_agg(tablename, ', ') from pg_tables where schemaname = $1",
            database.schema,
        )
        await connection.execute(f"analyze {tables}")
