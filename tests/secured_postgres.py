"""A real Postgres that shows a certificate: the distribution's, or the embedded one behind a proxy.

The binaries of the wheel are built without TLS. Where the machine has a PostgreSQL with it, that
one runs; the proxy, which ends TLS before the embedded server, runs everywhere.
"""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import trustme

from services.standalone.ports import free_port

PASSWORD = "secret-of-postgres"
SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class SecuredPostgres:
    """`dsn` names the server as localhost; `present` lets it show another certificate."""

    dsn: str
    ca: trustme.CA
    directory: Path
    present: Callable[[trustme.LeafCert], None]

    def dsn_with(self, **words: object) -> str:
        return f"{self.dsn}?" + "&".join(f"{name}={value}" for name, value in words.items())

    @property
    def verified(self) -> str:
        return self.dsn_with(sslmode="verify-full", sslrootcert=self.directory / "ca.crt")


def distribution() -> Path | None:
    """The directory of the binaries of a PostgreSQL with TLS."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    on_path = shutil.which("postgres")
    found += [Path(on_path).resolve()] if on_path else []
    for binary in found:
        libraries = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
        if "libssl" in libraries.stdout:
            return binary.parent
    return None


@asynccontextmanager
async def secured_server(binaries: Path) -> AsyncIterator[SecuredPostgres]:
    """The distribution's server. It reads its certificate again when told to."""
    ca, port = trustme.CA(), free_port()
    with tempfile.TemporaryDirectory(prefix="drivetrain-postgres-") as name:
        directory = Path(name)
        ca.cert_pem.write_to_path(directory / "ca.crt")
        _initialise(binaries, directory)
        _show(directory, ca.issue_cert("localhost"))
        server = _start(binaries, directory, port)

        def present(leaf: trustme.LeafCert) -> None:
            _show(directory, leaf)
            server.send_signal(signal.SIGHUP)  # its files are read again

        try:
            dsn = f"postgresql://drivetrain:{PASSWORD}@localhost:{port}/postgres"
            await _until_it_answers(dsn)
            yield SecuredPostgres(dsn, ca, directory, present)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def _owner() -> Any:
    """The server refuses to run as root."""
    return {"user": "nobody" if os.geteuid() == 0 else os.geteuid()}


def _initialise(binaries: Path, directory: Path) -> None:
    secret = directory / "password"
    secret.write_text(PASSWORD)
    for path in (directory, secret):
        shutil.chown(path, **_owner())
    options = ("-U", "drivetrain", "--auth=scram-sha-256", "--locale=C", "-E", "UTF8")
    command = [binaries / "initdb", "-D", directory / "data", *options, f"--pwfile={secret}"]
    subprocess.run(command, check=True, capture_output=True, cwd=directory, **_owner())


def _show(directory: Path, leaf: trustme.LeafCert) -> None:
    for end, blob in (("crt", leaf.cert_chain_pems[0]), ("key", leaf.private_key_pem)):
        path = directory / "data" / f"server.{end}"
        path.write_bytes(blob.bytes())
        path.chmod(0o600)
        shutil.chown(path, **_owner())


def _start(binaries: Path, directory: Path, port: int) -> subprocess.Popen[bytes]:
    settings = ("ssl=on", "listen_addresses=127.0.0.1", f"port={port}", "fsync=off")
    switches = [part for setting in settings for part in ("-c", setting)]
    command = [binaries / "postgres", "-D", directory / "data", "-k", "", *switches]
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **_owner())


async def _until_it_answers(dsn: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(OSError, asyncpg.CannotConnectNowError):
                await (await asyncpg.connect(dsn)).close()
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def secured_proxy(directory: Path, dsn: str) -> AsyncIterator[SecuredPostgres]:
    """TLS ends here; the rest of the conversation is that of the embedded server."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(directory / "ca.crt")
    shown = [ca.issue_cert("localhost")]
    address = urlsplit(dsn)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            assert await reader.readexactly(8) == SSL_REQUEST
            writer.write(b"S")
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            shown[0].configure_cert(context)
            await writer.start_tls(context)
            inner = await asyncio.open_connection(address.hostname, address.port)
            await asyncio.gather(_copy(reader, inner[1]), _copy(inner[0], writer))
        writer.close()

    def present(leaf: trustme.LeafCert) -> None:
        shown[0] = leaf

    async with await asyncio.start_server(serve, "localhost", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield SecuredPostgres(_by_name(dsn, port), ca, directory, present)


async def new_database(dsn: str) -> str:
    """The address of a database for its owner, who may create roles and is no superuser."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("create role operator login createrole password 'of-operator'")
    await connection.execute("create database platform owner operator")
    await connection.close()
    parts = urlsplit(dsn)
    netloc = f"operator:of-operator@{parts.hostname}:{parts.port}"
    return parts._replace(netloc=netloc, path="/platform").geturl()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


def _by_name(dsn: str, port: int) -> str:
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@localhost:{port}").geturl()
