"""The schemas of services for tests: migrated once for each worker, emptied between tests.

In: the DSN of a server. Out: an open `Database` with a schema as its migrations left it. A schema
that a test has altered, or whose tables somebody still locks, is not used a second time.
"""

import secrets
from dataclasses import dataclass

import asyncpg

from services.runtime.database import Database
from services.runtime.transaction import Origin

# Everything that a test could alter: columns, indexes, constraints, triggers, functions.
_SHAPE = """
select md5(coalesce(string_agg(line, ',' order by line), '')) from (
    select format('%s %s %s %s', c.relkind, c.relname, a.attname, a.atttypid) as line
      from pg_class c left join pg_attribute a
        on a.attrelid = c.oid and a.attnum > 0 and c.relkind in ('r', 'v')
     where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'v', 'i', 'S')
    union all select format('constraint %s %s', conname, convalidated) from pg_constraint
     where connamespace = $1::text::regnamespace
    union all select format('trigger %s', tgname) from pg_trigger join pg_class c on c.oid = tgrelid
     where c.relnamespace = $1::text::regnamespace and not tgisinternal
    union all select format('function %s', oid) from pg_proc
     where pronamespace = $1::text::regnamespace
) as lines
"""

# Only what has rows is truncated: most tests write to few of the tables. What the planner knew of
# them goes too. What the migrations have written comes back from a copy.
_EMPTY = """
do $$
declare
    held text; item text; has_rows bool; filled text[] := '{{}}';
begin
    set local lock_timeout = '3s';
    for item in select tablename from pg_tables
        where schemaname = '{schema}' and tablename <> 'migrations'
    loop
        execute format('select exists (select from "{schema}".%I)', item) into has_rows;
        if has_rows then filled := filled || format('"{schema}".%I', item); end if;
    end loop;
    if cardinality(filled) > 0 then
        execute 'truncate ' || array_to_string(filled, ', ') || ' restart identity cascade';
    end if;
    perform pg_clear_attribute_stats(schemaname, tablename, attname, inherited)
        from pg_stats where schemaname = '{schema}';
    for item in select sequencename from pg_sequences
        where schemaname = '{schema}' and last_value is not null
    loop
        execute format('alter sequence "{schema}".%I restart', item);
    end loop;
    for item in select tablename from pg_tables where schemaname = '{schema}_initial' loop
        execute format('insert into "{schema}".%I select * from "{schema}_initial".%I', item, item);
    end loop;
end $$
"""


@dataclass(frozen=True, slots=True)
class _Prepared:
    service: str
    database: Database
    shape: str


class PreparedSchemas:
    """Databases of one server by service. `take` one, and `give_back` it after the test.

    `administration`: a connection of its own, so that tests can count what theirs have done.
    """

    def __init__(self, dsn: str, administration: asyncpg.Connection) -> None:
        self._dsn = dsn
        self._administration = administration
        self._free: dict[str, list[_Prepared]] = {}
        self._taken: dict[int, _Prepared] = {}

    async def take(self, service: str, *, is_fresh: bool = False) -> Database:
        """`is_fresh`: for tests of what a database does that nobody has used."""
        free = [] if is_fresh else self._free.get(service)
        prepared = free.pop() if free else await self._prepare(service)
        self._taken[id(prepared.database)] = prepared
        return prepared.database

    async def give_back(self, database: Database) -> None:
        prepared = self._taken.pop(id(database))
        database.on_emitted = lambda: None
        pool = database.pool
        is_plain = type(database) is Database  # some tests put a class of their own in its place
        is_quiet = not pool.is_closing() and pool.get_idle_size() == pool.get_size()
        if is_plain and is_quiet and await self._empty(prepared):
            self._free.setdefault(prepared.service, []).append(prepared)
        else:
            await self._drop(database)

    async def close(self) -> None:
        for prepared in (it for free in self._free.values() for it in free):
            await prepared.database.close()

    async def _prepare(self, service: str) -> _Prepared:
        schema = f"{service}_{secrets.token_hex(4)}"
        database = Database(self._dsn, schema, Origin(f"/drivetrain/{service}", "drivetrain."))
        await database.open([f"services.{service}"])
        shape = await self._administration.fetchval(_SHAPE, schema)
        await self._administration.execute(f'create schema "{schema}_initial"')
        tables = await self._administration.fetch(
            "select tablename from pg_tables where schemaname = $1 and tablename <> 'migrations'",
            schema,
        )
        for (table,) in tables:
            name = f'"{schema}"."{table}"'
            if await self._administration.fetchval(f"select exists (select from {name})"):
                copy = f'create table "{schema}_initial"."{table}" as table {name}'
                await self._administration.execute(copy)
        return _Prepared(service, database, shape)

    async def _empty(self, prepared: _Prepared) -> bool:
        """Whether the schema is again as the migrations left it."""
        schema = prepared.database.schema
        if await self._administration.fetchval(_SHAPE, schema) != prepared.shape:
            return False
        try:
            await self._administration.execute(_EMPTY.format(schema=schema))
        except asyncpg.LockNotAvailableError:
            return False
        return True

    async def _drop(self, database: Database) -> None:
        database.pool.terminate()
        for schema in (database.schema, f"{database.schema}_initial"):
            await self._administration.execute(f'drop schema if exists "{schema}" cascade')
