"""The embedded Postgres: who gets in, and what a `kill -9` leaves."""

from pathlib import Path

import asyncpg
import pytest

from services.standalone.embedded import running_postgres


async def test_committed_rows_survive_kill_9_of_the_server(tmp_path: Path) -> None:
    async with running_postgres(tmp_path / "postgres") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 10000) AS number")
        connection.terminate()
        first_pid = postgres.child.pid
        await postgres.child.kill_and_wait_ready()
        assert postgres.child.pid != first_pid
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("SELECT count(*) FROM kept") == 10_000
        await connection.close()


async def test_data_is_there_after_an_orderly_stop_and_a_start_on_another_port(
    tmp_path: Path,
) -> None:
    async with running_postgres(tmp_path / "postgres", password="kept") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE TABLE kept (number int)")
        await connection.close()
    async with running_postgres(tmp_path / "postgres", password="kept") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("SELECT count(*) FROM kept") == 0
        await connection.close()


async def test_a_wrong_password_is_refused(postgres_dsn: str) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres_dsn, password="wrong")


async def test_passwords_are_stored_by_scram_only(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    stored = await connection.fetchval("SELECT rolpassword FROM pg_authid WHERE rolcanlogin")
    rules = await connection.fetch("SELECT DISTINCT auth_method FROM pg_hba_file_rules")
    await connection.close()
    assert stored.startswith("SCRAM-SHA-256$")
    assert [rule["auth_method"] for rule in rules] == ["scram-sha-256"]
