"""The roles of Postgres: one for each service, owner of its own schema, without access to another.

In: the services. Out: SQL that is safe to repeat, for a role that may create roles and owns the
database, which need not be a superuser. Pods have no role. A projection's role may create schemas
too: `rebuild` drops its own.
"""

from collections.abc import Mapping

import asyncpg

from drivetrain_schemas.topics import SERVICES
from services.runtime.database import MAX_CONNECTIONS, MAX_DEDICATED

PROJECTIONS = ("gateway",)
# One service cannot take every connection of the server, and has enough for all its replicas.
MAX_REPLICAS = 4
MAX_CONNECTIONS_OF_A_ROLE = MAX_REPLICAS * (MAX_CONNECTIONS + MAX_DEDICATED)
CONNECT_SECONDS = 10.0

_DATABASE = """\
-- Run in the database of the platform, which holds nothing else. The roles have no password yet:
--   \\password scheduler        (in psql, for each)
revoke all on schema public from public;
do $$ begin
  execute format('revoke temporary on database %I from public', current_database());
end $$;
"""
_ROLE = """
do $$ begin
  if not exists (select from pg_roles where rolname = '{name}') then
    create role "{name}" login;
  end if;
  -- Who is not a superuser must be a member of a role to give it a schema.
  if not (select rolsuper from pg_roles where rolname = current_user) then
    grant "{name}" to current_user;
  end if;
  execute format('grant connect on database %I to "{name}"', current_database());
end $$;
alter role "{name}" connection limit {limit};
create schema if not exists "{name}" authorization "{name}";
"""
_PROJECTION = """\
do $$ begin
  execute format('grant create on database %I to "{name}"', current_database());
end $$;
"""


def role_sql() -> str:
    """Every role and its schema."""
    return _DATABASE + "".join(
        _ROLE.format(name=name, limit=MAX_CONNECTIONS_OF_A_ROLE)
        + (_PROJECTION.format(name=name) if name in PROJECTIONS else "")
        for name in SERVICES
    )


async def create_roles(dsn: str, passwords: Mapping[str, str]) -> None:
    """Roles without a password in `passwords` keep theirs. Raises what asyncpg raises."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_SECONDS)
    try:
        async with connection.transaction():
            await connection.execute(role_sql())
            for name, password in passwords.items():
                secret = await connection.fetchval("select quote_literal($1::text)", password)
                await connection.execute(f'alter role "{name}" password {secret}')
    finally:
        await connection.close()
