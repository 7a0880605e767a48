"""The roles of the embedded Postgres: one for each service, owner of its own schema and no other.

In: the administrator's DSN and the roles' passwords. Out: correct roles, schemas and owners,
whatever an older start has left. `reader` reads everything and writes nothing: it is for people.
Pods have no role. A projection's role may create schemas too: `rebuild` drops its own.
"""

from collections.abc import Mapping

import asyncpg

from services.runtime.access.roles import (
    CONNECT_SECONDS,
    MAX_CONNECTIONS_OF_A_ROLE,
    PROJECTIONS,
)

READER = "reader"

_COMMON = """
revoke all on schema public from public;
revoke connect, temporary on database postgres, template1 from public;
revoke temporary on database drivetrain from public;
"""

# Objects from a release without roles belong to the administrator.
_TAKE_OVER = """
do $$
declare item record;
begin
  for item in
    select format('alter %s %I.%I owner to %I',
      case c.relkind when 'S' then 'sequence' when 'v' then 'view'
        when 'm' then 'materialized view' else 'table' end,
      n.nspname, c.relname, n.nspname) as statement
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    join pg_roles r on r.rolname = n.nspname
    where n.nspname = '{name}' and c.relowner <> r.oid and c.relkind in ('r', 'p', 'v', 'm', 'S')
      -- A sequence of a column goes with its table.
      and not exists (select from pg_depend d
        where d.objid = c.oid and d.deptype in ('a', 'i') and c.relkind = 'S')
    union all
    select format('alter routine %s owner to %I', p.oid::regprocedure, n.nspname)
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    join pg_roles r on r.rolname = n.nspname
    where n.nspname = '{name}' and p.proowner <> r.oid
    union all
    select format('alter type %I.%I owner to %I', n.nspname, t.typname, n.nspname)
    from pg_type t join pg_namespace n on n.oid = t.typnamespace
    join pg_roles r on r.rolname = n.nspname
    where n.nspname = '{name}' and t.typowner <> r.oid and t.typtype in ('e', 'd', 'r')
  loop
    execute item.statement;
  end loop;
end $$;
"""


async def apply_roles(dsn: str, passwords: Mapping[str, str]) -> None:
    """Make every role and its schema; safe to repeat. Raises what asyncpg raises."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS)
    try:
        async with connection.transaction():
            await connection.execute(_COMMON)
            for name, password in passwords.items():
                await _apply_role(connection, name, password)
                if name == READER:
                    await connection.execute(
                        f"grant pg_read_all_data to {READER}; "
                        f"alter role {READER} set default_transaction_read_only = on"
                    )
                else:
                    await _apply_schema(connection, name)
    finally:
        await connection.close()


async def _apply_role(connection: asyncpg.Connection, name: str, password: str) -> None:
    known = await connection.fetchval("select true from pg_roles where rolname = $1", name)
    secret = await connection.fetchval("select quote_literal($1::text)", password)
    # Never a superuser, even if someone has made it one.
    await connection.execute(
        f'{"alter" if known else "create"} role "{name}" login nosuperuser nocreatedb '
        f"nocreaterole noreplication nobypassrls connection limit {MAX_CONNECTIONS_OF_A_ROLE} "
        f"password {secret}"
    )


async def _apply_schema(connection: asyncpg.Connection, name: str) -> None:
    await connection.execute(f'create schema if not exists "{name}" authorization "{name}"')
    await connection.execute(f'alter schema "{name}" owner to "{name}"')
    await connection.execute(_TAKE_OVER.format(name=name))
    if name in PROJECTIONS:
        await connection.execute(f'grant create on database drivetrain to "{name}"')
