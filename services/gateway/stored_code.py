"""How much code is uploaded, and how long each archive is kept.

An archive is kept for a day after each upload of it and after each request that was sent with it; a
request that names it then keeps it for ever, because its job may be run again. A deletion locks the
row of its archive, so that an upload meanwhile waits, and then stores the archive again.
"""

import re
from collections.abc import Mapping

import asyncpg

from services.gateway.instruments import CODE_BYTES, CODE_DELETED
from services.gateway.model_age import STALE_SECONDS, ModelAge
from services.runtime import logs
from services.runtime.repeating import repeat
from services.runtime.service import Platform

log = logs.get()

PASS_SECONDS = 600.0
STEP_ARCHIVES = 20

_KEEP = """
update code set keep_until = greatest(keep_until, statement_timestamp() + interval '1 day')
where tenant_id = $1 and sha256 = $2 returning 1
"""
_ADD = """
with added as (
    insert into code (tenant_id, sha256, size_bytes, keep_until)
    select *, statement_timestamp() + interval '1 day'
    from unnest($1::text[], $2::text[], $3::bigint[])
    on conflict do nothing returning tenant_id, size_bytes)
insert into code_totals as total (tenant_id, size_bytes)
select tenant_id, sum(size_bytes) from added group by tenant_id
on conflict (tenant_id) do update set size_bytes = total.size_bytes + excluded.size_bytes
returning size_bytes
"""
_NAMED = "exists (select from requests where code_sha256 = sha256)"
_KEEP_NAMED = f"""
update code set keep_until = 'infinity' where keep_until < statement_timestamp() and {_NAMED}
"""
_TAKE = f"""
delete from code where ctid = any(array(
    select ctid from code where keep_until < statement_timestamp() and not {_NAMED}
    order by keep_until limit $1 for update skip locked))
returning tenant_id, sha256, size_bytes
"""
_SUBTRACT = "update code_totals set size_bytes = size_bytes - $2 where tenant_id = $1"
_TOTAL = "select coalesce(sum(size_bytes), 0)::bigint from code_totals"
_KEY = re.compile(r"code/([^/]+)/([0-9a-f]{64})\.tar\.gz")


def key_of(tenant_id: str, sha256: str) -> str:
    return f"code/{tenant_id}/{sha256}.tar.gz"


async def keep(connection: asyncpg.Connection, tenant_id: str, sha256: str) -> bool:
    """For another day; False where it is not known to be stored."""
    return await connection.fetchval(_KEEP, tenant_id, sha256) is not None


async def add(connection: asyncpg.Connection, sizes: Mapping[tuple[str, str], int]) -> int:
    """The most that a tenant stores with these; 0 where none is new."""
    tenants, hashes = [tenant for tenant, _ in sizes], [sha256 for _, sha256 in sizes]
    totals = await connection.fetch(_ADD, tenants, hashes, list(sizes.values()))
    return max((int(row["size_bytes"]) for row in totals), default=0)


async def tidy(model_age: ModelAge, platform: Platform) -> None:
    """A task of the service: deletes nothing while the read model does not know every request."""
    is_known = False

    async def work() -> None:
        nonlocal is_known
        if not is_known:
            await find(platform)
            is_known = True
        elif model_age.seconds(platform.clock.now()) < STALE_SECONDS:
            while await delete_some(platform) == STEP_ARCHIVES:
                continue

    await repeat(work, platform.clock, PASS_SECONDS, "unused code is not deleted")


async def find(platform: Platform) -> None:
    """What the store holds and a rebuild has forgotten."""
    found = await platform.object_store.list("code/")
    keys = [(_KEY.fullmatch(item.key), item.size_bytes) for item in found]
    async with platform.database.transaction() as tx:
        await add(tx.connection, {(key[1], key[2]): size for key, size in keys if key})


async def delete_some(platform: Platform) -> int:
    """How many archives were deleted, at most STEP_ARCHIVES."""
    async with platform.database.connection() as connection:
        await connection.execute(_KEEP_NAMED)
    async with platform.database.transaction() as tx:
        rows = await tx.connection.fetch(_TAKE, STEP_ARCHIVES)
        for row in rows:
            await platform.object_store.delete(key_of(row["tenant_id"], row["sha256"]))
        sizes = [(row["tenant_id"], row["size_bytes"]) for row in rows]
        await tx.connection.executemany(_SUBTRACT, sizes)
        CODE_BYTES.set(await tx.connection.fetchval(_TOTAL))
    if rows:
        CODE_DELETED.inc(len(rows))
        log.info("unused code deleted", archives=len(rows), bytes=sum(size for _, size in sizes))
    return len(rows)
