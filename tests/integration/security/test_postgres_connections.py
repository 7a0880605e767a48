"""Postgres over verified TLS, and the words for every way to fail. Nothing else is waited out."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import trustme

from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import postgres_tls
from services.runtime.database import Database
from services.runtime.errors import ConfigurationError, PostgresUnavailable, is_temporary
from services.runtime.service import Running
from services.runtime.transaction import Origin
from tests.certificates import EXPIRED
from tests.platform_service import service_environment
from tests.secured_kafka import SecuredKafka
from tests.secured_postgres import SecuredPostgres, distribution, secured_proxy, secured_server


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["server", "proxy"])
async def postgres(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_dsn: str
) -> AsyncIterator[SecuredPostgres]:
    directory = tmp_path_factory.mktemp("tls")
    if request.param == "proxy":
        async with secured_proxy(directory, postgres_dsn) as running:
            yield running
        return
    binaries = distribution()
    if binaries is None:
        pytest.skip("no PostgreSQL with TLS on this machine: install your distribution's")
    async with secured_server(binaries) as running:
        yield running


async def connect(dsn: str) -> bool:
    """Whether the connection is encrypted."""
    connection = await Database(dsn, "cost", Origin("/tests", "t.")).dedicated_connection()
    try:
        return connection._transport.get_extra_info("ssl_object") is not None
    finally:
        await connection.close()


async def shows(postgres: SecuredPostgres, leaf: trustme.LeafCert) -> None:
    """Return once the server shows this certificate."""
    postgres.present(leaf)
    wanted = ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())
    address = urlsplit(postgres.dsn)
    unchecked = ssl._create_unverified_context()
    async with asyncio.timeout(30):
        while True:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write((8).to_bytes(4, "big") + (80877103).to_bytes(4, "big"))
            assert await reader.readexactly(1) == b"S"
            await writer.start_tls(unchecked)
            found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            if found == wanted:
                return
            await asyncio.sleep(0.05)


async def test_the_server_is_verified_and_the_connection_encrypted(
    postgres: SecuredPostgres,
) -> None:
    await shows(postgres, postgres.ca.issue_cert("localhost"))
    assert await connect(postgres.verified)


@pytest.mark.parametrize(
    ("hosts", "facts", "problem"),
    [
        (["localhost"], EXPIRED, "the certificate of Postgres has expired: renew it"),
        (["db.example"], {}, "for another name .* use a name .* in DRIVETRAIN_POSTGRES_DSN"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused_until_it_is_renewed(
    postgres: SecuredPostgres, hosts: list[str], facts: dict, problem: str
) -> None:
    await shows(postgres, postgres.ca.issue_cert(*hosts, **facts))
    with pytest.raises(PostgresUnavailable, match=problem):
        await connect(postgres.verified)
    await shows(postgres, postgres.ca.issue_cert("localhost"))
    assert await connect(postgres.verified)


async def test_another_ca_and_another_password_are_refused(
    postgres: SecuredPostgres, tmp_path: Path
) -> None:
    await shows(postgres, postgres.ca.issue_cert("localhost"))
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    other = postgres.dsn_with(sslmode="verify-full", sslrootcert=tmp_path / "other.crt")
    with pytest.raises(PostgresUnavailable, match=r"not signed by a known CA .* PGSSLROOTCERT"):
        await connect(other)
    password = urlsplit(postgres.verified).password
    assert password is not None
    with pytest.raises(PostgresUnavailable, match=r"refuses the login: password .*POSTGRES_DSN"):
        await connect(postgres.verified.replace(password, "wrong"))


async def test_a_server_without_tls_is_refused(postgres_dsn: str, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    with pytest.raises(PostgresUnavailable, match=r"has no TLS .* switch it on .*change PGSSLMODE"):
        await connect(f"{postgres_dsn}?sslmode=verify-full&sslrootcert={tmp_path / 'ca.crt'}")


async def test_a_lost_network_is_still_waited_out() -> None:
    with pytest.raises(OSError, match="Connect call failed") as failed:
        await connect("postgresql://drivetrain@127.0.0.1:1/drivetrain")
    assert is_temporary(failed.value)


async def test_a_pool_whose_server_shows_an_expired_certificate_is_waited_out(
    postgres: SecuredPostgres,
) -> None:
    """In operation a handler gets a temporary error: its record is tried again, never parked."""
    await shows(postgres, postgres.ca.issue_cert("localhost"))
    database = Database(postgres.verified, "cost", Origin("/tests", "t."))
    await database.open([])
    try:
        await shows(postgres, postgres.ca.issue_cert("localhost", **EXPIRED))
        await database.pool.expire_connections()
        with pytest.raises(PostgresUnavailable, match="has expired"):
            async with database.transaction():
                pytest.fail("there is no connection")
        assert not await database.is_writable()
        await shows(postgres, postgres.ca.issue_cert("localhost"))
        assert await database.is_writable()
    finally:
        await database.close()


@pytest.mark.heavy
async def test_a_service_says_what_it_waits_for_and_starts_once_it_is_mended(
    postgres: SecuredPostgres, secured: SecuredKafka
) -> None:
    await shows(postgres, postgres.ca.issue_cert("localhost", **EXPIRED))
    environment = service_environment(secured.admin, postgres.verified, "none.")
    settings = CostSettings.model_validate(environment)
    stopping = asyncio.Event()
    process = Running(build(settings), stopping)
    running = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(60):
            while "has expired" not in (await process._ready() or ""):
                await asyncio.sleep(0.05)
            await shows(postgres, postgres.ca.issue_cert("localhost"))
            while "has expired" in (await process._ready() or ""):
                await asyncio.sleep(0.05)
        assert not running.done()
    finally:
        stopping.set()
        await running


@pytest.mark.parametrize(
    ("query", "environment", "problem"),
    [
        ("sslmode=full", {}, "sslmode of DRIVETRAIN_POSTGRES_DSN: 'full': write one of .*verify"),
        ("", {"PGSSLROOTCERT": "/ca"}, "PGSSLMODE is not set, which verifies nothing: write"),
        ("sslmode=verify-full", {}, "needs the CA of the server: set PGSSLROOTCERT"),
        ("sslmode=require&sslcert=/c", {}, "sslcert .* and PGSSLKEY belong together"),
        ("", {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/none"}, "PGSSLROOTCERT: cannot read"),
    ],
)
def test_contradictions_are_refused_at_the_start(
    query: str, environment: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        postgres_tls.check(f"postgresql://u:p@localhost/d?{query}", environment)
