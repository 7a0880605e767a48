"""Postgres: one pool per process, its connections bound to the service's own schema.

A connection is checked before each use: after a failover a pool may hold connections to a server
that is read-only now, where every write would fail (asyncpg has no such check). The server reports
that by itself (Postgres 14 and later), so the check costs no statement. Neither does a release:
nothing here changes a session, except `set local`. `jsonb` columns accept and return Python values.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg

from services.runtime import logs, migrations, postgres_tls
from services.runtime.errors import PostgresUnavailable, is_temporary
from services.runtime.instruments import POOL_CONNECTIONS, POOL_WAIT_SECONDS
from services.runtime.transaction import Origin, Tx

log = logs.get()

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 30.0
# After a minute Postgres ends the session of a machine that is gone, and frees its locks: with the
# system's defaults its outbox would wait for two hours.
KEEPALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

MAX_CONNECTIONS = 8  # of a process's pool
MAX_DEDICATED = 4  # beside it


class Database:
    """The pool of one service. `open` it before use, `close` it at the end."""

    def __init__(
        self, dsn: str, schema: str, origin: Origin, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        self.schema = schema
        # Called after each commit that left something in the outbox.
        self.on_emitted: Callable[[], None] = lambda: None
        self._dsn = dsn
        self._origin = origin
        self._max_connections = max_connections
        self._pool: Any = None

    async def open(self, packages: list[str]) -> None:
        """Migrate and connect."""
        # A migration has no time limit, and neither has waiting for another process's.
        connection = await self.dedicated_connection(command_seconds=None)
        try:
            await migrations.migrate(connection, self.schema, ["services.runtime", *packages])
        finally:
            await connection.close()
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._max_connections,
            setup=_refuse_read_only,
            init=_set_codecs,
            reset=_leave_as_it_is,
            connect=_connect,
            **self._connect_options(COMMAND_SECONDS),
        )
        self._measure(self._pool)

    async def close(self) -> None:
        if self._pool is not None:
            try:
                await self._pool.close()
            except BaseException:
                self._pool.terminate()
                raise

    @property
    def pool(self) -> asyncpg.Pool:
        assert self._pool is not None, "the database is not open"
        return cast(asyncpg.Pool, self._pool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection for reads."""
        async with self._acquired() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """One transaction: what is emitted in it is published if, and only if, it commits."""
        try:
            async with self._acquired() as connection:
                tx = Tx(connection, self._origin)
                async with connection.transaction():
                    yield tx
                    await tx.write_outbox()
        except Exception as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                await self.pool.expire_connections()
            raise
        if tx.has_emitted:
            self.on_emitted()
        tx.run_callbacks()

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[asyncpg.Connection]:
        with POOL_WAIT_SECONDS.time():
            connection = await self.pool.acquire(timeout=CONNECT_SECONDS)
        try:
            yield cast(asyncpg.Connection, connection)
        finally:
            await self.pool.release(connection)

    def _measure(self, pool: Any) -> None:
        """Asked when metrics are read; a process has one pool."""
        measures = {
            "used": lambda: pool.get_size() - pool.get_idle_size(),
            "idle": pool.get_idle_size,
            "spare": lambda: self._max_connections - pool.get_size(),
        }
        for state, measure in measures.items():
            POOL_CONNECTIONS.labels(state).set_function(measure)

    async def is_writable(self) -> bool:
        try:
            async with self.pool.acquire(timeout=1.0) as connection:
                await connection.fetchval("select 1", timeout=1.0)
            return True
        except Exception as error:
            if is_temporary(error):
                return False
            raise

    async def dedicated_connection(
        self, command_seconds: float | None = COMMAND_SECONDS
    ) -> asyncpg.Connection:
        """A connection outside the pool, for locks; the caller closes it."""
        connection = await _connect(self._dsn, **self._connect_options(command_seconds))
        await _set_codecs(connection)
        return cast(asyncpg.Connection, connection)

    def _connect_options(self, command_seconds: float | None) -> dict[str, Any]:
        return {
            "timeout": CONNECT_SECONDS,
            "command_timeout": command_seconds,
            "target_session_attrs": "read-write",
            "server_settings": {
                "search_path": f'"{self.schema}"',
                "application_name": f"drivetrain-{self.schema}",
                **KEEPALIVE,
            },
        }


async def _connect(*arguments: Any, **options: Any) -> Any:
    """Raises PostgresUnavailable where the server refuses: its operator may mend that meanwhile."""
    try:
        return await asyncpg.connect(*arguments, **options)
    except Exception as error:
        problem = postgres_tls.explain(error)
        if problem is None:
            raise
        raise PostgresUnavailable(problem) from error


async def _refuse_read_only(connection: Any) -> None:
    reported = connection.get_settings()
    for name in ("default_transaction_read_only", "in_hot_standby"):
        if getattr(reported, name, "off") == "on":
            connection.terminate()
            raise PostgresUnavailable("this connection has become read-only; it is dropped")


async def _leave_as_it_is(_connection: Any) -> None:
    """Replaces asyncpg's RESET ALL; an open transaction is rolled back nevertheless."""


async def _set_codecs(connection: Any) -> None:
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
