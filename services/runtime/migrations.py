"""Migrations: numbered SQL files, applied once, in order, under a lock, forward only.

The runtime's own come first, then the service's. A file that changed after it was applied is
refused. Neither a migration nor the wait for the lock has a time limit (the connection that
`Database.open` gives has none), because one that is interrupted would begin again at every start.
"""

import hashlib
from importlib.resources import files

import asyncpg

from services.runtime import logs
from services.runtime.errors import ConfigurationError

log = logs.get()

_LOCK = "advisory_xact_lock(hashtextextended($1, 0))"
_LEDGER = """
create table if not exists migrations (
    package text not null, name text not null, sha256 text not null,
    applied_at timestamptz not null default clock_timestamp(),
    primary key (package, name))
"""


async def migrate(connection: asyncpg.Connection, schema: str, packages: list[str]) -> None:
    """Bring `schema` up to date. Raises ConfigurationError when an applied file has changed."""
    async with connection.transaction():
        lock = f"drivetrain.migrate.{schema}"
        if not await connection.fetchval(f"select pg_try_{_LOCK}", lock):
            log.info("waiting for the migrations of another process", schema=schema)
            await connection.execute(f"select pg_{_LOCK}", lock)
        # Not `if not exists`: that requires the right to create schemas, which a role may lack.
        present = "select true from pg_namespace where nspname = $1"
        if not await connection.fetchval(present, schema):
            await connection.execute(f'create schema "{schema}"')
        await connection.execute(f'set local search_path to "{schema}"')
        await connection.execute(_LEDGER)
        rows = await connection.fetch("select package, name, sha256 from migrations")
        applied = {(row["package"], row["name"]): row["sha256"] for row in rows}
        for package in packages:
            for name, text in _scripts(package):
                digest = hashlib.sha256(text.encode()).hexdigest()
                known = applied.get((package, name))
                if known is None:
                    await _apply(connection, package, name, text, digest)
                elif known != digest:
                    raise ConfigurationError(
                        f"{package}/sql/{name} was changed after it was applied: "
                        "restore it, and put the change into a new file"
                    )


def _scripts(package: str) -> list[tuple[str, str]]:
    folder = files(package) / "sql"
    if not folder.is_dir():
        return []
    scripts = [(item.name, item.read_text()) for item in folder.iterdir()]
    return sorted((name, text) for name, text in scripts if name.endswith(".sql"))


async def _apply(
    connection: asyncpg.Connection, package: str, name: str, text: str, digest: str
) -> None:
    log.info("migration begins", package=package, migration=name)
    await connection.execute(text)
    await connection.execute(
        "insert into migrations (package, name, sha256) values ($1, $2, $3)", package, name, digest
    )
    log.info("migration applied", package=package, migration=name)
