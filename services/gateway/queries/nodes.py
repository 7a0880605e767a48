"""Nodes and who holds their slots."""

from services.gateway.queries.rows import Connection, Row, as_rows

_HELD = """
    select node_id, slot, job_id, attempt, granted_at
    from allocations, jsonb_to_recordset(slots) as held (node_id text, slot integer)
    where released_at is null
"""


async def present(connection: Connection) -> list[Row]:
    """Nodes that accept runs, or still hold some."""
    rows = await connection.fetch(
        f"""
        select * from nodes where not is_removed
        union
        select * from nodes where node_id = any (array(select node_id from ({_HELD}) as held))
        order by pool, node_id
        """
    )
    return as_rows(rows)


async def slots_in_use(connection: Connection) -> tuple[int, int]:
    """How many slots runs hold, and how many there are."""
    (row,) = await connection.fetch(
        f"""
        select (select count(*) from ({_HELD}) as held) as num_held,
            (select coalesce(sum(num_slots), 0)::bigint from nodes where not is_removed)
                as num_slots
        """
    )
    return row["num_held"], row["num_slots"]


async def held_slots(connection: Connection, tenant_id: str) -> list[Row]:
    """Each slot that is held; by which job only where it is one of the tenant's."""
    rows = await connection.fetch(
        f"""
        select held.node_id, held.slot, own.*
        from ({_HELD}) as held left join lateral (
            select held.job_id, requests.name, jobs.project, held.attempt, held.granted_at
            from jobs left join requests on subject_id = job_id
            where jobs.job_id = held.job_id and jobs.tenant_id = $1
        ) as own on true
        order by held.node_id, held.slot, held.granted_at
        """,
        tenant_id,
    )
    return as_rows(rows)


async def device_type_of_pool(connection: Connection, pool: str) -> str | None:
    """The most common device type of the pool's slots."""
    found: str | None = await connection.fetchval(
        """
        select device_type from nodes where pool = $1 and not is_removed
        group by device_type order by sum(num_slots) desc, device_type limit 1
        """,
        pool,
    )
    return found
