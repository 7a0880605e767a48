"""The pool and the migrations on a real Postgres."""

import asyncio
import secrets
from pathlib import Path
from types import ModuleType

import asyncpg
import pytest

from services.runtime import migrations
from services.runtime.database import Database
from services.runtime.errors import ConfigurationError, TemporaryError, is_temporary
from services.runtime.transaction import Origin
from tests.conftest import OpenDatabase

MAKE_READ_ONLY = "set default_transaction_read_only = on"


async def test_a_connection_that_became_read_only_is_dropped(database: OpenDatabase) -> None:
    """As after a failover; without the guard the pool would hand it out for ever."""
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(MAKE_READ_ONLY)
    with pytest.raises(TemporaryError, match="read-only"):
        async with db.transaction():
            pytest.fail("the connection was handed out")
    async with db.transaction() as tx:
        await tx.connection.execute("create table written (a integer)")


async def test_a_write_refused_as_read_only_renews_the_whole_pool(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as one, db.connection() as other:
        before = {await item.fetchval("select pg_backend_pid()") for item in (one, other)}
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await _write_as_to_a_standby(db)
    async with db.connection() as one, db.connection() as other:
        after = {await item.fetchval("select pg_backend_pid()") for item in (one, other)}
    assert not before & after


async def _write_as_to_a_standby(db: Database) -> None:
    async with db.transaction() as tx:
        await tx.connection.execute("set transaction read only")
        await tx.connection.execute("create table written (a integer)")


async def test_a_server_that_takes_no_writes_is_not_connected_to(postgres_dsn: str) -> None:
    """As a standby among several hosts: the one that can be written to is sought, or waited for."""
    standby = f"{postgres_dsn}?default_transaction_read_only=on"
    database = Database(standby, "cost", Origin("/tests", "t."))
    with pytest.raises(asyncpg.TargetServerAttributeNotMatched) as refused:
        await database.dedicated_connection()
    assert is_temporary(refused.value)


async def test_what_a_handler_leaves_open_is_rolled_back(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute("begin")
        await connection.execute("create table half (a integer)")
    async with db.connection() as connection:
        assert await connection.fetchval("select to_regclass('half')") is None


async def test_json_columns_take_and_give_python_values(database: OpenDatabase) -> None:
    db = await database("cost")
    value = {"a": [1, None, "ä"]}
    async with db.connection() as connection:
        assert await connection.fetchval("select $1::jsonb", value) == value


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package `migrating` of two scripts; returns its sql folder."""
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "0001_initial.sql").write_text("create table a (n integer)")
    (folder / "0002_more.sql").write_text("insert into a values (1)")
    module = ModuleType("migrating")
    module.__path__ = [str(tmp_path)]
    monkeypatch.setattr(migrations, "files", lambda name: tmp_path)
    return folder


async def test_migrations_are_applied_once_however_many_start(
    package: Path, postgres_dsn: str
) -> None:
    schema = f"m_{secrets.token_hex(4)}"
    connections = [await asyncpg.connect(postgres_dsn) for _ in range(3)]
    try:
        await asyncio.gather(
            *(migrations.migrate(item, schema, ["migrating"]) for item in connections)
        )
        assert await connections[0].fetchval(f'select count(*) from "{schema}".a') == 1
    finally:
        for item in connections:
            await item.close()


async def test_a_migration_changed_after_it_was_applied_is_refused(
    package: Path, postgres_dsn: str
) -> None:
    schema = f"m_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await migrations.migrate(connection, schema, ["migrating"])
        (package / "0002_more.sql").write_text("insert into a values (2)")
        with pytest.raises(ConfigurationError, match=r"0002_more\.sql was changed"):
            await migrations.migrate(connection, schema, ["migrating"])
    finally:
        await connection.close()


async def test_a_migration_may_take_longer_than_a_command(
    package: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so may the wait of a second process for it."""
    monkeypatch.setattr("services.runtime.database.COMMAND_SECONDS", 0.2)
    monkeypatch.setattr(Database.dedicated_connection, "__defaults__", (0.2,))
    (package / "0002_more.sql").write_text("select pg_sleep(1); insert into a values (1)")
    schema = f"m_{secrets.token_hex(4)}"
    opened = [Database(postgres_dsn, schema, Origin("/tests", "t.")) for _ in range(2)]
    try:
        await asyncio.gather(*(database.open([]) for database in opened))
        async with opened[0].connection() as connection:
            assert await connection.fetchval("select count(*) from a") == 1
            with pytest.raises(TimeoutError):
                await connection.execute("select pg_sleep(1)")
    finally:
        await asyncio.gather(*(database.close() for database in opened))


async def test_half_a_migration_leaves_nothing(package: Path, postgres_dsn: str) -> None:
    schema = f"m_{secrets.token_hex(4)}"
    (package / "0002_more.sql").write_text("insert into a values ('x')")
    connection = await asyncpg.connect(postgres_dsn)
    try:
        with pytest.raises(asyncpg.DataError):
            await migrations.migrate(connection, schema, ["migrating"])
        assert await connection.fetchval("select to_regnamespace($1)", schema) is None
    finally:
        await connection.close()


async def test_an_unavailable_server_is_a_temporary_error() -> None:
    database = Database("postgresql://x:y@127.0.0.1:1/z", "cost", Origin("/tests", "t."))
    with pytest.raises(OSError, match="Connect call failed") as failed:
        await database.open([])
    assert is_temporary(failed.value)


async def test_a_session_whose_machine_is_gone_ends_within_a_minute(database: OpenDatabase) -> None:
    """Else it holds the relay's lock for two hours."""
    db = await database("cost")
    connection = await db.dedicated_connection()
    try:
        idle, interval, count = [
            int(await connection.fetchval(f"select current_setting('tcp_keepalives_{name}')"))
            for name in ("idle", "interval", "count")
        ]
    finally:
        await connection.close()
    assert idle + interval * count <= 60
