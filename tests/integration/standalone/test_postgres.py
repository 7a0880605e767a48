"""The embedded Postgres: authentication, and recovery after kills."""

import asyncio
import os
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from services.standalone.child import Child
from services.standalone.embedded import running_postgres, supervised
from services.standalone.identity import is_alive
from services.standalone.ports import free_port
from services.standalone.postgres import Server, prepare, spec
from services.standalone.stale import clear_server, processes_in
from tests.variants import variants
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


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


async def started_logins(
    port: int, number: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that say who they are, and send no password."""
    names = struct.pack("!I", 196608) + b"user\0drivetrain\0database\0drivetrain\0\0"
    started = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack("!I", len(names) + 4) + names)
        started.append((reader, writer))
    return started


async def test_a_platforms_server_is_reached_by_its_owner_alone(tmp_path: Path) -> None:
    """Nobody else can begin a login, each of which would take a connection."""
    with tempfile.TemporaryDirectory() as short:
        server = Server(Path(short, "postgres"), free_port(), "secret")
        async with supervised(spec(server, tmp_path / "log")) as child:
            with pytest.raises(ConnectionRefusedError):
                await started_logins(server.port, 1)
            assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
            await child.kill_and_wait_ready()
            connection = await asyncpg.connect(server.dsn)
            assert await connection.fetchval("select inet_server_addr()") is None
            await connection.close()
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.dsn_of("drivetrain", "wrong"))


async def test_a_server_whose_path_is_too_long_for_a_socket_has_a_port() -> None:
    assert Server(Path("/" + "long" * 30), 5432, "secret").dsn.endswith(
        "@127.0.0.1:5432/drivetrain"
    )


@pytest.mark.heavy
async def test_logins_without_a_password_hold_the_connections_for_seconds_only(
    tmp_path: Path,
) -> None:
    async with running_postgres(tmp_path / "postgres") as postgres:
        port = urlsplit(postgres.dsn).port
        assert port is not None
        held = await started_logins(port, 230)
        async with asyncio.timeout(30):  # by default a login may take a minute
            answers = await asyncio.gather(*(reader.read() for reader, _ in held))
        assert any(b"too many clients" in answer for answer in answers)
        for _, writer in held:
            writer.close()
        connection = await asyncpg.connect(postgres.dsn)
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


async def test_a_pid_file_whose_pid_is_another_programs_by_now_is_no_obstacle(
    tmp_path: Path,
) -> None:
    """As after a reboot: Postgres takes a living process of its own user for a server."""
    directory = tmp_path / "postgres"
    async with running_postgres(directory, password="kept"):
        pass
    # Of the server's own user, which is nobody for root.
    other = await asyncio.to_thread(sleeper, user="nobody" if os.geteuid() == 0 else None)
    try:
        data = directory / "data"
        stale = f"{other.pid}\n{data}\n1700000000\n5432\n\n127.0.0.1\n  0 0\nready\n"
        (data / "postmaster.pid").write_text(stale)
        async with running_postgres(directory, password="kept") as postgres:
            connection = await asyncpg.connect(postgres.dsn)
            await connection.close()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def sleeper(user: str | None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"], user=user)


async def test_a_server_that_outlived_its_supervisor_is_ended_before_the_next(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "postgres"
    async with running_postgres(directory, password="kept") as first:
        assert first.child.identity is not None
        old = first.child.identity
        await asyncio.to_thread(clear_server, directory / "data")
        assert not is_alive(old)
        assert not (directory / "data" / "postmaster.pid").exists()
        await wait_for_another(first.child, old.pid)
        connection = await asyncpg.connect(first.dsn)
        await connection.close()


async def wait_for_another(child: Child, pid: int) -> None:
    async with asyncio.timeout(30):
        while child.pid in (None, pid) or not child.is_ready:
            await asyncio.sleep(0.05)


INITIALISE = """
import sys
from pathlib import Path
from services.standalone.postgres import Server, prepare
prepare(Server(Path(sys.argv[1]), 1, "password"))
"""


@pytest.mark.parametrize(
    "moment", variants(["PG_VERSION", "base/1", "global/pg_control", "base/5"])
)
def test_an_initialisation_that_was_killed_is_begun_again(tmp_path: Path, moment: str) -> None:
    directory = tmp_path / "postgres"
    first = subprocess.Popen([sys.executable, "-c", INITIALISE, str(directory)], cwd=ROOT)
    wait_until((directory / "data.new" / moment).exists, f"{moment} is there", every=0.001)
    first.kill()
    first.wait()
    assert not (directory / "data").exists()
    prepare(Server(directory, 1, "password"))
    assert (directory / "data" / "PG_VERSION").exists()
    assert not (directory / "data.new").exists()
    assert processes_in(directory / "data") == ()
